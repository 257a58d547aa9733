//! The HTTP API of simulated agents, for the API server in the same process: pods, logs, commands, usage.
//!
//! A connection is a pipe in memory; no node has a port. The agent's own handlers answer, with the simulated runtime.

use crate::agent::NodeAgent;
use crate::node::{SimulatedNode, SimulatedNodes};
use api::core::v1::Pod;
use bytes::Bytes;
use env::World;
use futures_util::FutureExt;
use nodeagent::configuration::Configuration;
use nodeagent::runtime::SharedRuntime;
use nodeagent::runtime::simulated::SimulatedRuntime;
use nodeagent::server::{
    AuthenticationOptions, AuthorizationOptions, MetricsPage, PodView, ServerDeps, serve_in_process,
};
use nodeagent::stats::AgentMetrics;
use outbound::InProcessServers;
use schema::Value;
use schema::time::format_time;
use serde_json::json;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::DuplexStream;

/// Bytes that wait in each direction of a connection.
const PIPE: usize = 64 << 10;

/// See the module.
pub struct AgentServers {
    nodes: SimulatedNodes,
    world: World,
    metrics: AgentMetrics,
    configuration: Arc<Configuration>,
}

impl fmt::Debug for AgentServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentServers").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl AgentServers {
    pub fn new(nodes: SimulatedNodes, metrics: AgentMetrics, world: World) -> Self {
        // files and profiles would be those of the machine
        let mut tree = Value::map();
        tree.set(&["enableSystemLogHandler"], false);
        tree.set(&["enableProfilingHandler"], false);
        tree.set(&["enableDebugFlagsHandler"], false);
        let configuration = Arc::new(Configuration::with_defaults(tree));
        AgentServers { nodes, world, metrics, configuration }
    }

    fn deps(&self, node: &Arc<SimulatedNode>) -> ServerDeps {
        let runtime: SharedRuntime = match node.agent() {
            Some(agent) => Arc::new(agent.runtime.clone()),
            // a node without pods has no containers
            None => Arc::new(SimulatedRuntime::new(self.world.clone())),
        };
        let (pods, world, owner) = (NodePods(node.clone()), self.world.clone(), node.clone());
        ServerDeps {
            world: self.world.clone(),
            node_name: node.name.clone(),
            configuration: self.configuration.clone(),
            runtime,
            pods: Arc::new(pods),
            reviews: None,
            authentication: AuthenticationOptions {
                anonymous: false,
                webhook: false,
                cache_ttl: Duration::ZERO,
            },
            authorization: AuthorizationOptions {
                always_allow: false,
                allowed_ttl: Duration::ZERO,
                denied_ttl: Duration::ZERO,
            },
            metrics: Arc::new(move |page| {
                let text = match page {
                    MetricsPage::Summary | MetricsPage::CpuAndMemory => summary(&owner, &world),
                    // what these pages have is measured on a machine
                    _ => String::new(),
                };
                async move { Ok(Bytes::from(text)) }.boxed()
            }),
            counters: self.metrics.clone(),
            has_checkpoints: false,
            checkpoint_dir: PathBuf::new(),
            idle_timeout: self.configuration.duration(&["streamingConnectionIdleTimeout"]),
            set_verbosity: Arc::new(|_| Err("the node is simulated".to_owned())),
            command_line: Vec::new(),
            tracer: None,
            log_directory: PathBuf::new(),
            local_volumes: None,
        }
    }
}

impl InProcessServers for AgentServers {
    fn contains(&self, host: &str) -> bool {
        self.nodes.get(host).is_some()
    }

    fn connect(&self, host: &str) -> Option<DuplexStream> {
        let node = self.nodes.get(host).filter(|it| !it.is_silent())?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        tokio::spawn(serve_in_process(theirs, self.deps(&node)));
        Some(ours)
    }
}

/// The pods of one node.
struct NodePods(Arc<SimulatedNode>);

impl PodView for NodePods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.agent().map(|it| it.current_pods()).unwrap_or_default()
    }
}

/// The page `/stats/summary`: the usage that the settings of the pods say.
fn summary(node: &SimulatedNode, world: &World) -> String {
    let now = format_time(env::unix_seconds(world));
    let part = |cpu_milli: i64, memory: i64| {
        json!({
            "cpu": {"time": now, "usageNanoCores": cpu_milli.saturating_mul(1_000_000)},
            "memory": {"time": now, "usageBytes": memory, "workingSetBytes": memory},
        })
    };
    let (mut cpu, mut memory, mut pods) = (0_i64, 0_i64, Vec::new());
    let agent = node.agent();
    for pod in agent.iter().flat_map(|it| it.current_pods()) {
        let running = pod.status.container_statuses.iter().filter(|it| it.state.running.is_some());
        let mut containers = Vec::new();
        for status in running {
            let usage = usage(agent.as_deref(), &pod, &status.name);
            (cpu, memory) = (cpu.saturating_add(usage.0), memory.saturating_add(usage.1));
            let mut container = part(usage.0, usage.1);
            container["name"] = json!(status.name);
            containers.push(container);
        }
        let meta = &pod.metadata;
        let reference = json!({"name": meta.name, "namespace": meta.namespace, "uid": meta.uid});
        pods.push(json!({"podRef": reference, "containers": containers}));
    }
    let mut of_node = part(cpu, memory);
    of_node["nodeName"] = json!(node.name);
    json!({"node": of_node, "pods": pods}).to_string()
}

/// CPU in thousandths and bytes of memory of a container.
fn usage(agent: Option<&NodeAgent>, pod: &Pod, container: &str) -> (i64, i64) {
    let usage = agent.map(|it| it.pods.behaviour(&pod.metadata.uid, container).usage).unwrap_or_default();
    (usage.cpu_milli, usage.memory_bytes)
}
