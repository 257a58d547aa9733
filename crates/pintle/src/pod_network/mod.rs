//! The pod network of this machine's node: beside its agent in the process of the API server, or alone.
//!
//! Where it is a component, nodes get ranges of pod addresses, unless flags say otherwise the default ones.

mod command;

pub use command::network;

use crate::in_process::{Identity, InMemoryServer, InProcess, RunningFlag, Work, in_memory};
use crate::node_agent::{node_name, node_user};
use crate::options::Controllers;
use anyhow::Context as _;
use apimachinery::net::{Family, Network};
use client::Client;
use client::metrics::Metrics;
use env::World;
use metrics::Registry;
use network::pod_network::node::{self, CniPaths, Options};
use nodeagent::assembly::embedded_runtime;
use nodeagent::runtime::cri::{CniDirectories, CriRuntime};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The networks of all pods.
const CLUSTER_CIDR: &str = "10.244.0.0/16";
const CLUSTER_CIDR_V6: &str = "fd00:10:244::/48";

/// The folders of runtimes that do not tell theirs.
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const PLUGINS: &str = "/opt/cni/bin";

/// The folder of the plugin's record. It is empty after a restart of the machine, as pods have no links then.
pub const STATE: &str = "/run/pintle/pods";

const RUNTIME_TIMEOUT: Duration = Duration::from_secs(10);
/// The time before a start that failed is repeated.
const RETRY: Duration = Duration::from_secs(10);

/// The options of the control loops with ranges for nodes. Pods have the address families that services have.
pub fn with_node_ranges(args: &Controllers, services: &[Network]) -> Controllers {
    let mut args = args.clone();
    args.nodes.allocate_node_cidrs = true;
    if args.nodes.cluster_cidr.is_empty() {
        let ranges = services.iter().map(|network| match network.family() {
            Family::V4 => CLUSTER_CIDR,
            Family::V6 => CLUSTER_CIDR_V6,
        });
        args.nodes.cluster_cidr = ranges.collect::<Vec<_>>().join(",");
    }
    args
}

/// Keeps the pod network of a node, whose container runtime has this endpoint. The client needs to list and watch Nodes.
pub async fn run(client: Client, node: String, endpoint: &str, world: &World) {
    let paths = loop {
        let directories = runtime_directories(endpoint).await;
        match directories.and_then(|it| cni_paths(it, PathBuf::from(STATE))) {
            Ok(paths) => break paths,
            Err(why) => {
                tracing::warn!(why = format!("{why:#}"), "the pod network does not run; it starts again");
                env::sleep(world, RETRY).await;
            }
        }
    };
    node::run(client, world.clone(), Options { node, paths }).await;
}

/// The folders of the container runtime.
async fn runtime_directories(endpoint: &str) -> anyhow::Result<CniDirectories> {
    if endpoint == embedded_runtime::ENDPOINT {
        return Ok(usual_directories());
    }
    let runtime = CriRuntime::new(endpoint, None, Some(RUNTIME_TIMEOUT), None)?;
    let settings = runtime.settings().await.context("the container runtime does not answer")?;
    Ok(settings.cni.unwrap_or_else(usual_directories))
}

/// The folders of a runtime that does not tell its own.
pub fn usual_directories() -> CniDirectories {
    CniDirectories { configurations: PathBuf::from(CONFIGURATIONS), plugins: PathBuf::from(PLUGINS) }
}

pub fn cni_paths(directories: CniDirectories, state: PathBuf) -> anyhow::Result<CniPaths> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let CniDirectories { configurations, plugins } = directories;
    Ok(CniPaths { configurations, plugins, program, state })
}

struct NetworkWork {
    client: Client,
    endpoint: String,
    world: World,
}

impl Work for NetworkWork {
    async fn run(&self) {
        run(self.client.clone(), node_name(), &self.endpoint, &self.world).await;
    }
}

/// Starts it in the process of the API server, as the node's user.
pub fn start(
    server: &InMemoryServer<'_>,
    endpoint: &str,
    registry: Arc<Registry>,
    world: &World,
) -> InProcess {
    const NAME: &str = "pod-network";
    let client = in_memory(server, NAME, None)(node_user(&node_name()));
    let work = NetworkWork { client: client.clone(), endpoint: endpoint.to_owned(), world: world.clone() };
    let identity = Identity {
        client,
        name: NAME.to_owned(),
        lease: None,
        flag: RunningFlag::new("network"),
        metrics: Metrics::new(registry),
        world: world.clone(),
        instrument: None,
    };
    InProcess::start(identity, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn ranges(line: &str, services: &[&str]) -> (bool, String) {
        let cli = Cli::read(line.split(' ').map(Into::into), |_| Vec::new()).unwrap();
        let Command::Up(up) = cli.command else { panic!("not up") };
        let services: Vec<_> = services.iter().map(|it| Network::parse(it).unwrap()).collect();
        let nodes = with_node_ranges(&up.loops, &services).nodes;
        (nodes.allocate_node_cidrs, nodes.cluster_cidr)
    }

    #[test]
    fn nodes_get_ranges_of_the_families_of_services() {
        let own = |cidrs: &str| (true, cidrs.to_owned());
        assert_eq!(ranges("pintle up", &["10.0.0.0/16"]), own("10.244.0.0/16"));
        let both = ["10.0.0.0/16", "fd00:10:96::/112"];
        assert_eq!(ranges("pintle up", &both), own("10.244.0.0/16,fd00:10:244::/48"));
        assert_eq!(ranges("pintle up --cluster-cidr 10.1.0.0/16", &both), own("10.1.0.0/16"));
    }
}
