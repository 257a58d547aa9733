//! The HTTP API of an agent.

use super::parts::{Parts, Supervisor};
use super::start_error::failed;
use crate::agent::Agent;
use crate::cgroups::CgroupManager;
use crate::configuration::{Configuration, Flags, StartError};
use crate::filesystem::LinuxFilesystem;
use crate::identity::RotationState;
use crate::local_volumes::LocalVolumes;
use crate::node::Machine;
use crate::pod::workers::PodWorkers;
use crate::runtime::SharedRuntime;
use crate::server::{
    AuthenticationOptions, AuthorizationOptions, ClientReviews, PodView, Reviews, ServerDeps, ServerOptions,
    TlsOptions, bind, serve as serve_http,
};
use crate::stats::{AgentMetrics, StatsSources, SystemCgroups, Usage, VolumeUsage};
use crate::status::writer::StatusWriter;
use crate::volumes::VolumeManager;
use api::core::v1::Pod;
use client::Client;
use futures_util::FutureExt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// An agent whose runtime was not listed for so long is not healthy.
const LIST_DEADLINE: Duration = Duration::from_secs(180);

/// The pods of the workers, with the statuses that the agent writes.
struct AgentPods {
    workers: Arc<PodWorkers>,
    statuses: Arc<StatusWriter>,
    listed: watch::Receiver<Duration>,
    world: env::World,
}

/// Whether the runtime was listed lately.
fn is_syncing(listed: &watch::Receiver<Duration>, world: &env::World) -> bool {
    world.elapsed().saturating_sub(*listed.borrow()) < LIST_DEADLINE
}

/// Notifies the supervisor that the agent is ready, and then periodically that it works, as long as it does.
pub async fn report_health(supervisor: &Supervisor, listed: watch::Receiver<Duration>, world: &env::World) {
    (supervisor.notify)("READY=1");
    let Some(watchdog) = supervisor.watchdog else { return std::future::pending().await };
    loop {
        if is_syncing(&listed, world) {
            (supervisor.notify)("WATCHDOG=1");
        }
        env::sleep(world, watchdog / 2).await;
    }
}

impl PodView for AgentPods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        let current = |pod: Arc<Pod>| match self.statuses.status(&pod.metadata.uid) {
            Some(status) => Arc::new(Pod { status, ..Pod::clone(&pod) }),
            None => pod,
        };
        self.workers.pods().into_iter().map(current).collect()
    }

    fn is_syncing(&self) -> bool {
        is_syncing(&self.listed, &self.world)
    }
}

/// What the pages of usage are made from.
pub struct StatsParts {
    pub metrics: AgentMetrics,
    pub machine: Machine,
    pub cgroups: Arc<CgroupManager>,
    pub volumes: VolumeManager,
    pub log_dir: PathBuf,
    pub root_dir: PathBuf,
}

/// What the HTTP API checks its clients with, and presents to them.
pub struct ServerAccess {
    pub client: Client,
    /// The certificate, if the API server signs it.
    pub certificate: Option<watch::Receiver<RotationState>>,
    pub host_ips: watch::Receiver<Vec<String>>,
}

/// The addresses and certificates of the configuration.
fn server_options(
    (configuration, flags): (&Configuration, &Flags),
    node_name: &str,
    certificate: Option<watch::Receiver<RotationState>>,
    host_ips: &watch::Receiver<Vec<String>>,
) -> Result<ServerOptions, StartError> {
    let address = |host: &str, port: i64| {
        let ip = host.parse::<IpAddr>().ok();
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        ip.zip(port).map(|(ip, port)| SocketAddr::new(ip, port))
    };
    let host = configuration.text(&["address"]);
    let main = match configuration.flag(&["enableServer"]) {
        true => {
            let main = address(host, configuration.int("port"));
            Some(main.ok_or_else(|| failed(format!("{host:?} is not an address to listen on")))?)
        }
        false => None,
    };
    let file = |field: &str| {
        Some(PathBuf::from(configuration.text(&[field]))).filter(|it| !it.as_os_str().is_empty())
    };
    let client_ca = configuration.text(&["authentication", "x509", "clientCAFile"]);
    let mut hosts = vec![node_name.to_owned()];
    hosts.extend(host_ips.borrow().iter().cloned());
    Ok(ServerOptions {
        address: main,
        tls: TlsOptions {
            signed: certificate,
            files: file("tlsCertFile").zip(file("tlsPrivateKeyFile")),
            directory: PathBuf::from(flags.text("cert-dir")),
            hosts,
            client_authorities: Some(PathBuf::from(client_ca)).filter(|it| !it.as_os_str().is_empty()),
            min_version: configuration.text(&["tlsMinVersion"]).to_owned(),
            cipher_suites: configuration.texts("tlsCipherSuites"),
        },
        healthz: address(configuration.text(&["healthzBindAddress"]), configuration.int("healthzPort")),
        read_only: address(host, configuration.int("readOnlyPort")),
    })
}

/// Serves the ports of the configuration.
pub async fn serve(
    parts: &Parts,
    agent: &Agent,
    runtime: SharedRuntime,
    access: ServerAccess,
    node_name: &str,
    stats: StatsParts,
) -> Result<(), StartError> {
    let ServerAccess { client, certificate, host_ips } = access;
    let configuration = &parts.configuration;
    let options = server_options((configuration, &parts.flags), node_name, certificate, &host_ips)?;
    let bound = bind(options, &parts.world).await.map_err(failed)?;
    let pods: Arc<dyn PodView> = Arc::new(AgentPods {
        workers: agent.workers.clone(),
        statuses: agent.statuses.clone(),
        listed: agent.listed.clone(),
        world: parts.world.clone(),
    });
    let usage = Arc::new(Usage::new(StatsSources {
        runtime: runtime.clone(),
        pods: pods.clone(),
        node_name: node_name.to_owned(),
        world: parts.world.clone(),
        proc: PathBuf::from("/proc"),
        root_dir: stats.root_dir.clone(),
        log_dir: stats.log_dir,
        machine: stats.machine,
        cgroups: Some(stats.cgroups),
        system_cgroups: SystemCgroups {
            agent: configuration.text(&["kubeletCgroups"]).to_owned(),
            runtime: parts.flags.text("runtime-cgroups").to_owned(),
            system: configuration.text(&["systemCgroups"]).to_owned(),
        },
        metrics: stats.metrics.clone(),
        volumes: VolumeUsage::new(
            stats.volumes,
            configuration.duration(&["volumeStatsAggPeriod"]),
            parts.world.clone(),
        ),
        last_listed: Box::new(last_listed(agent.listed.clone(), parts.world.clone())),
    }));
    let metrics = move |page| {
        let usage = usage.clone();
        async move { usage.page(page).await }.boxed()
    };
    let reviews: Arc<dyn Reviews> = Arc::new(ClientReviews { client, names: parts.names.clone() });
    let deps = ServerDeps {
        world: parts.world.clone(),
        node_name: node_name.to_owned(),
        configuration: Arc::new(configuration.clone()),
        runtime,
        pods,
        reviews: parts.has_api().then_some(reviews),
        authentication: AuthenticationOptions {
            anonymous: configuration.flag(&["authentication", "anonymous", "enabled"]),
            webhook: configuration.flag(&["authentication", "webhook", "enabled"]),
            cache_ttl: configuration.duration(&["authentication", "webhook", "cacheTTL"]),
        },
        authorization: AuthorizationOptions {
            always_allow: configuration.text(&["authorization", "mode"]) == "AlwaysAllow",
            allowed_ttl: configuration.duration(&["authorization", "webhook", "cacheAuthorizedTTL"]),
            denied_ttl: configuration.duration(&["authorization", "webhook", "cacheUnauthorizedTTL"]),
        },
        metrics: Arc::new(metrics),
        counters: stats.metrics,
        has_checkpoints: parts.gates.is_open("ContainerCheckpoint"),
        checkpoint_dir: stats.root_dir.join("checkpoints"),
        idle_timeout: configuration.duration(&["streamingConnectionIdleTimeout"]),
        set_verbosity: parts.set_verbosity.clone(),
        command_line: parts.command_line.clone(),
        tracer: parts.tracer.clone(),
        log_directory: PathBuf::from("/var/log"),
        local_volumes: parts
            .has_local_volumes
            .then(|| LocalVolumes::new(&stats.root_dir, Arc::new(LinuxFilesystem))),
    };
    serve_http(bound, deps).await;
    Ok(())
}

/// The wall clock at the last list of the runtime's containers, in seconds.
fn last_listed(listed: watch::Receiver<Duration>, world: env::World) -> impl Fn() -> f64 {
    move || {
        let ago = world.elapsed().saturating_sub(*listed.borrow());
        let now = world.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(ago).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;
    use parking_lot::Mutex;

    #[tokio::test]
    async fn the_supervisor_hears_of_an_agent_that_works() {
        let sent: Arc<Mutex<Vec<String>>> = Arc::default();
        let messages = sent.clone();
        let supervisor = Supervisor {
            notify: Box::new(move |message| messages.lock().push(message.to_owned())),
            watchdog: Some(Duration::from_secs(20)),
        };
        let clock = Simulated::new(0, 1);
        let world: env::World = clock.clone();
        let (_listed, receiver) = watch::channel(world.elapsed());
        let mut reporting = Box::pin(report_health(&supervisor, receiver, &world));
        for _ in 0..30 {
            assert!((&mut reporting).now_or_never().is_none());
            clock.advance(Duration::from_secs(10));
        }
        // the last list was three minutes ago
        let mut expected = vec!["READY=1".to_owned()];
        expected.extend(std::iter::repeat_n("WATCHDOG=1".to_owned(), 18));
        assert_eq!(*sent.lock(), expected);
    }
    #[test]
    fn the_ports_of_an_agent_are_independent() {
        let options = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
            let flags = Flags::parse(&words).unwrap();
            let configuration = Configuration::default().with_flags(&flags);
            let (_, host_ips) = watch::channel(Vec::new());
            let options = server_options((&configuration, &flags), "n", None, &host_ips);
            let options = options.unwrap_or_else(|why| panic!("{}", why.message));
            let port = |it: Option<SocketAddr>| it.map(|it| it.port());
            [port(options.address), port(options.healthz), port(options.read_only)]
        };
        assert_eq!(options(&[]), [Some(10250), Some(10248), None]);
        let off = "--enable-server=false";
        assert_eq!(options(&[off, "--read-only-port=10255"]), [None, Some(10248), Some(10255)]);
        assert_eq!(options(&[off, "--healthz-port=0"]), [None; 3]);
    }
}
