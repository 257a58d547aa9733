//! API server and agent in this process, with a runtime whose containers are timers.

use super::measure::{Agent, Measurement, Plan, Usage};
use anyhow::Context;
use api::core::v1::Node;
use apiserver::serve::InMemory;
use apiserver::{Server, StoreChoice, admission};
use auth::User;
use bench::in_process::config;
use bench::process::{cpu_of_thread, memory_of};
use client::{Client, InformerFactory, Recorder};
use env::{Seeded, World};
use nodeagent::agent::{Agent as NodeAgent, AgentOptions};
use nodeagent::resource_managers::topology::{MachineTopology, TopologyPolicy};
use nodeagent::resource_managers::{ManagerOptions, ResourceManagers};
use nodeagent::runtime::simulated::SimulatedRuntime;
use simulation::pods::{PodRange, SimulatedPods};
use simulation::setup::SimulatedSetup;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;

const NODE: &str = "node";

fn user(name: &str, group: &str) -> User {
    User { groups: vec![group.to_owned()], ..User::named(name) }.authenticated()
}

pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let world: World = Seeded::new(1_700_000_000, 1);
    let threads = Builder::new_multi_thread().worker_threads(1).thread_name("server").enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let disable = ["ServiceAccount", "TaintNodesByCondition"].map(str::to_owned).to_vec();
    let admission = admission::Options { disable, ..admission::Options::default() };
    let store = StoreChoice::Directory(folder.path().join("store"));
    let server = threads.block_on(async {
        let config = config(store, Default::default(), admission, world.clone())?;
        anyhow::Ok(Server::start(config).await?)
    })?;
    let client = |user| Client::new(InMemory::new(server.service.clone(), user, "bench"));
    let memory = || memory_of(&[std::process::id()])?.context("memory is measured on Linux only");
    let before = memory()?;
    let (thread, ids) = std::sync::mpsc::channel();
    let agent_client = client(user("agent", auth::MASTERS));
    let agent_world = world.clone();
    let root_dir = tempfile::tempdir()?;
    let managers = managers(root_dir.path(), &world).map_err(anyhow::Error::msg)?;
    std::thread::Builder::new().name("agent".to_owned()).spawn(move || {
        let _ = thread.send(rustix::thread::gettid().as_raw_nonzero().get());
        let runtime = Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(run_agent(agent_client, agent_world, managers));
        }
    })?;
    let id = u32::try_from(ids.recv()?)?;
    let measurement = Measurement {
        client: client(user("admin", auth::MASTERS)),
        node: NODE.to_owned(),
        image: "x".to_owned(),
        alone: None,
        agent: Agent::new(move || {
            let cpu = cpu_of_thread(id).context("CPU time is measured on Linux only")?;
            Ok(Usage { cpu: Duration::from_micros(cpu), memory: memory()?.saturating_sub(before), all: None })
        }),
    };
    threads.block_on(measurement.run(plan))?;
    threads.block_on(server.shutdown());
    Ok(())
}

/// Managers that give containers nothing of their own.
fn managers(root_dir: &Path, world: &World) -> Result<Arc<ResourceManagers>, String> {
    ResourceManagers::new(ManagerOptions {
        root_dir: root_dir.to_owned(),
        machine: MachineTopology::read(Path::new("/")),
        reservation: Default::default(),
        cpu_policy: "none".to_owned(),
        cpu_options: Default::default(),
        reserved_cpus: Default::default(),
        memory_policy: None,
        reserved_memory: Vec::new(),
        topology_policy: TopologyPolicy::None,
        topology_options: Default::default(),
        is_pod_scope: false,
        call_timeout: Duration::from_secs(30),
        world: world.clone(),
        metrics: Default::default(),
    })
}

async fn run_agent(client: Client, world: World, managers: Arc<ResourceManagers>) {
    let mut node = Node::default();
    node.metadata.name = NODE.to_owned();
    let (_node, nodes) = watch::channel(Arc::new(node));
    let (_ips, host_ips) = watch::channel(vec!["10.0.0.1".to_owned()]);
    let events = Arc::new(Recorder::of_host(client.clone(), world.clone(), "kubelet", NODE));
    let started = NodeAgent::start(AgentOptions {
        node_name: NODE.to_owned(),
        world: world.clone(),
        client: client.clone(),
        factory: InformerFactory::new(client),
        runtime: Arc::new(SimulatedRuntime::new(world)),
        setup: Arc::new(SimulatedSetup(Arc::new(SimulatedPods::new(
            NODE,
            PodRange::of("", 0),
            Arc::default(),
        )))),
        events,
        node: nodes,
        host_ips,
        pull_limits: Default::default(),
        credential_providers: None,
        static_pods: Default::default(),
        sysctls: Default::default(),
        metrics: Default::default(),
        managers,
        is_shutting_down: watch::channel(false).1,
        has_api: true,
        dead_containers: Default::default(),
    })
    .await;
    let _agent = started.ok();
    std::future::pending::<()>().await;
}
