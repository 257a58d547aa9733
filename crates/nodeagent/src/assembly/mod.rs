//! Assembles the agent from its configuration, and runs it.
//!
//! | module | what it is |
//! |---|---|
//! | `cgroups` | cgroups of pods, and of what is held back from them |
//! | `connection` | the runtime's endpoint, and the client of the API server |
//! | `identity` | certificates: of the client, and of the HTTP API |
//! | `managers` | the resource managers |
//! | `node` | options of the node object and facts about the machine |
//! | `pod_cidr` | the range of pod addresses, for the runtime |
//! | `shutdown` | the graceful shutdown of the configuration |
//! | `parts`, `start_error` | what an agent is made from; errors of the start |
//! | `storage` | CSI drivers, their volumes, and the registration of plugins |
//! | `http` | the HTTP API: ports, certificates, pods, pages |
//!
//! The order is a list in [`run`]: runtime, client, node, surroundings of pods, agent, HTTP API.

mod cgroups;
mod connection;
mod http;
mod identity;
mod managers;
mod node;
mod parts;
mod pod_cidr;
mod shutdown;
mod start_error;
mod storage;

pub use connection::{Clients, endpoint as runtime_endpoint};
pub use http::StatsParts;
pub use identity::{ClientConnection, connect};
pub use parts::{Parts, Supervisor};

use crate::admission::apparmor;
use crate::admission::sysctls::SysctlAllowlist;
use crate::agent::{Agent, AgentOptions, StaticPodOptions};
use crate::configuration::{Configuration, Flags, StartError, check_swap};
use crate::eviction::machine::MachineObserver;
use crate::eviction::{Evictor, EvictorOptions};
use crate::filesystem::LinuxFilesystem;
use crate::images::collector::{ImageCollector, ImageThresholds};
use crate::images::docker_config::DockerConfig;
use crate::images::providers::{ProviderSet, config};
use crate::images::pull_rate::PullRate;
use crate::images::{CredentialProviders, PullLimits};
use crate::iptables::{IptablesChains, IptablesProgram};
use crate::logs::rotation::Rotation;
use crate::node::kernel_settings;
use crate::node::{LeaseRenewal, Machine, MachineAddresses, MachineFiles, NodeReporter, ReporterDeps};
use crate::objects::cache::{ObjectCache, Strategy};
use crate::pod::dead_containers::DeadContainerPolicy;
use crate::pod::events::PodEvents;
use crate::pod::workers::PodWorkers;
use crate::pod_setup::MachineSetup;
use crate::process_lock::ProcessLock;
use crate::resource_managers::devices::registration;
use crate::runtime::SharedRuntime;
use crate::stats::AgentMetrics;
use crate::stats::runtime_meter::RuntimeMeter;
use crate::volumes::VolumeManager;
use api::Quantity;
use api::core::v1::{Node, Service};
use client::{InformerFactory, Metrics, Recorder};
use env::World;
use futures_util::FutureExt as _;
use parking_lot::RwLock;
use start_error::failed;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::StorageParts;
use tokio::sync::watch;

/// Where runtimes write the logs of pods, and where links to them are.
const LOG_DIR: &str = "/var/log/pods";
const LOG_LINK_DIR: &str = "/var/log/containers";
/// The places to which the machine swaps.
const SWAPS: &str = "/proc/swaps";
/// The settings of the kernel.
const PROC_SYS: &str = "/proc/sys";

/// Runs the agent until it is dropped.
pub async fn run(parts: Parts) -> Result<(), StartError> {
    let Parts { configuration, flags, names, world, .. } = &parts;
    for field in configuration.ineffective_fields() {
        tracing::warn!(field, "this field of the configuration has no effect");
    }
    let lock = match flags.given("lock-file") {
        Some(path) => Some(
            ProcessLock::acquire(Path::new(path), world)
                .await
                .map_err(|why| failed(format!("unable to acquire file lock on {path:?}: {why}")))?,
        ),
        None => None,
    };
    let counters = AgentMetrics::new(parts.registry.clone());
    let root_dir = PathBuf::from(flags.text("root-dir"));
    let providers = credential_providers(flags, &root_dir, parts.home.as_deref(), world, counters.clone())?;
    let runtime = connection::runtime(configuration, flags).await?;
    let metrics = Metrics::new(parts.registry.clone());
    let runtime: SharedRuntime =
        Arc::new(RuntimeMeter { runtime, metrics: counters.clone(), world: world.clone() });
    let node_name = node::name(flags, &parts.hostname);
    let ClientConnection { clients, renewal } = identity::connect(&parts, &metrics, &node_name).await?;
    let Clients { api: client, events } = clients;
    let machine = Machine::read(Path::new("/"), &machine_files(flags));
    let options = node::options(configuration, flags, &node_name, &parts.hostname, &root_dir)?;
    check_swap(configuration, &std::fs::read_to_string(SWAPS).unwrap_or_default())?;
    let amounts = node::amounts(&machine, &options);
    let managers = managers::managers(&parts, &root_dir, &amounts.reserved, &counters)?;
    let registrations = registration::bind(managers.devices.directory()).map_err(failed)?;
    let devices = managers.devices.clone();
    let factory = InformerFactory::new(client.clone());
    let node_informer = factory.informer_of::<Node>("", &format!("metadata.name={node_name}"));
    let recorder = Arc::new(Recorder::of_host(events, world.clone(), &names.agent, &node_name));
    let events: Arc<dyn PodEvents> = recorder.clone();
    let is_shutting_down = watch::Sender::new(false);
    let (reporter, monitor, handle) = NodeReporter::new(ReporterDeps {
        options: options.clone(),
        client: client.clone(),
        world: world.clone(),
        informer: node_informer.clone(),
        runtime: runtime.clone(),
        machine: machine.clone(),
        lookup: Arc::new(MachineAddresses),
        events: node::events(recorder.clone(), node_name.clone()),
        devices: Arc::new(move || devices.amounts()),
        is_shutting_down: is_shutting_down.subscribe(),
    });
    reporter.publish_first();
    let changed = handle.clone();
    managers.devices.on_change(move || changed.refresh());
    let cgroups = Arc::new(cgroups::cgroups(&parts, &amounts)?);
    cgroups.set_up(&amounts.pods).map_err(|why| failed(format!("cannot make the cgroups of pods: {why}")))?;
    let node_events = node::events(recorder.clone(), node_name.clone());
    cgroups::enforce(configuration, &cgroups, &options.reservations, &node_events)?;
    // the machine of a server that runs an agent beside it is left as it is
    let is_protected = configuration.flag(&["protectKernelDefaults"]);
    if is_protected || parts.clients.is_none() {
        kernel_settings::apply(Path::new(PROC_SYS), is_protected).map_err(failed)?;
    }
    let workers: Arc<OnceLock<Arc<PodWorkers>>> = Arc::default();
    let changed = workers.clone();
    let objects = Arc::new(ObjectCache::new(
        client.clone(),
        world.clone(),
        strategy(configuration),
        Some(factory.informer::<Service>()),
        Arc::new(move |uid| {
            if let Some(workers) = changed.get() {
                workers.refresh(uid);
            }
        }),
    ));
    let volumes = VolumeManager::new(&root_dir, Arc::new(LinuxFilesystem), objects.clone(), world.clone());
    volumes.set_allocatable(amounts.allocatable.clone());
    if strategy(configuration) != Strategy::Watch {
        volumes.set_resync(configuration.duration(&["syncFrequency"]));
    }
    let storage = storage::storage(StorageParts {
        parts: &parts,
        client: &client,
        factory: &factory,
        node: node_informer,
        node_name: &node_name,
        events: recorder.clone(),
        objects: objects.clone(),
        root_dir: &root_dir,
        has_controlled_attach: options.has_controlled_attach,
        metrics: counters.clone(),
    });
    volumes.set_csi(storage.volumes.clone());
    let master = flags.text("master-service-namespace");
    let mut facts =
        node::facts(configuration, &root_dir, &machine, amounts.allocatable, master, Path::new(LOG_DIR));
    node::set_memory_behavior(&mut facts, configuration, &parts.gates, cgroups.files().is_v2());
    let setup = Arc::new(MachineSetup {
        client: client.clone(),
        world: world.clone(),
        facts: RwLock::new(Arc::new(facts)),
        host_ips: handle.host_ips.clone(),
        volumes: volumes.clone(),
        objects,
        cgroups: cgroups.clone(),
        events: events.clone(),
        metrics: counters.clone(),
        managers: managers.clone(),
        keeps_volumes: flags.text("keep-terminated-pod-volumes") == "true",
        log_link_dir: PathBuf::from(LOG_LINK_DIR),
        has_apparmor: apparmor::is_enabled(Path::new("/")),
    });
    let lease =
        LeaseRenewal::new(&client, world.clone(), &node_name, options.lease_duration, handle.node.clone());
    let agent = Agent::start(AgentOptions {
        node_name: node_name.clone(),
        world: world.clone(),
        client: client.clone(),
        factory,
        runtime: runtime.clone(),
        setup,
        events: events.clone(),
        node: handle.node.clone(),
        host_ips: handle.host_ips.clone(),
        pull_limits: pull_limits(configuration),
        credential_providers: Some(providers),
        static_pods: static_pods(configuration),
        metrics: counters.clone(),
        sysctls: SysctlAllowlist::new(configuration.texts("allowedUnsafeSysctls")),
        managers: managers.clone(),
        is_shutting_down: is_shutting_down.subscribe(),
        has_api: parts.has_api(),
        dead_containers: dead_containers(flags),
    })
    .await
    .map_err(failed)?;
    if configuration.flag(&["runOnce"]) {
        return agent.run_once(world).await.map_err(failed);
    }
    let _ = workers.set(agent.workers.clone());
    handle.watch_lists(agent.listed.clone());
    storage.connect(&handle, agent.workers.clone());
    let size: Quantity =
        configuration.text(&["containerLogMaxSize"]).parse().unwrap_or_else(|_| Quantity::new(10 << 20));
    let rotation = Rotation {
        runtime: runtime.clone(),
        world: world.clone(),
        log_dir: PathBuf::from(LOG_DIR),
        max_bytes: u64::try_from(size.whole()).unwrap_or(0),
        max_files: usize::try_from(configuration.int("containerLogMaxFiles")).unwrap_or(5),
    };
    let pressures = handle.clone();
    let evictor = Evictor::new(EvictorOptions {
        runtime: runtime.clone(),
        world: world.clone(),
        workers: agent.workers.clone(),
        volumes: volumes.clone(),
        events,
        metrics: counters.clone(),
        log_dir: PathBuf::from(LOG_DIR),
        machine: MachineObserver { proc: PathBuf::from("/proc"), root_dir: root_dir.clone() },
        thresholds: node::thresholds(configuration),
        transition_period: configuration.duration(&["evictionPressureTransitionPeriod"]),
        kept_images: vec![flags.text("pod-infra-container-image").to_owned()],
        max_grace: configuration.int("evictionMaxPodGracePeriod"),
        marks_disruptions: parts.gates.is_open("PodDisruptionConditions"),
        report: Box::new(move |it| pressures.set_pressures(it)),
    });
    let shutdown = shutdown::task(&parts, agent.workers.clone(), node_events, is_shutting_down);
    let images = ImageCollector::new(
        runtime.clone(),
        world.clone(),
        image_thresholds(configuration),
        vec![flags.text("pod-infra-container-image").to_owned()],
        node::events(recorder, node_name.clone()),
    );
    let has_api = parts.has_api();
    let stats_root = root_dir.clone();
    let stats = StatsParts {
        metrics: counters,
        machine,
        cgroups,
        volumes,
        log_dir: PathBuf::from(LOG_DIR),
        root_dir,
    };
    let period = configuration.duration(&["cpuManagerReconcilePeriod"]);
    let containers = runtime.clone();
    let lists = managers::serve_pod_resources(&parts, &managers, &stats.root_dir, &stats.metrics)?;
    let serving = identity::serving_certificate(&parts, &client, handle.node.clone())?;
    let (certificate, serving_renewal) = match serving {
        Some(serving) => (Some(serving.state), serving.renewal),
        None => (None, std::future::pending().boxed()),
    };
    let access = http::ServerAccess { client, certificate, host_ips: handle.host_ips.clone() };
    let http = http::serve(&parts, &agent, runtime, access, &node_name, stats);
    let node = async {
        match has_api {
            // without an API server there is no node object
            false => drop(tokio::join!(reporter.run_alone(), monitor.run())),
            true => drop(tokio::join!(reporter.run(), monitor.run(), lease.run())),
        }
    };
    let listed = agent.listed.clone();
    let health = async {
        match &parts.supervisor {
            Some(supervisor) => http::report_health(supervisor, listed, world).await,
            None => std::future::pending().await,
        }
    };
    let chains = chains(&parts);
    let cidr = pod_cidr::follow(&containers, configuration.text(&["podCIDR"]), handle.node.clone(), world);
    tokio::select! {
        () = health => Ok(()),
        () = chains => Ok(()),
        () = cidr => Ok(()),
        () = contention(lock, flags) => Err(failed("another process wants the lock file")),
        ended = http => ended,
        ended = renewal => ended,
        () = serving_renewal => Ok(()),
        () = node => Ok(()),
        () = rotation.run() => Ok(()),
        () = evictor.run() => Ok(()),
        () = registration::serve(registrations, managers.devices.clone()) => Ok(()),
        () = storage.run(managers.devices.clone(), &stats_root, world, &handle) => Ok(()),
        () = lists => Ok(()),
        () = managers.run(world, period, &containers) => Ok(()),
        () = images.run() => Ok(()),
        () = shutdown => Ok(()),
    }
}

/// Ends when another process waits for the lock, if the agent is configured to exit then.
async fn contention(lock: Option<ProcessLock>, flags: &Flags) {
    match lock {
        Some(mut lock) if flags.text("exit-on-lock-contention") == "true" => {
            if let Err(why) = lock.contention().await {
                tracing::warn!(%why, "the lock file is not watched");
                std::future::pending().await
            }
        }
        // held until the agent ends
        _lock => std::future::pending().await,
    }
}

/// Credentials of the node: its files, and the programs of the configuration.
fn credential_providers(
    flags: &Flags,
    root_dir: &Path,
    home: Option<&Path>,
    world: &World,
    metrics: AgentMetrics,
) -> Result<Arc<dyn CredentialProviders>, StartError> {
    let (file, directory) =
        (flags.text("image-credential-provider-config"), flags.text("image-credential-provider-bin-dir"));
    let loaded = match (file.is_empty(), directory.is_empty()) {
        (true, true) => Ok(Vec::new()),
        (true, false) => Err("credential provider config path is empty".to_owned()),
        _ => config::load(Path::new(file), Path::new(directory)),
    };
    match loaded {
        Ok(configs) => {
            let files = DockerConfig::new(root_dir, home);
            Ok(Arc::new(ProviderSet::new(configs, files, world.clone(), metrics)))
        }
        Err(why) => Err(StartError::new(format!("\"Failed to register CRI auth plugins\" err={why:?}"))),
    }
}

/// Makes chains of iptables. The machine of a server that runs an agent beside it is left as it is.
async fn chains(parts: &Parts) {
    let configuration = &parts.configuration;
    if !configuration.flag(&["makeIPTablesUtilChains"]) || parts.clients.is_some() {
        return std::future::pending().await;
    }
    let bit = |field| u32::try_from(configuration.int(field)).unwrap_or(0);
    let chains = IptablesChains {
        world: parts.world.clone(),
        masquerade_bit: bit("iptablesMasqueradeBit"),
        drop_bit: bit("iptablesDropBit"),
        programs: IptablesProgram::usual(),
    };
    chains.run().await;
}

/// How many ended containers are kept; a negative number is no limit.
fn dead_containers(flags: &Flags) -> DeadContainerPolicy {
    let limit = |flag| flags.text(flag).parse::<i64>().ok().and_then(|it| usize::try_from(it).ok());
    let min_age = schema::time::parse_duration(flags.text("minimum-container-ttl-duration")).unwrap_or(0);
    DeadContainerPolicy {
        per_container: limit("maximum-dead-containers-per-container"),
        total: limit("maximum-dead-containers"),
        min_age: Duration::from_nanos(u64::try_from(min_age).unwrap_or(0)),
    }
}

/// The files that identify the machine.
fn machine_files(flags: &Flags) -> MachineFiles {
    let paths = |flag| flags.text(flag).split(',').filter(|it| !it.is_empty()).map(PathBuf::from).collect();
    MachineFiles { machine_ids: paths("machine-id-file"), boot_ids: paths("boot-id-file") }
}

fn image_thresholds(configuration: &Configuration) -> ImageThresholds {
    let percent = |field| u64::try_from(configuration.int(field)).unwrap_or(100);
    ImageThresholds {
        high: percent("imageGCHighThresholdPercent"),
        low: percent("imageGCLowThresholdPercent"),
        min_age: configuration.duration(&["imageMinimumGCAge"]),
    }
}

fn pull_limits(configuration: &Configuration) -> PullLimits {
    PullLimits {
        parallel: configuration.flag(&["serializeImagePulls"]).then_some(1),
        rate: PullRate::new(configuration.int("registryPullQPS"), configuration.int("registryBurst")),
    }
}

fn strategy(configuration: &Configuration) -> Strategy {
    match configuration.text(&["configMapAndSecretChangeDetectionStrategy"]) {
        "Cache" => Strategy::Cache,
        "Get" => Strategy::Get,
        _ => Strategy::Watch,
    }
}

fn static_pods(configuration: &Configuration) -> StaticPodOptions {
    let some = |field: &str| Some(configuration.text(&[field]).to_owned()).filter(|it| !it.is_empty());
    let headers = configuration.at(&["staticPodURLHeader"]).and_then(schema::Value::as_map);
    let url_headers = headers.into_iter().flat_map(|map| map.iter()).flat_map(|(name, values)| {
        let values = values.as_list().unwrap_or(&[]).iter().filter_map(schema::Value::as_str);
        values.map(|value| (name.to_string(), value.to_owned())).collect::<Vec<_>>()
    });
    StaticPodOptions {
        path: some("staticPodPath").map(PathBuf::from),
        path_interval: configuration.duration(&["fileCheckFrequency"]),
        url: some("staticPodURL"),
        url_headers: url_headers.collect(),
        url_interval: configuration.duration(&["httpCheckFrequency"]),
    }
}
