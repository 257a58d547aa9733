//! `pintle up`: makes what is missing, starts the server, says where it is, and runs until told to stop.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ambient::World;
use anyhow::Context;
use apiserver::identity::jose::Signer;
use apiserver::serve::{self, Listen, ServeError, TlsMaterial};
use apiserver::{
    Config, Server, StartError, StoreChoice, admission, audit, fairness, identity, limits, permission,
};
use kinds::Serving;
use names::Names;

use crate::cli::{self, Component, Up};
use crate::control_loops::{self, ControlLoops};
use crate::options::{Authorities, Shown, Wrong};
use crate::pki::{Hosts, Pair, Pki};
use crate::signals::Signals;
use crate::{files, kubeconfig};

/// Runs a control plane until a signal stops it.
pub async fn up(asked: Up, world: World) -> anyhow::Result<()> {
    // from here on a signal stops cleanly, however early it comes
    let mut signals = Signals::new()?;
    let wanted = Wanted::read(&asked)?;
    let home = Home::prepare(&asked)?;
    let hosts =
        Hosts::new(asked.bind_address, machine_name().as_deref(), &asked.tls_san, &Names::kubernetes())?;
    let pki = match home.directory() {
        Some(directory) => Pki::in_directory(&directory.join("pki"), &hosts, &world)?,
        None => Pki::in_memory(&hosts, &world)?,
    };
    anyhow::ensure!(
        asked.components.contains(&Component::Apiserver),
        "no component to run: name some with --components"
    );
    let believed = wanted.shown.believed(&pki.ca.certificate);
    let signer = wanted.identity.service_accounts.signer.clone();
    let server = start_server(wanted, home.directory(), &pki, &world).await?;
    let loops = match asked.components.contains(&Component::ControllerManager) {
        true => {
            let options = control_loops::trusted(&pki, &believed, signer)?;
            Some(ControlLoops::start(&server, &Names::kubernetes(), options, &world))
        }
        false => None,
    };
    let written = home.kubeconfig(&asked, &world);
    let text = kubeconfig::render(server.local_addr(), &believed, &pki.admin);
    if let Err(error) = kubeconfig::write(&written.path, &text) {
        server.shutdown().await;
        return Err(error);
    }
    // a terminal that is gone is no reason to stop
    let _ = stdout().write_all(greeting(&server, &written, world.elapsed().as_millis()).as_bytes());
    let _ = stdout().flush();
    run_until_stopped(server, loops, &mut signals, &written).await
}

async fn run_until_stopped(
    server: Server,
    loops: Option<ControlLoops>,
    signals: &mut Signals,
    written: &Kubeconfig,
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
            written.remove_if_temporary();
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
    fn prepare(asked: &Up) -> anyhow::Result<Self> {
        if asked.ephemeral {
            return Ok(Self::Memory);
        }
        let path = match &asked.data_dir {
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

    fn kubeconfig(&self, asked: &Up, world: &World) -> Kubeconfig {
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

fn greeting(server: &Server, written: &Kubeconfig, started_ms: u128) -> String {
    let mut text = format!(
        "{} is ready on {} ({started_ms} ms)\n\n    export KUBECONFIG={}\n    kubectl get namespaces\n\n",
        cli::version(),
        kubeconfig::url(server.local_addr()),
        quoted(&written.path),
    );
    if written.temporary {
        text.push_str("Everything is in memory; that kubeconfig is removed at the end.\n");
    }
    // writing to a string cannot fail
    let _ = writeln!(text, "Stop with Ctrl-C.");
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

/// Where services get their addresses and ports from.
fn services(asked: &Up) -> anyhow::Result<kinds::ServiceOptions> {
    let ranges = &asked.service_cluster_ip_range;
    anyhow::ensure!(
        (1..=2).contains(&ranges.len()),
        "--service-cluster-ip-range takes one range, or one of each address family"
    );
    for range in ranges {
        if let Some(why) = range.unusable() {
            anyhow::bail!("--service-cluster-ip-range: {why}");
        }
    }
    let second_network = ranges.get(1).copied();
    anyhow::ensure!(
        second_network.is_none_or(|second| second.family() != ranges[0].family()),
        "--service-cluster-ip-range: two ranges must be of different address families"
    );
    Ok(kinds::ServiceOptions {
        network: ranges[0],
        second_network,
        node_ports: asked.service_node_port_range,
    })
}

/// The address by which others reach this machine: the one to listen on, or else that of the way out.
fn own_address(bind: IpAddr) -> Option<IpAddr> {
    if !bind.is_unspecified() && !bind.is_loopback() {
        return Some(bind);
    }
    // nothing is sent: connecting only makes the system choose the way, to an address that is nobody's
    let (from, to): (SocketAddr, SocketAddr) = match bind {
        IpAddr::V4(_) => (([0; 4], 0).into(), ([192, 0, 2, 1], 9).into()),
        IpAddr::V6(_) => (([0u16; 8], 0).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into()),
    };
    let socket = std::net::UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified() && !own.is_loopback()).then_some(own)
}

/// What the command line says about the server, read and found to be usable.
struct Wanted {
    address: SocketAddr,
    shown: Shown,
    identity: identity::Options,
    authorities: Authorities,
    permission: permission::Options,
    admission: admission::Options,
    audit: audit::Options,
    limits: limits::Options,
    fairness: fairness::Options,
    connections: serve::Limits,
    serving: Serving,
    kinds: kinds::Options,
    event_ttl: Duration,
    delete_workers: usize,
    /// The address by which pods reach the server.
    reached_at: Option<IpAddr>,
}

impl Wanted {
    fn read(asked: &Up) -> anyhow::Result<Self> {
        let serving = asked.runtime_config.iter().map(String::as_str);
        let mut wrong = Wrong::default();
        let shown = asked.tls.read(&mut wrong);
        let (mut identity, authorities) = asked.authentication.read(&mut wrong);
        let permission = asked.authorization.read(&mut wrong);
        let admission =
            asked.admission.read(asked.components.contains(&Component::ControllerManager), &mut wrong);
        let gates = asked.features.read(&mut wrong);
        let audit = asked.audit.read(&mut wrong);
        let limits = asked.limits.read(&mut wrong);
        let fairness = asked.limits.of_turns(&mut wrong);
        wrong.check()?;
        if identity.anonymous && permission.modes.contains(&auth::Mode::AlwaysAllow) {
            tracing::warn!(
                "who shows nothing is refused: --authorization-mode AlwaysAllow would allow them all"
            );
            identity.anonymous = false;
        }
        Ok(Wanted {
            address: SocketAddr::new(asked.bind_address, asked.secure_port),
            shown,
            identity,
            authorities,
            permission,
            admission,
            audit,
            limits,
            fairness,
            connections: asked.limits.of_connections(files::most_open()),
            serving: Serving::parse(serving, &Names::kubernetes())
                .context("--runtime-config cannot be used")?
                .with_gates(gates),
            kinds: kinds::Options { allow_privileged: asked.allow_privileged, services: services(asked)? },
            event_ttl: asked.event_ttl,
            delete_workers: asked.delete_collection_workers.into(),
            reached_at: asked.advertise_address.or_else(|| own_address(asked.bind_address)),
        })
    }
}

/// Starts the API server, with its state in `directory` or in memory.
async fn start_server(
    wanted: Wanted,
    directory: Option<&Path>,
    pki: &Pki,
    world: &World,
) -> anyhow::Result<Server> {
    let tls = TlsMaterial {
        certificate_chain: pki.apiserver.certificate.clone().into_bytes(),
        private_key: pki.apiserver.key.clone().into_bytes(),
        client_authorities: Some(besides(&pki.ca, wanted.authorities.clients)),
        proxy_authorities: Some(besides(&pki.front_proxy_ca, wanted.authorities.proxies)),
        ..TlsMaterial::default()
    };
    let tls = wanted.shown.onto(tls);
    let mut identity = wanted.identity;
    let accounts = &mut identity.service_accounts;
    if accounts.signer.is_none() {
        let signer = Signer::from_pem(pki.service_account_key.as_bytes());
        accounts.signer = Some(signer.context("the key of service accounts in the data directory")?);
    }
    let config = Config {
        store: directory.map_or(StoreChoice::Memory, |path| StoreChoice::Directory(path.join("store"))),
        listen: Listen { address: wanted.address, tls, limits: wanted.connections, world: world.clone() },
        world: world.clone(),
        names: Names::kubernetes(),
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
    };
    Server::start(config).await.map_err(explained)
}

/// The cluster's own authority and others.
fn besides(own: &Pair, others: Option<String>) -> Vec<u8> {
    format!("{}\n{}", own.certificate.trim_end(), others.unwrap_or_default()).into_bytes()
}

fn explained(error: StartError) -> anyhow::Error {
    let advice = match &error {
        StartError::Serve(ServeError::AddressInUse(_)) => {
            "stop what is using it, or choose another port with --secure-port"
        }
        StartError::Serve(ServeError::Bind { .. }) => "choose another with --bind-address or --secure-port",
        StartError::Serve(ServeError::Tls { .. }) => {
            "see the --tls options, or restore the certificates in the data directory, or remove them"
        }
        StartError::Store(_) | StartError::Unreadable(_) => {
            "restore the data directory from a copy, or choose another with --data-dir"
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
            Wanted::read(&up).unwrap()
        };
        let server = start_server(wanted(0), None, &pki, &world).await.unwrap();
        assert_ne!(server.local_addr().port(), 0);
        let taken = start_server(wanted(server.local_addr().port()), None, &pki, &world);
        let taken = taken.await.err().unwrap().to_string();
        assert!(taken.contains("already in use") && taken.contains("--secure-port"), "{taken}");
        let written = Kubeconfig { path: "/tmp/k".into(), temporary: false };
        let told = greeting(&server, &written, 7);
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
