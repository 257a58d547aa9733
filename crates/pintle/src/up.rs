//! `pintle up` and `pintle apiserver`: make what is missing, start the server, say where it is, and run until told to
//! stop.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use apiserver::authentication::jose::Signer;
use apiserver::deployment::BeforeReady;
use apiserver::serve::{AuthorityFile, Listen, ServeError, TlsMaterial};
use apiserver::{Config, Deployment, Server, StartError, StoreChoice};
use auth::User;
use env::World;

use crate::cli::{self, Component, Up};
use crate::control_loops::{self, ControlLoops, LoopHealth};
use crate::data_dir::{DataDir, Kubeconfig};
use crate::logs::Verbosity;
use crate::options::{Apiserver, Authorities, ConfigErrors, Leadership, Loops};
use crate::pki::{ADMIN, Hosts, Pair, Pki};
use crate::server_config::{DeploymentMode, ServerConfig};
use crate::signals::Signals;
use crate::{files, kubeconfig, process};

/// Runs a control plane until a signal stops it.
pub async fn up(asked: Up, world: World, verbosity: Verbosity) -> anyhow::Result<()> {
    anyhow::ensure!(
        asked.components.contains(&Component::Apiserver),
        "no component to run: name some with --components"
    );
    let runs_loops = asked.components.contains(&Component::ControllerManager);
    let loops = runs_loops.then_some((&asked.loops, &asked.leadership));
    run(&asked.server, asked.company(), loops, (world, verbosity)).await
}

/// Runs the API server alone.
pub async fn apiserver(asked: Apiserver, world: World, verbosity: Verbosity) -> anyhow::Result<()> {
    run(&asked, DeploymentMode::Alone, None, (world, verbosity)).await
}

async fn run(
    asked: &Apiserver,
    company: DeploymentMode,
    loops: Option<(&Loops, &Leadership)>,
    (world, verbosity): (World, Verbosity),
) -> anyhow::Result<()> {
    // from here on a signal stops cleanly, however early it comes
    let mut signals = Signals::new()?;
    let mut wanted = ServerConfig::read(asked, company)?;
    wanted.observe.verbosity = Some(Arc::new(move |text| verbosity.set(text)));
    process::tell(&wanted.observe.metrics);
    let data_dir = DataDir::prepare(asked, company)?;
    let names = wanted.names.clone();
    let own = match wanted.needs_own_identity(company) {
        true => Some(own_identity(asked, &wanted, &data_dir, &world)?),
        false => None,
    };
    let is_shared = wanted.etcd.is_some();
    let loops = match loops {
        Some((asked, leadership)) => {
            let signer = wanted.identity.service_accounts.signer.clone();
            let believed = own.as_ref().map(|pki| wanted.shown.believed(&pki.ca.certificate));
            let mut options = control_loops::trusted(own.as_ref(), believed, signer, is_shared)?;
            let mut wrong = ConfigErrors::default();
            options.gates = wanted.loop_gates;
            asked.onto(&mut options, &mut wrong);
            let candidate = crate::controller_manager::identity(&world);
            let lease = leadership.read(candidate, &names, &mut wrong).filter(|_| is_shared);
            wrong.check()?;
            let services = &wanted.kinds.services;
            options.node_ipam.services =
                [services.network].into_iter().chain(services.second_network).collect();
            Some((options, lease))
        }
        None => None,
    };
    let health = loops.is_some().then(LoopHealth::default);
    let (written, before_ready) = administrator(asked, company, own.as_ref(), &wanted, &data_dir, &world);
    let deployment = Deployment {
        before_ready,
        components: health.iter().map(LoopHealth::component).collect(),
        ephemeral_signer: data_dir.is_memory() && wanted.identity.service_accounts.signer.is_none(),
        ephemeral_authorities: data_dir.is_memory() && own.is_some(),
    };
    let counted = wanted.observe.metrics.clone();
    let server =
        start_server(wanted, company, data_dir.directory(), own.as_ref(), deployment, &world).await?;
    let loops = loops.zip(health).map(|((options, lease), health)| {
        ControlLoops::start(&server, &names, options, lease, health, counted, &world)
    });
    // a terminal that is gone is no reason to stop
    let told = greeting(&server, written.as_ref(), is_shared, world.elapsed().as_millis());
    let _ = stdout().write_all(told.as_bytes());
    let _ = stdout().flush();
    run_until_stopped(server, loops, &mut signals, written.as_ref()).await
}

/// The administrator's kubeconfig, where there is one, and what writes it before the server is ready: a script that
/// waits for the server finds it.
fn administrator(
    asked: &Apiserver,
    company: DeploymentMode,
    own: Option<&Pki>,
    wanted: &ServerConfig,
    data_dir: &DataDir,
    world: &World,
) -> (Option<Kubeconfig>, Option<BeforeReady>) {
    // the administrator's credentials are worth something only where the cluster's own authority is believed
    let own = own.filter(|_| wanted.believes_own_clients(company));
    let file = own.and_then(|_| data_dir.kubeconfig(asked, world));
    let (Some(pki), Some(file)) = (own, file) else { return (None, None) };
    let believed = wanted.shown.believed(&pki.ca.certificate);
    let (admin, token, path) = (pki.admin.clone(), pki.admin_token.clone(), file.path.clone());
    let before_ready: BeforeReady = Box::new(move |address| {
        let text = kubeconfig::render(address, &believed, &token, &admin);
        kubeconfig::write(&path, &text).map_err(|error| format!("{error:#}"))
    });
    (Some(file), Some(before_ready))
}

/// The certificates and keys of the cluster, made where there are none.
fn own_identity(
    asked: &Apiserver,
    wanted: &ServerConfig,
    data_dir: &DataDir,
    world: &World,
) -> anyhow::Result<Pki> {
    let mut others = asked.tls_san.clone();
    others.push(wanted.kinds.services.network.first().to_string());
    let hosts = Hosts::new(asked.bind_address, machine_name().as_deref(), &others, &wanted.names)?;
    let pki = match data_dir.directory() {
        Some(directory) => Pki::in_directory(&directory.join("pki"), &hosts, world)?,
        None => Pki::in_memory(&hosts, world)?,
    };
    if let Some((certificate, key)) = asked.tls.kept_at().filter(|_| wanted.shown.everybody.is_none()) {
        let folder = certificate.parent().unwrap_or(Path::new("."));
        let put = files::private_directory(folder)
            .and_then(|()| files::replace(&key, pki.apiserver.key.as_bytes()))
            .and_then(|()| files::replace(&certificate, pki.apiserver.certificate.as_bytes()));
        put.with_context(|| format!("--cert-dir: cannot write to {}", folder.display()))?;
    }
    Ok(pki)
}

async fn run_until_stopped(
    server: Server,
    loops: Option<ControlLoops>,
    signals: &mut Signals,
    written: Option<&Kubeconfig>,
) -> anyhow::Result<()> {
    tokio::select! {
        () = signals.next() => {}
        () = server.ended() => anyhow::bail!("the server stopped by itself: see the log, with -v for more"),
    }
    let _ = writeln!(stdout(), "stopping; once more to stop at once");
    let stopped = async {
        if let Some(loops) = loops {
            loops.stop().await;
        }
        server.shutdown().await;
    };
    tokio::select! {
        () = stopped => Ok(()),
        () = signals.next() => {
            if let Some(written) = written {
                written.remove_if_temporary();
            }
            std::process::exit(130)
        }
    }
}

/// What the servers of one etcd have in common.
const SHARED_KEYS: &str = "\
Other servers on this etcd need the same keys: those of service accounts (--service-account-signing-key-file,
--service-account-key-file), the authorities for clients (--client-ca-file) and for front proxies
(--requestheader-client-ca-file, --proxy-client-cert-file), and --encryption-provider-config. Servers that made their
own need a copy of the folder pki of one data directory.
";

fn greeting(server: &Server, written: Option<&Kubeconfig>, is_shared: bool, started_ms: u128) -> String {
    let url = kubeconfig::url(server.local_addr());
    let mut text = format!("{} is ready on {url} ({started_ms} ms)\n", cli::version());
    if let Some(written) = written {
        let path = quoted(&written.path);
        // writing to a string cannot fail
        let _ = write!(text, "\n    export KUBECONFIG={path}\n    kubectl get namespaces\n\n");
    }
    if written.is_some_and(|it| it.temporary) {
        text.push_str("Everything is in memory; that kubeconfig is removed at the end.\n");
    }
    if is_shared {
        text.push_str(SHARED_KEYS);
    }
    text.push_str("Stop with Ctrl-C.\n");
    text
}

/// The path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-+@%:,".contains(&c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The machine's name, where the system tells it in one of the usual places.
pub(crate) fn machine_name() -> Option<String> {
    let told = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let told = told.iter().find_map(|path| std::fs::read_to_string(path).ok());
    told.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_owned())
}

/// Starts the API server, with its state in `directory` or in memory.
async fn start_server(
    wanted: ServerConfig,
    company: DeploymentMode,
    directory: Option<&Path>,
    own: Option<&Pki>,
    deployment: Deployment,
    world: &World,
) -> anyhow::Result<Server> {
    let believes_own_clients = wanted.believes_own_clients(company);
    let Authorities { clients, client_file, proxies, proxy_file } = wanted.authorities;
    let clients = Believed::new(company, own.map(|pki| &pki.ca), clients, client_file);
    let proxies = Believed::new(company, own.map(|pki| &pki.front_proxy_ca), proxies, proxy_file);
    let text = |text: &str| text.to_owned().into_bytes();
    let tls = TlsMaterial {
        certificate_chain: own.map(|pki| text(&pki.apiserver.certificate)).unwrap_or_default(),
        private_key: own.map(|pki| text(&pki.apiserver.key)).unwrap_or_default(),
        client_authorities: clients.pem,
        proxy_authorities: proxies.pem,
        client_authority_file: clients.file,
        proxy_authority_file: proxies.file,
        ..TlsMaterial::default()
    };
    let tls = wanted.shown.onto(tls);
    let mut identity = wanted.identity;
    let accounts = &mut identity.service_accounts;
    if let (None, Some(pki)) = (&accounts.signer, own) {
        let signer = Signer::from_pem(pki.service_account_key.as_bytes());
        accounts.signer = Some(signer.context("the key of service accounts in the data directory")?);
    }
    if let Some(pki) = own.filter(|_| believes_own_clients) {
        let administrator = User { groups: vec![auth::MASTERS.to_owned()], ..User::named(ADMIN) };
        identity.tokens.insert(&pki.admin_token, administrator);
    }
    let mut aggregation = wanted.aggregation;
    if let (None, Some(pki)) = (&aggregation.identity, own) {
        let pair = &pki.front_proxy_client;
        aggregation.identity = Some((text(&pair.certificate), text(&pair.key)));
    }
    let listen = Listen {
        address: wanted.address,
        tls,
        limits: wanted.connections,
        share_port: wanted.share_port,
        world: world.clone(),
    };
    let at_etcd = wanted.etcd.is_some();
    let config = Config {
        store: match (wanted.etcd, directory) {
            (Some(etcd), _) => StoreChoice::Etcd(Box::new(etcd)),
            (None, Some(path)) => StoreChoice::Directory(path.join("store")),
            (None, None) => StoreChoice::Memory,
        },
        sealing: wanted.sealing,
        listen,
        world: world.clone(),
        names: wanted.names,
        event_ttl: wanted.event_ttl,
        delete_workers: wanted.delete_workers,
        identity,
        permission: wanted.permission,
        admission: wanted.admission,
        audit: wanted.audit,
        serving: wanted.serving,
        cache: Default::default(),
        limits: wanted.limits,
        fairness: wanted.fairness,
        kinds: wanted.kinds,
        reached_at: wanted.reached_at,
        found: wanted.found,
        egress: wanted.egress,
        aggregation,
        gates: wanted.gates,
        browsers: wanted.browsers,
        observe: wanted.observe,
        deployment,
    };
    Server::start(config).await.map_err(|error| explained(error, at_etcd))
}

/// Whose certificates are believed: together with others the cluster's own authority and those that are given, alone
/// those that are given if there are any.
struct Believed {
    pem: Option<Vec<u8>>,
    file: Option<AuthorityFile>,
}

impl Believed {
    fn new(
        company: DeploymentMode,
        own: Option<&Pair>,
        given: Option<String>,
        file: Option<PathBuf>,
    ) -> Self {
        let own = own.filter(|_| company != DeploymentMode::Alone || given.is_none());
        let mut besides = own.map(|pair| pair.certificate.trim_end().to_owned()).unwrap_or_default();
        if !besides.is_empty() {
            besides.push('\n');
        }
        let pem = format!("{besides}{}", given.unwrap_or_default()).into_bytes();
        let file = file.map(|path| AuthorityFile { path, besides: besides.into_bytes() });
        Believed { pem: (!pem.is_empty()).then_some(pem), file }
    }
}

fn explained(error: StartError, at_etcd: bool) -> anyhow::Error {
    let advice = match &error {
        StartError::Serve(ServeError::AddressInUse(_)) => {
            "stop what is using it, or choose another port with --secure-port"
        }
        StartError::Serve(ServeError::Bind { .. }) => "choose another with --bind-address or --secure-port",
        StartError::Serve(ServeError::Tls { .. }) => {
            "see the --tls options, or restore the certificates in the data directory, or remove them"
        }
        StartError::Store(_) if at_etcd => "see --etcd-servers and the options with --etcd",
        StartError::Unreadable(_) if at_etcd => {
            "mend or delete it in the etcd, or choose another --etcd-prefix"
        }
        StartError::Store(_) | StartError::Unreadable(_) => {
            "restore the data directory from a copy, or choose another with --data-dir"
        }
        StartError::Decrypt(_) => {
            "see --encryption-provider-config: the key it was sealed with must stay there"
        }
        StartError::Plugins(_) => "see --enable-admission-plugins and --disable-admission-plugins",
        StartError::Audit(_) => "see --audit-log-path and --audit-webhook-config-file",
        StartError::System { .. } => "the log has more, with -v",
        // these say what to do
        StartError::ForeignKeys(_) | StartError::BeforeReady(_) => return anyhow::anyhow!("{error}"),
    };
    anyhow::anyhow!("{error}: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Names;

    #[test]
    fn paths_survive_the_shell() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/a b")), "'/a b'");
        assert_eq!(quoted(Path::new("/a'b")), r"'/a'\''b'");
    }

    #[tokio::test]
    async fn a_server_starts_says_where_and_stops() {
        let world = crate::world::real().unwrap();
        let hosts = Hosts::new([127, 0, 0, 1].into(), None, &[], &Names::kubernetes()).unwrap();
        let pki = Pki::in_memory(&hosts, &world).unwrap();
        let wanted = |port: u16| {
            let line = format!("pintle up --secure-port {port}");
            let read = cli::Cli::read(line.split(' ').map(Into::into)).unwrap();
            let cli::Command::Up(up) = read.command else { panic!("not up") };
            ServerConfig::read(&up.server, TOGETHER).unwrap()
        };
        const TOGETHER: DeploymentMode = DeploymentMode::SingleFlight { accounts: false };
        let server =
            start_server(wanted(0), TOGETHER, None, Some(&pki), Deployment::default(), &world).await.unwrap();
        assert_ne!(server.local_addr().port(), 0);
        let taken = start_server(
            wanted(server.local_addr().port()),
            TOGETHER,
            None,
            Some(&pki),
            Deployment::default(),
            &world,
        );
        let taken = taken.await.err().unwrap().to_string();
        assert!(taken.contains("already in use") && taken.contains("--secure-port"), "{taken}");
        let written = Kubeconfig { path: "/tmp/k".into(), temporary: false };
        let told = greeting(&server, Some(&written), false, 7);
        assert!(
            told.contains(&kubeconfig::url(server.local_addr())) && told.contains("KUBECONFIG=/tmp/k"),
            "{told}"
        );
        server.shutdown().await;
    }
}
