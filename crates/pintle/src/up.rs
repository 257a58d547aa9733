//! `pintle up` and `pintle apiserver`: make what is missing, start the server, say where it is, and run until told to
//! stop.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ambient::World;
use anyhow::Context;
use apiserver::identity::jose::Signer;
use apiserver::serve::{Listen, ServeError, TlsMaterial};
use apiserver::{Config, Server, StartError, StoreChoice};

use crate::cli::{self, Component, Up};
use crate::control_loops::{self, ControlLoops};
use crate::logs::Verbosity;
use crate::options::{Apiserver, Authorities, Loops, Wrong};
use crate::pki::{Hosts, Pair, Pki};
use crate::signals::Signals;
use crate::wanted::{Company, Wanted};
use crate::{files, kubeconfig, process};

/// Runs a control plane until a signal stops it.
pub async fn up(asked: Up, world: World, verbosity: Verbosity) -> anyhow::Result<()> {
    anyhow::ensure!(
        asked.components.contains(&Component::Apiserver),
        "no component to run: name some with --components"
    );
    let loops = asked.components.contains(&Component::ControllerManager).then_some(&asked.loops);
    run(&asked.server, asked.company(), loops, (world, verbosity)).await
}

/// Runs the API server alone.
pub async fn apiserver(asked: Apiserver, world: World, verbosity: Verbosity) -> anyhow::Result<()> {
    run(&asked, Company::Alone, None, (world, verbosity)).await
}

async fn run(
    asked: &Apiserver,
    company: Company,
    loops: Option<&Loops>,
    (world, verbosity): (World, Verbosity),
) -> anyhow::Result<()> {
    // from here on a signal stops cleanly, however early it comes
    let mut signals = Signals::new()?;
    let mut wanted = Wanted::read(asked, company)?;
    wanted.observe.verbosity = Some(Arc::new(move |text| verbosity.set(text)));
    process::tell(&wanted.observe.metrics);
    let home = Home::prepare(asked)?;
    let names = wanted.names.clone();
    let own = match wanted.needs_own_identity(company) {
        true => Some(own_identity(asked, &wanted, &home, &world)?),
        false => None,
    };
    // the administrator's certificate is worth something only where its authority is believed
    let administrator = own.as_ref().filter(|_| wanted.believes_own_clients(company));
    let administrator =
        administrator.map(|pki| (wanted.shown.believed(&pki.ca.certificate), pki.admin.clone()));
    let loops = match loops {
        Some(asked) => {
            let signer = wanted.identity.service_accounts.signer.clone();
            let believed = own.as_ref().map(|pki| wanted.shown.believed(&pki.ca.certificate));
            let mut options = control_loops::trusted(own.as_ref(), believed, signer)?;
            let mut wrong = Wrong::default();
            options.gates = wanted.loop_gates;
            asked.onto(&mut options, &mut wrong);
            wrong.check()?;
            let services = &wanted.kinds.services;
            options.node_ipam.services =
                [services.network].into_iter().chain(services.second_network).collect();
            Some(options)
        }
        None => None,
    };
    let counted = wanted.observe.metrics.clone();
    let server = start_server(wanted, company, home.directory(), own.as_ref(), &world).await?;
    let loops = loops.map(|options| ControlLoops::start(&server, &names, options, counted, &world));
    let mut written = None;
    if let Some((believed, admin)) = administrator {
        let file = home.kubeconfig(asked, &world);
        let text = kubeconfig::render(server.local_addr(), &believed, &admin);
        if let Err(error) = kubeconfig::write(&file.path, &text) {
            server.shutdown().await;
            return Err(error);
        }
        written = Some(file);
    }
    // a terminal that is gone is no reason to stop
    let told = greeting(&server, written.as_ref(), world.elapsed().as_millis());
    let _ = stdout().write_all(told.as_bytes());
    let _ = stdout().flush();
    run_until_stopped(server, loops, &mut signals, written.as_ref()).await
}

/// The certificates and keys of the cluster, made where there are none.
fn own_identity(asked: &Apiserver, wanted: &Wanted, home: &Home, world: &World) -> anyhow::Result<Pki> {
    let mut others = asked.tls_san.clone();
    others.push(wanted.kinds.services.network.first().to_string());
    let hosts = Hosts::new(asked.bind_address, machine_name().as_deref(), &others, &wanted.names)?;
    let pki = match home.directory() {
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

/// Where state is kept: a directory that is ours alone while we run, or nowhere.
enum Home {
    Directory { path: PathBuf, _claim: files::Claim },
    Memory,
}

impl Home {
    fn prepare(asked: &Apiserver) -> anyhow::Result<Self> {
        if asked.store.ephemeral {
            return Ok(Self::Memory);
        }
        let path = match &asked.store.data_dir {
            Some(path) => path.clone(),
            None => default_directory(|name| std::env::var_os(name).map(PathBuf::from))?,
        };
        let path = std::path::absolute(&path).unwrap_or(path);
        files::private_directory(&path).map_err(|error| {
            let shown = path.display();
            anyhow::anyhow!("cannot make the data directory {shown}: {error}; choose another with --data-dir")
        })?;
        let claim = files::claim(&path)?;
        Ok(Self::Directory { path, _claim: claim })
    }

    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, .. } => Some(path),
            Self::Memory => None,
        }
    }

    fn kubeconfig(&self, asked: &Apiserver, world: &World) -> Kubeconfig {
        match (&asked.write_kubeconfig, self.directory()) {
            (Some(path), _) => {
                Kubeconfig { path: std::path::absolute(path).unwrap_or(path.clone()), temporary: false }
            }
            (None, Some(directory)) => {
                Kubeconfig { path: directory.join("admin.kubeconfig"), temporary: false }
            }
            (None, None) => {
                // not to be guessed by others who can write to the same folder
                let name = format!("pintle-{:016x}.kubeconfig", ambient::random_u64(world));
                Kubeconfig { path: std::env::temp_dir().join(name), temporary: true }
            }
        }
    }
}

fn default_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let data = variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let home = || variable("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".local/share"));
    let base =
        data.or_else(home).context("there is no home directory to keep data in: name one with --data-dir")?;
    Ok(base.join("pintle"))
}

/// The file with the administrator's credentials, removed in the end if it is a temporary one.
struct Kubeconfig {
    path: PathBuf,
    temporary: bool,
}

impl Kubeconfig {
    fn remove_if_temporary(&self) {
        if self.temporary {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        self.remove_if_temporary();
    }
}

fn greeting(server: &Server, written: Option<&Kubeconfig>, started_ms: u128) -> String {
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
    wanted: Wanted,
    company: Company,
    directory: Option<&Path>,
    own: Option<&Pki>,
    world: &World,
) -> anyhow::Result<Server> {
    let Authorities { clients, proxies } = wanted.authorities;
    let text = |text: &str| text.to_owned().into_bytes();
    let tls = TlsMaterial {
        certificate_chain: own.map(|pki| text(&pki.apiserver.certificate)).unwrap_or_default(),
        private_key: own.map(|pki| text(&pki.apiserver.key)).unwrap_or_default(),
        client_authorities: believed(company, own.map(|pki| &pki.ca), clients),
        proxy_authorities: believed(company, own.map(|pki| &pki.front_proxy_ca), proxies),
        ..TlsMaterial::default()
    };
    let tls = wanted.shown.onto(tls);
    let mut identity = wanted.identity;
    let accounts = &mut identity.service_accounts;
    if let (None, Some(pki)) = (&accounts.signer, own) {
        let signer = Signer::from_pem(pki.service_account_key.as_bytes());
        accounts.signer = Some(signer.context("the key of service accounts in the data directory")?);
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
    };
    Server::start(config).await.map_err(|error| explained(error, at_etcd))
}

/// Whose certificates are believed: together with others the cluster's own authority and those that are given, alone
/// those that are given if there are any.
fn believed(company: Company, own: Option<&Pair>, given: Option<String>) -> Option<Vec<u8>> {
    let own = own.filter(|_| company != Company::Alone || given.is_none());
    let all: Vec<_> = own.map(|pair| pair.certificate.clone()).into_iter().chain(given).collect();
    let all: Vec<_> = all.iter().map(|pem| pem.trim_end()).collect();
    (!all.is_empty()).then(|| (all.join("\n") + "\n").into_bytes())
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
        StartError::Unopened(_) => {
            "see --encryption-provider-config: the key it was sealed with must stay there"
        }
        StartError::Plugins(_) => "see --enable-admission-plugins and --disable-admission-plugins",
        StartError::Audit(_) => "see --audit-log-path and --audit-webhook-config-file",
        StartError::System { .. } => "the log has more, with -v",
    };
    anyhow::anyhow!("{error}: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Names;

    #[test]
    fn data_is_kept_where_the_user_keeps_data() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            default_directory(|name| match name {
                "XDG_DATA_HOME" => xdg.map(PathBuf::from),
                "HOME" => home.map(PathBuf::from),
                other => panic!("{other} is not to be read"),
            })
        };
        assert_eq!(with(Some("/x"), Some("/h")).unwrap(), Path::new("/x/pintle"));
        assert_eq!(with(Some(""), Some("/h")).unwrap(), Path::new("/h/.local/share/pintle"));
        assert_eq!(with(None, Some("/h")).unwrap(), Path::new("/h/.local/share/pintle"));
        assert!(with(None, None).unwrap_err().to_string().contains("--data-dir"));
    }

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
            Wanted::read(&up.server, TOGETHER).unwrap()
        };
        const TOGETHER: Company = Company::Together { accounts: false };
        let server = start_server(wanted(0), TOGETHER, None, Some(&pki), &world).await.unwrap();
        assert_ne!(server.local_addr().port(), 0);
        let taken = start_server(wanted(server.local_addr().port()), TOGETHER, None, Some(&pki), &world);
        let taken = taken.await.err().unwrap().to_string();
        assert!(taken.contains("already in use") && taken.contains("--secure-port"), "{taken}");
        let written = Kubeconfig { path: "/tmp/k".into(), temporary: false };
        let told = greeting(&server, Some(&written), 7);
        assert!(
            told.contains(&kubeconfig::url(server.local_addr())) && told.contains("KUBECONFIG=/tmp/k"),
            "{told}"
        );
        server.shutdown().await;
    }

    #[test]
    fn a_temporary_kubeconfig_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        for (temporary, left) in [(true, false), (false, true)] {
            let path = folder.path().join("config");
            std::fs::write(&path, "").unwrap();
            drop(Kubeconfig { path: path.clone(), temporary });
            assert_eq!(path.exists(), left);
        }
    }
}
