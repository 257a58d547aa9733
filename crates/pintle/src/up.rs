//! The commands `pintle up` and `pintle apiserver`: make missing certificates, start the server, print its address, run
//! until a signal arrives.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use apiserver::authentication::jose::Signer;
use apiserver::deployment::{BeforeReady, ClusterHost};
use apiserver::serve::{AuthorityFile, ListenConfig, ServeError, TlsMaterial};
use apiserver::{Config, Deployment, Server, StartError, StoreChoice};
use auth::User;
use bytes::Bytes;
use client::leader;
use env::io::RealInstant;
use env::{Paused, World};
use nodeagent::assembly::embedded_runtime;
use tokio::task::JoinSet;

use crate::cli::{self, Component, Up};
use crate::control_loops;
use crate::data_dir::{DataDir, Kubeconfig, store_directory};
use crate::deployment_mode::DeploymentMode;
use crate::dns::{self, DnsFlags};
use crate::host::host_name;
use crate::in_process::{InMemoryServer, InProcess, RunningFlag, in_memory_admin};
use crate::instruments::Instruments;
use crate::logs::Verbosity;
use crate::node_agent::{self, NodeFiles, Readiness};
use crate::options::{Apiserver, Authorities, ConfigErrors, Controllers, LeaderElection};
use crate::pki::{self, ADMIN, CertifiedKey, Hosts, Pki};
use crate::server_config::ServerConfig;
use crate::signals::Signals;
use crate::simulated_nodes::{self, PreparedNodes, SimulationArgs};
use crate::snapshot::{Fork, key_of_file};
use crate::{faults, files, kubeconfig, pod_network, process_metrics, scheduler, service_proxy};

/// The number of the DNS service's address in the range of services, counted from the first: the tenth.
const DNS_ADDRESS: u32 = 9;

/// The parts that a cluster is started with, beside its flags.
pub struct ClusterContext {
    pub world: World,
    pub verbosity: Verbosity,
    /// The clock of the world, if users hold it.
    pub clock: Option<Arc<Paused>>,
    /// The state that it begins with.
    pub fork: Option<Fork>,
    /// Starts copies of it.
    pub clusters: Option<Arc<dyn ClusterHost>>,
    /// Instruments of a cluster for tests.
    pub instruments: Option<Instruments>,
}

impl ClusterContext {
    fn new(world: World, verbosity: Verbosity) -> Self {
        ClusterContext { world, verbosity, clock: None, fork: None, clusters: None, instruments: None }
    }
}

/// Runs a control plane until a signal arrives.
pub async fn up(args: &Up, context: ClusterContext) -> anyhow::Result<()> {
    let signals = stop_signals(&args.server)?;
    start(args, context).await?.run(signals).await
}

/// Starts a control plane.
pub async fn start(args: &Up, context: ClusterContext) -> anyhow::Result<RunningCluster> {
    anyhow::ensure!(
        args.runs(Component::Apiserver),
        "--components does not include apiserver: add it, or run pintle controller-manager, scheduler or nodeagent"
    );
    if context.clock.is_some() {
        check_manual_clock(args)?;
    }
    let components = Components {
        loops: args.runs(Component::ControllerManager).then_some(&args.loops),
        scheduler: args
            .runs(Component::Scheduler)
            .then_some(SchedulerArgs { config: args.scheduler_config.as_deref() }),
        agent: args.runs(Component::Nodeagent).then_some(AgentArgs {
            config: args.nodeagent_config.as_deref(),
            runtime: &args.runtime,
            is_required: args.components.is_some()
                || args.nodeagent_config.is_some()
                || args.runtime != "auto",
        }),
        dns: args.runs(Component::Dns).then_some(&args.dns),
        network: args.runs(Component::Network),
        metrics: args
            .runs(Component::Metrics)
            .then_some(MetricsArgs { is_required: args.components.is_some() }),
        proxy: args.runs(Component::Proxy).then_some(ProxyArgs {
            config: args.proxy_config.as_deref(),
            is_required: args.components.is_some() || args.proxy_config.is_some(),
        }),
        election: Some(&args.leader_election),
        simulation: SimulationArgs { nodes: args.nodes, profile: args.simulation_profile.as_deref() },
        faults: args
            .is_simulation()
            .then_some(FaultArgs { rules: args.faults.faults.as_deref(), seed: args.clock.seed }),
    };
    let token = match &args.cluster_token_file {
        Some(file) => Some(read_token(file)?),
        None => None,
    };
    start_components(&args.server, args.mode(), components, token, context).await
}

/// A manual clock moves the components of this process that go by it, and nothing else.
fn check_manual_clock(args: &Up) -> anyhow::Result<()> {
    let of_machine = args.components.iter().flatten().find(|it| !it.follows_clock());
    anyhow::ensure!(
        of_machine.is_none(),
        "--clock manual: containers and networks of this machine go by real time; leave their components out"
    );
    anyhow::ensure!(
        args.server.etcd.etcd_servers.is_empty(),
        "--clock manual: an etcd and its other servers go by real time; use the embedded store"
    );
    Ok(())
}

/// The cluster's token in a file.
fn read_token(file: &Path) -> anyhow::Result<String> {
    let text = files::read(file)?;
    let text = text.with_context(|| format!("--cluster-token-file: {} does not exist", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Runs the API server alone.
pub async fn apiserver(args: Apiserver, world: World, verbosity: Verbosity) -> anyhow::Result<()> {
    run(&args, Components::default(), ClusterContext::new(world, verbosity)).await
}

/// The simulated nodes of an API server that a test suite has started.
const ENVTEST_NODES: u32 = 3;

/// Runs the API server that a test suite has started, with what makes its objects live: the control loops, the scheduler,
/// simulated nodes and their metrics.
pub async fn envtest_apiserver(
    args: Apiserver,
    loops: &Controllers,
    world: World,
    verbosity: Verbosity,
) -> anyhow::Result<()> {
    let components = Components {
        loops: Some(loops),
        scheduler: Some(SchedulerArgs { config: None }),
        metrics: Some(MetricsArgs { is_required: false }),
        simulation: SimulationArgs { nodes: Some(ENVTEST_NODES), profile: None },
        ..Components::default()
    };
    run(&args, components, ClusterContext::new(world, verbosity)).await
}

/// The components beside the API server.
#[derive(Default)]
struct Components<'a> {
    loops: Option<&'a Controllers>,
    scheduler: Option<SchedulerArgs<'a>>,
    agent: Option<AgentArgs<'a>>,
    dns: Option<&'a DnsFlags>,
    /// Whether pods get addresses from this program, and nodes their ranges.
    network: bool,
    metrics: Option<MetricsArgs>,
    proxy: Option<ProxyArgs<'a>>,
    election: Option<&'a LeaderElection>,
    simulation: SimulationArgs<'a>,
    /// Those of clusters for tests alone.
    faults: Option<FaultArgs<'a>>,
}

/// The flags of faults on request.
struct FaultArgs<'a> {
    rules: Option<&'a str>,
    seed: Option<u64>,
}

/// The flags of the scheduler.
struct SchedulerArgs<'a> {
    config: Option<&'a Path>,
}

/// The flags of the resource metrics API.
struct MetricsArgs {
    /// Whether it is served without a node on this machine, for those of others.
    is_required: bool,
}

/// The flags of the service proxy.
struct ProxyArgs<'a> {
    config: Option<&'a Path>,
    /// Whether it runs on a machine without a node agent, too.
    is_required: bool,
}

/// The flags of the node agent.
struct AgentArgs<'a> {
    config: Option<&'a Path>,
    runtime: &'a str,
    /// Whether a machine that cannot run pods is an error.
    is_required: bool,
}

/// Runs an API server with these components until a signal arrives.
async fn run(args: &Apiserver, components: Components<'_>, context: ClusterContext) -> anyhow::Result<()> {
    let signals = stop_signals(args)?;
    start_components(args, DeploymentMode::Standalone, components, None, context).await?.run(signals).await
}

/// Installs the handlers of signals: from here on the process stops cleanly, however early a signal comes.
fn stop_signals(args: &Apiserver) -> anyhow::Result<Signals> {
    let mut signals = Signals::new()?;
    if args.exit_on_stdin_close {
        signals.add_stdin_end()?;
    }
    Ok(signals)
}

async fn start_components(
    args: &Apiserver,
    mode: DeploymentMode,
    components: Components<'_>,
    token: Option<String>,
    ClusterContext { world, verbosity, clock, fork, clusters, instruments }: ClusterContext,
) -> anyhow::Result<RunningCluster> {
    // by the clock of the machine, whatever the time of the cluster
    let began = RealInstant::now();
    let mut config = ServerConfig::read(args, mode)?;
    let (files, restored) = match fork {
        Some(fork) => (fork.files, Some((fork.revision, fork.records))),
        None => (Vec::new(), None),
    };
    config.observe.verbosity = Some(Arc::new(move |text| verbosity.set(text)));
    process_metrics::register(&config.observe.metrics);
    let data_dir = DataDir::prepare(args, mode)?;
    let names = config.names.clone();
    let own = match config.needs_own_pki(mode) {
        true => Some(cluster_pki(args, &config, &data_dir, (token.as_deref(), files), &world).await?),
        false => None,
    };
    let is_shared = config.etcd.is_some();
    let mut errors = ConfigErrors::default();
    let candidate = crate::controller_manager::identity(&world);
    let candidates = instruments.as_ref().map_or(0, |it| it.candidates);
    let lease = components.election.and_then(|it| it.read(candidate, &names, &mut errors));
    let lease = lease.filter(|_| is_shared || candidates > 0);
    let node = match &components.agent {
        Some(agent) => prepare_node(agent, &config, own.as_ref(), &data_dir, &world).await?,
        None => NodePlan::default(),
    };
    let has_node = node.agent.is_some();
    let mut pod_networks = String::new();
    let loops = match components.loops {
        Some(args) => {
            let signer = config.identity.service_accounts.signer.clone();
            let trusted_ca =
                own.as_ref().map(|pki| config.certificates.kubeconfig_authorities(&pki.ca.certificate));
            let mut options = control_loops::signing_options(own.as_ref(), trusted_ca, signer, is_shared)?;
            options.gates = config.loop_gates;
            let services = &config.kinds.services;
            let services: Vec<_> = [services.network].into_iter().chain(services.second_network).collect();
            let args = match components.network {
                true => &pod_network::with_node_ranges(args, &services),
                false => args,
            };
            args.apply_to(&mut options, &mut errors);
            pod_networks.clone_from(&args.nodes.cluster_cidr);
            // machines join with tokens, which these loops serve
            control_loops::run_by_default(&mut options, &["bootstrapsigner", "tokencleaner"]);
            options.node_ipam.services = services;
            Some((options, RunningFlag::new("controller-manager")))
        }
        None => None,
    };
    let simulated = simulated_nodes::profile(&components.simulation, &mut errors).map(PreparedNodes::new);
    if let Some(simulated) = &simulated {
        config.node_proxy.in_process = Some(simulated.servers(&world));
    }
    let faults = components.faults.map(|it| faults::prepare(it.rules, it.seed, &world, &mut errors));
    let gates = config.scheduler_gates;
    let scheduling =
        components.scheduler.and_then(|it| scheduler::options(it.config, &names, gates, &mut errors));
    let service_ranges =
        [config.kinds.services.network].into_iter().chain(config.kinds.services.second_network);
    let mut cluster_dns = components.dns.map(|it| it.read(service_ranges.collect(), &mut errors));
    let dns_address = config.kinds.services.network.address(DNS_ADDRESS);
    let proxy = components.proxy.as_ref().filter(|it| it.is_required || has_node);
    let proxy =
        proxy.and_then(|it| service_proxy::configuration(it.config, &pod_networks, &names, &mut errors));
    errors.check()?;
    let scheduler = scheduling.map(|options| (options, RunningFlag::new("scheduler")));
    if components.metrics.as_ref().is_some_and(|it| it.is_required || has_node || simulated.is_some()) {
        config.serving.gates.push(apiserver::resource_metrics::GATE.to_owned());
    }
    // names are for pods: without a node no one looks them up
    cluster_dns = cluster_dns.filter(|_| has_node);
    let (written, before_ready) = admin_kubeconfig(args, mode, own.as_ref(), &config, &data_dir);
    let deployment = Deployment {
        before_ready,
        components: {
            let flags = loops.iter().map(|(_, flag)| flag).chain(scheduler.iter().map(|(_, flag)| flag));
            // with a lease, the holder may be another server
            flags.filter(|_| lease.is_none()).map(RunningFlag::health).collect()
        },
        ephemeral_signer: data_dir.is_memory() && config.identity.service_accounts.signer.is_none(),
        ephemeral_authorities: data_dir.is_memory() && own.is_some(),
        cluster_files: own.iter().flat_map(snapshot_files).filter(|_| data_dir.is_memory()).collect(),
        clock,
        clusters,
        faults,
    };
    let metrics = config.observe.metrics.clone();
    let location = match restored {
        Some((revision, records)) => StoreChoice::Restored { revision, records },
        None => {
            data_dir.directory().map_or(StoreChoice::Memory, |it| StoreChoice::Directory(store_directory(it)))
        }
    };
    let server = start_server(config, mode, location, own.as_ref(), deployment, &world).await?;
    let mut instrument_tasks = instruments.as_ref().map(|it| it.observe(&server, &world)).unwrap_or_default();
    let users = instruments.as_ref().map(|it| it.users.clone());
    let (local, mut running) = (InMemoryServer::new(&server, &world, instruments), Vec::new());
    if let Some((options, flag)) = scheduler {
        let lease = lease
            .clone()
            .map(|lease| leader::Options { name: format!("{}-scheduler", names.prefix), ..lease });
        for (lease, component) in candidates_of(lease.as_ref(), candidates, "scheduler") {
            let election = (lease, local.instrument(&component));
            let (options, flag, metrics) = (options.clone(), flag.clone(), metrics.clone());
            running.push(scheduler::start(&local, &names, options, election, flag, metrics, &world));
        }
    }
    if let Some((options, flag)) = loops {
        for (lease, component) in candidates_of(lease.as_ref(), candidates, "controller-manager") {
            let election = (lease, local.instrument(&component));
            let (options, flag, metrics) = (options.clone(), flag.clone(), metrics.clone());
            running.push(control_loops::start(&local, &names, options, election, flag, metrics, &world));
        }
    }
    let mut dns_service = None;
    if let Some(options) = cluster_dns {
        let (component, service) =
            dns::start(&local, &names, options, dns_address, metrics.clone(), &world).await;
        running.push(component);
        dns_service = Some(service);
    }
    if let Some((files, endpoint)) = &node.agent {
        let config = components.agent.as_ref().and_then(|it| it.config);
        running.push(node_agent::start(
            &local,
            &names,
            files,
            (config, endpoint),
            dns_service.as_ref(),
            metrics.clone(),
            &world,
        ));
        if components.network {
            running.push(pod_network::start(&local, endpoint, metrics.clone(), &world));
        }
    }
    if let Some(simulated) = simulated {
        running.push(simulated_nodes::start(&local, &names, simulated, metrics.clone(), &world));
    }
    if let Some(configuration) = proxy {
        running.push(service_proxy::start(&local, &names, configuration, metrics, &world));
    }
    if let Some(work) = users.and_then(|it| it.work(in_memory_admin(&local))) {
        instrument_tasks.spawn(work);
    }
    let shared_keys = match is_shared {
        true => shared_keys(data_dir.directory().filter(|_| own.is_some())),
        false => String::new(),
    };
    let messages = format!("{shared_keys}{}", node.message);
    Ok(RunningCluster {
        server,
        running,
        kubeconfig: written,
        messages,
        _data_dir: data_dir,
        _instrument_tasks: instrument_tasks,
        began,
    })
}

/// The lease and the name of each process that would run a component: one, unless a test lets several compete.
fn candidates_of(
    lease: Option<&leader::Options>,
    candidates: u32,
    component: &str,
) -> Vec<(Option<leader::Options>, String)> {
    let Some(lease) = lease.filter(|_| candidates > 0) else {
        return vec![(lease.cloned(), component.to_owned())];
    };
    let candidate = |number| {
        let name = format!("{component}-{number}");
        let identity = format!("{}-{name}", lease.identity);
        (Some(leader::Options { identity, ..lease.clone() }), name)
    };
    (0..candidates).map(candidate).collect()
}

/// Keys and certificates for the snapshots of a cluster without files.
fn snapshot_files(pki: &Pki) -> impl Iterator<Item = (String, Bytes)> {
    pki.files.iter().map(|(name, text)| (key_of_file(name), Bytes::from(text.clone())))
}

/// A control plane that runs.
pub struct RunningCluster {
    server: Server,
    running: Vec<InProcess>,
    kubeconfig: Option<Kubeconfig>,
    /// Lines for the user.
    messages: String,
    /// Locked until the end.
    _data_dir: DataDir,
    /// The observer and the users of a test.
    _instrument_tasks: JoinSet<()>,
    began: RealInstant,
}

impl RunningCluster {
    /// The file with the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_ref().map(|it| &*it.path)
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Waits until the server has ended by itself.
    pub async fn ended(&self) {
        self.server.ended().await;
    }

    pub async fn stop(self) {
        for component in self.running {
            component.stop().await;
        }
        self.server.shutdown().await;
    }

    /// Greets the user, and runs until a signal arrives.
    async fn run(self, mut signals: Signals) -> anyhow::Result<()> {
        let started_ms = self.began.elapsed().as_millis();
        let message = greeting(&self.server, self.kubeconfig.as_ref(), &self.messages, started_ms);
        // a closed terminal is not an error
        let _ = stdout().write_all(message.as_bytes());
        let _ = stdout().flush();
        if let Some(supervisor) = node_agent::supervisor() {
            (supervisor.notify)("READY=1");
        }
        tokio::select! {
            () = signals.next() => {}
            () = self.ended() => anyhow::bail!("the server stopped unexpectedly: see the log, or run with -v for details"),
        }
        let _ = writeln!(stdout(), "stopping; press Ctrl-C again to exit at once");
        let temporary = self.kubeconfig.as_ref().filter(|it| it.temporary).map(|it| it.path.clone());
        tokio::select! {
            () = self.stop() => Ok(()),
            () = signals.next() => {
                if let Some(path) = temporary {
                    let _ = std::fs::remove_file(path);
                }
                crate::log_output::flush();
                std::process::exit(130)
            }
        }
    }
}

/// The node of this machine: its files and the runtime's endpoint, and a line for the user.
#[derive(Default)]
struct NodePlan {
    agent: Option<(NodeFiles, String)>,
    message: String,
}

async fn prepare_node(
    agent: &AgentArgs<'_>,
    config: &ServerConfig,
    own: Option<&Pki>,
    data_dir: &DataDir,
    world: &World,
) -> anyhow::Result<NodePlan> {
    let directory = data_dir.directory();
    let (directory, endpoint) = match (directory, node_agent::readiness(directory, agent.runtime).await) {
        (Some(directory), Readiness::Ready { endpoint }) => (directory, endpoint),
        (_, Readiness::Missing(why)) if agent.is_required => anyhow::bail!("{why}"),
        (_, Readiness::Missing(why)) => return Ok(NodePlan { agent: None, message: format!("{why}\n") }),
        (None, Readiness::Ready { .. }) => return Ok(NodePlan::default()),
    };
    let mut authorities = own.map(|pki| pki.ca.certificate.clone()).unwrap_or_default();
    authorities.push_str(config.authorities.clients.as_deref().unwrap_or_default());
    let trusted = own.map(|pki| config.certificates.kubeconfig_authorities(&pki.ca.certificate));
    let files = NodeFiles::prepare(directory, trusted, &authorities, world)?;
    let message = match endpoint.as_str() {
        embedded_runtime::ENDPOINT => "Pods run on this machine, by the embedded runtime.\n".to_owned(),
        endpoint => format!("Pods run on this machine, by the runtime at {endpoint}.\n"),
    };
    Ok(NodePlan { agent: Some((files, endpoint)), message })
}

/// The administrator's kubeconfig, if any, and the hook that writes it before the server is ready, so that scripts that
/// wait for the server find it.
fn admin_kubeconfig(
    args: &Apiserver,
    mode: DeploymentMode,
    own: Option<&Pki>,
    config: &ServerConfig,
    data_dir: &DataDir,
) -> (Option<Kubeconfig>, Option<BeforeReady>) {
    // the administrator's credentials work only if the cluster's own authority is trusted
    let own = own.filter(|_| config.trusts_own_clients(mode));
    let file = own.and_then(|_| data_dir.kubeconfig(args));
    let (Some(pki), Some(file)) = (own, file) else { return (None, None) };
    let trusted_ca = config.certificates.kubeconfig_authorities(&pki.ca.certificate);
    let (admin, token, path) = (pki.admin.clone(), pki.admin_token.clone(), file.path.clone());
    let before_ready: BeforeReady = Box::new(move |address| {
        let text = kubeconfig::render(address, &trusted_ca, &token, &admin);
        kubeconfig::write(&path, &text).map_err(|error| format!("{error:#}"))
    });
    (Some(file), Some(before_ready))
}

/// Loads the cluster's certificates and keys, or creates them.
async fn cluster_pki(
    args: &Apiserver,
    config: &ServerConfig,
    data_dir: &DataDir,
    (token, files): (Option<&str>, Vec<(String, String)>),
    world: &World,
) -> anyhow::Result<Pki> {
    let mut others = args.tls_san.clone();
    others.push(config.kinds.services.network.first().to_string());
    // where other machines reach the server
    others.extend(config.reached_at.map(|ip| ip.to_string()));
    let hosts = Hosts::new(args.bind_address, host_name().as_deref(), &others, &config.names)?;
    let directory = data_dir.directory().map(|it| it.join("pki"));
    let pki = match (&directory, &config.etcd) {
        (directory, Some(etcd)) if directory.is_some() || token.is_some() => {
            pki::shared(directory.as_deref(), &hosts, token, etcd, world).await?
        }
        (Some(directory), _) => Pki::in_directory(directory, &hosts, world)?,
        (None, _) => Pki::in_memory(files, &hosts, world)?,
    };
    if let Some((certificate, key)) =
        args.tls.cert_dir_files().filter(|_| config.certificates.default_pair.is_none())
    {
        let folder = certificate.parent().unwrap_or(Path::new("."));
        let put = files::private_directory(folder)
            .and_then(|()| files::replace(&key, pki.apiserver.key.as_bytes()))
            .and_then(|()| files::replace(&certificate, pki.apiserver.certificate.as_bytes()));
        put.with_context(|| format!("--cert-dir: cannot write to {}", folder.display()))?;
    }
    Ok(pki)
}

/// The notice about keys that servers of one etcd must share.
const SHARED_KEYS: &str = "\
Other servers on this etcd must use the same keys: of service accounts (--service-account-signing-key-file,
--service-account-key-file), of clients (--client-ca-file) and front proxies (--requestheader-client-ca-file,
--proxy-client-cert-file), and --encryption-provider-config.
";

/// How other servers on the etcd get the keys of this one.
fn shared_keys(own: Option<&Path>) -> String {
    let Some(directory) = own else { return SHARED_KEYS.to_owned() };
    let token = shell_quote(&directory.join("pki/cluster.token"));
    format!(
        "Other servers on this etcd take its keys from there, with --cluster-token-file and a copy of\n{token}. \
         They need the same --encryption-provider-config.\n"
    )
}

fn greeting(server: &Server, written: Option<&Kubeconfig>, messages: &str, started_ms: u128) -> String {
    let url = kubeconfig::url(server.local_addr());
    let mut text = format!("{} is ready on {url} ({started_ms} ms)\n", cli::version());
    if let Some(written) = written {
        let path = shell_quote(&written.path);
        // writing to a string cannot fail
        let _ = write!(text, "\n    export KUBECONFIG={path}\n    kubectl get namespaces\n\n");
    }
    if written.is_some_and(|it| it.temporary) {
        text.push_str("All state is in memory; the kubeconfig is removed at exit.\n");
    }
    text.push_str(messages);
    text.push_str("Stop with Ctrl-C.\n");
    text
}

/// Quotes a path for a shell.
fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-+@%:,".contains(&c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Starts the API server, with its objects in an etcd if it has one, or else in `store`.
async fn start_server(
    config: ServerConfig,
    mode: DeploymentMode,
    store: StoreChoice,
    own: Option<&Pki>,
    deployment: Deployment,
    world: &World,
) -> anyhow::Result<Server> {
    let trusts_own_clients = config.trusts_own_clients(mode);
    let Authorities { clients, client_file, proxies, proxy_file } = config.authorities;
    let clients = TrustedCas::new(mode, own.map(|pki| &pki.ca), clients, client_file);
    let proxies = TrustedCas::new(mode, own.map(|pki| &pki.front_proxy_ca), proxies, proxy_file);
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
    let tls = config.certificates.apply_to(tls);
    let mut identity = config.identity;
    let accounts = &mut identity.service_accounts;
    if let (None, Some(pki)) = (&accounts.signer, own) {
        let signer = Signer::from_pem(pki.service_account_key.as_bytes());
        accounts.signer = Some(signer.context("cannot read the service account key in the data directory")?);
    }
    if let Some(pki) = own.filter(|_| trusts_own_clients) {
        let administrator = User { groups: vec![auth::MASTERS.to_owned()], ..User::named(ADMIN) };
        identity.tokens.insert(&pki.admin_token, administrator);
    }
    let mut aggregation = config.aggregation;
    if let (None, Some(pki)) = (&aggregation.identity, own) {
        let pair = &pki.front_proxy_client;
        aggregation.identity = Some((text(&pair.certificate), text(&pair.key)));
    }
    let mut node_proxy = config.node_proxy;
    if let (None, Some(pki)) = (&node_proxy.identity, own) {
        node_proxy.identity = Some((text(&pki.admin.certificate), text(&pki.admin.key)));
    }
    let listen = ListenConfig {
        address: config.address,
        tls,
        limits: config.connections,
        share_port: config.share_port,
        world: world.clone(),
    };
    let at_etcd = config.etcd.is_some();
    let config = Config {
        store: config.etcd.map_or(store, |etcd| StoreChoice::Etcd(Box::new(etcd))),
        encryption: config.sealing,
        listen,
        world: world.clone(),
        names: config.names,
        event_ttl: config.event_ttl,
        delete_workers: config.delete_workers,
        authentication: identity,
        authorization: config.permission,
        admission: config.admission,
        audit: config.audit,
        serving: config.serving,
        cache: Default::default(),
        limits: config.limits,
        fairness: config.fairness,
        kinds: config.kinds,
        advertise_address: config.reached_at,
        advertise: config.found,
        egress: config.egress,
        aggregation,
        node_proxy,
        gates: config.gates,
        cors: config.browsers,
        observability: config.observe,
        deployment,
    };
    Server::start(config).await.map_err(|error| with_advice(error, at_etcd))
}

/// The trusted client authorities: all-in-one, the cluster's own and the given ones; standalone, the given ones if
/// there are any.
struct TrustedCas {
    pem: Option<Vec<u8>>,
    file: Option<AuthorityFile>,
}

impl TrustedCas {
    fn new(
        mode: DeploymentMode,
        own: Option<&CertifiedKey>,
        given: Option<String>,
        file: Option<PathBuf>,
    ) -> Self {
        let own = own.filter(|_| mode != DeploymentMode::Standalone || given.is_none());
        let mut besides = own.map(|pair| pair.certificate.trim_end().to_owned()).unwrap_or_default();
        if !besides.is_empty() {
            besides.push('\n');
        }
        let pem = format!("{besides}{}", given.unwrap_or_default()).into_bytes();
        let file = file.map(|path| AuthorityFile { path, besides: besides.into_bytes() });
        TrustedCas { pem: (!pem.is_empty()).then_some(pem), file }
    }
}

fn with_advice(error: StartError, at_etcd: bool) -> anyhow::Error {
    let advice = match &error {
        StartError::Serve(ServeError::AddressInUse(_)) => {
            "stop the process that uses it, or choose another port with --secure-port"
        }
        StartError::Serve(ServeError::Bind { .. }) => "choose another with --bind-address or --secure-port",
        StartError::Serve(ServeError::Tls { .. }) => {
            "check the --tls flags, or restore or remove the certificates in the data directory"
        }
        StartError::Store(_) if at_etcd => "check --etcd-servers and the other --etcd flags",
        StartError::Unreadable(_) if at_etcd => {
            "repair or delete it in etcd, or choose another --etcd-prefix"
        }
        StartError::Store(_) | StartError::Unreadable(_) => {
            "restore the data directory from a backup, or choose another with --data-dir"
        }
        StartError::Decrypt(_) => {
            "check --encryption-provider-config: it must keep the key that encrypted the object"
        }
        StartError::Plugins(_) => "check --enable-admission-plugins and --disable-admission-plugins",
        StartError::Audit(_) => "check --audit-log-path and --audit-webhook-config-file",
        StartError::System { .. } => "run with -v for details in the log",
        // these texts contain the advice
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
        assert_eq!(shell_quote(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(shell_quote(Path::new("/a b")), "'/a b'");
        assert_eq!(shell_quote(Path::new("/a'b")), r"'/a'\''b'");
    }

    #[tokio::test]
    async fn a_server_starts_says_where_and_stops() {
        let world = crate::world::real().unwrap();
        let hosts = Hosts::new([127, 0, 0, 1].into(), None, &[], &Names::kubernetes()).unwrap();
        let pki = Pki::in_memory(Vec::new(), &hosts, &world).unwrap();
        let config = |port: u16| {
            let line = format!("pintle up --secure-port {port}");
            let read = cli::Cli::read(line.split(' ').map(Into::into), crate::config_errors).unwrap();
            let cli::Command::Up(up) = read.command else { panic!("not up") };
            ServerConfig::read(&up.server, TOGETHER).unwrap()
        };
        const TOGETHER: DeploymentMode = DeploymentMode::AllInOne { runs_controllers: false };
        let server =
            start_server(config(0), TOGETHER, StoreChoice::Memory, Some(&pki), Deployment::default(), &world)
                .await
                .unwrap();
        assert_ne!(server.local_addr().port(), 0);
        let taken = start_server(
            config(server.local_addr().port()),
            TOGETHER,
            StoreChoice::Memory,
            Some(&pki),
            Deployment::default(),
            &world,
        );
        let taken = taken.await.err().unwrap().to_string();
        assert!(taken.contains("already in use") && taken.contains("--secure-port"), "{taken}");
        let written = Kubeconfig { path: "/tmp/k".into(), temporary: false };
        let message = greeting(&server, Some(&written), "", 7);
        assert!(
            message.contains(&kubeconfig::url(server.local_addr())) && message.contains("KUBECONFIG=/tmp/k"),
            "{message}"
        );
        server.shutdown().await;
    }
}
