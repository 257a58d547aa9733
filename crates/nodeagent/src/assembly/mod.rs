//! Assembles the agent from its configuration, and runs it.
//!
//! | module | what it is |
//! |---|---|
//! | `cgroups` | cgroups of pods, and of what is held back from them |
//! | `connection` | the runtime's endpoint, and the client of the API server |
//! | `embedded_runtime` | the container runtime in this process |
//! | `housekeeping` | rotation of logs, eviction of pods, removal of images |
//! | `identity` | certificates: of the client, and of the HTTP API |
//! | `managers` | the resource managers |
//! | `node` | options of the node object and facts about the machine |
//! | `pod_cidr` | the range of pod addresses, for the runtime |
//! | `settings` | options that follow from flags and the configuration alone |
//! | `shutdown` | the graceful shutdown of the configuration |
//! | `parts`, `start_error` | what an agent is made from; errors of the start |
//! | `tracer` | the tracer of the configuration |
//! | `storage` | CSI drivers, their volumes, and the registration of plugins |
//! | `http` | the HTTP API: ports, certificates, pods, pages |
//!
//! The order is a list in [`run`]: client, node, managers, runtime, surroundings of pods, agent, HTTP API.

mod cgroups;
mod connection;
pub mod embedded_runtime;
mod housekeeping;
mod http;
mod identity;
mod managers;
mod node;
mod parts;
mod pod_cidr;
mod settings;
mod shutdown;
mod start_error;
mod storage;
mod tracer;

pub use connection::{
    ENDPOINTS as RUNTIME_ENDPOINTS, automatic_endpoint as automatic_runtime, endpoint as runtime_endpoint,
};
pub use http::StatsParts;
pub use identity::{ClientConnection, connect};
pub use node::thresholds as eviction_thresholds;
pub use parts::{Clients, Parts, Supervisor};
pub use tracer::tracer;

use crate::admission::apparmor;
use crate::admission::sysctls::SysctlAllowlist;
use crate::agent::{Agent, AgentOptions};
use crate::configuration::{Flags, StartError, check_swap};
use crate::filesystem::LinuxFilesystem;
use crate::iptables::{IptablesChains, IptablesProgram};
use crate::node::kernel_settings;
use crate::node::{LeaseRenewal, Machine, MachineAddresses, NodeReporter, ReporterDeps};
use crate::objects::cache::{CacheOptions, ObjectCache, Strategy};
use crate::pod::events::PodEvents;
use crate::pod::workers::PodWorkers;
use crate::pod_setup::MachineSetup;
use crate::pod_setup::runtime_classes::RuntimeClasses;
use crate::process_lock::ProcessLock;
use crate::resource_managers::devices::registration;
use crate::runtime::SharedRuntime;
use crate::stats::AgentMetrics;
use crate::stats::runtime_meter::RuntimeMeter;
use crate::volumes::VolumeManager;
use api::core::v1::{Node, Service};
use client::{InformerFactory, Metrics, Recorder};
use env::World;
use futures_util::FutureExt as _;
use housekeeping::HousekeepingParts;
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
/// How long the events of pods wait for those of others.
const EVENTS_WAIT: Duration = Duration::from_millis(250);
/// The places to which the machine swaps.
const SWAPS: &str = "/proc/swaps";
/// The settings of the kernel.
const PROC_SYS: &str = "/proc/sys";

/// Runs the agent until it is dropped.
pub async fn run(parts: Parts) -> Result<(), StartError> {
    let Parts { configuration, flags, names, world, .. } = &parts;
    for (field, why) in configuration.ineffective_fields() {
        tracing::warn!(field, why, "this field of the configuration has no effect");
    }
    for (flag, why) in flags.ineffective() {
        tracing::warn!(flag, why, "this flag has no effect");
    }
    let lock = acquire_lock(flags, world).await?;
    let counters = AgentMetrics::new(parts.registry.clone());
    let root_dir = PathBuf::from(flags.text("root-dir"));
    let metrics = Metrics::new(parts.registry.clone());
    let node_name = node::name(flags, &parts.hostname);
    let ClientConnection { clients, renewal } = identity::connect(&parts, &metrics, &node_name).await?;
    let Clients { api: client, events } = clients;
    let machine = Machine::read(Path::new("/"), &settings::machine_files(flags));
    let mut options = node::options(configuration, flags, &node_name, &parts.hostname, &root_dir);
    options.has_local_volumes = parts.has_local_volumes;
    check_swap(configuration, &std::fs::read_to_string(SWAPS).unwrap_or_default())?;
    let amounts = node::amounts(&machine, &options);
    let managers = managers::managers(&parts, &root_dir, &amounts.reserved, &counters)?;
    let providers =
        settings::credential_providers(flags, &root_dir, parts.home.as_deref(), world, counters.clone())?;
    let runtime = connection::runtime(&parts).await?;
    let runtime: SharedRuntime =
        Arc::new(RuntimeMeter { runtime, metrics: counters.clone(), world: world.clone() });
    let registrations = registration::bind(managers.devices.directory()).map_err(failed)?;
    let devices = managers.devices.clone();
    let factory = InformerFactory::new(client.clone());
    let node_informer = factory.informer_of::<Node>("", &format!("metadata.name={node_name}"));
    let recorder = Recorder::gathering(events, world.clone(), &names.agent, &node_name, EVENTS_WAIT);
    let recorder = Arc::new(recorder);
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
    let strategy = settings::strategy(configuration);
    let objects = Arc::new(ObjectCache::new(CacheOptions {
        client: client.clone(),
        world: world.clone(),
        strategy,
        services: Some(factory.informer::<Service>()),
        node: handle.node.clone(),
        ttl_annotation: names.well_known_under("node.alpha", "ttl"),
        listener: Arc::new(move |uid| {
            if let Some(workers) = changed.get() {
                workers.refresh(uid);
            }
        }),
    }));
    let volumes = VolumeManager::new(&root_dir, Arc::new(LinuxFilesystem), objects.clone(), world.clone());
    volumes.set_allocatable(amounts.allocatable.clone());
    if strategy != Strategy::Watch {
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
        flex_dir: Path::new(configuration.text(&["volumePluginDir"])),
        has_controlled_attach: options.has_controlled_attach,
        metrics: counters.clone(),
    });
    volumes.set_csi(storage.volumes.clone());
    volumes.set_flex(storage.flex.clone());
    let master = flags.text("master-service-namespace");
    let mut facts =
        node::facts(configuration, &root_dir, &machine, amounts.allocatable, master, Path::new(LOG_DIR));
    node::set_memory_behavior(&mut facts, configuration, &parts.gates, cgroups.files().is_v2());
    let setup = Arc::new(MachineSetup {
        runtime_classes: RuntimeClasses::new(parts.has_api().then(|| factory.clone())),
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
        pull_limits: settings::pull_limits(configuration),
        credential_providers: Some(providers),
        static_pods: settings::static_pods(configuration),
        metrics: counters.clone(),
        sysctls: SysctlAllowlist::new(configuration.texts("allowedUnsafeSysctls")),
        managers: managers.clone(),
        is_shutting_down: is_shutting_down.subscribe(),
        has_api: parts.has_api(),
        dead_containers: settings::dead_containers(flags),
    })
    .await
    .map_err(failed)?;
    if configuration.flag(&["runOnce"]) {
        return agent.run_once(world).await.map_err(failed);
    }
    let _ = workers.set(agent.workers.clone());
    handle.watch_lists(agent.listed.clone());
    storage.connect(&handle, agent.workers.clone());
    let housekeeping = housekeeping::task(HousekeepingParts {
        parts: &parts,
        runtime: runtime.clone(),
        workers: agent.workers.clone(),
        volumes: volumes.clone(),
        events,
        node_events: node_events.clone(),
        metrics: counters.clone(),
        node: handle.clone(),
        root_dir: &root_dir,
        log_dir: Path::new(LOG_DIR),
        cgroups: &cgroups,
        memory_cgroup: cgroups::notifying_cgroup(configuration, &cgroups),
    });
    let shutdown = shutdown::task(&parts, agent.workers.clone(), node_events, is_shutting_down);
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
        () = housekeeping => Ok(()),
        () = registration::serve(registrations, managers.devices.clone()) => Ok(()),
        () = storage.run(managers.devices.clone(), &stats_root, world, &handle) => Ok(()),
        () = lists => Ok(()),
        () = managers.run(world, period, &containers) => Ok(()),
        () = shutdown => Ok(()),
    }
}

/// Waits for the lock of `--lock-file`, if there is one.
async fn acquire_lock(flags: &Flags, world: &World) -> Result<Option<ProcessLock>, StartError> {
    let Some(path) = flags.given("lock-file") else { return Ok(None) };
    match ProcessLock::acquire(Path::new(path), world).await {
        Ok(lock) => Ok(Some(lock)),
        Err(why) => Err(failed(format!("unable to acquire file lock on {path:?}: {why}"))),
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
