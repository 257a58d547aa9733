//! `pintle network`: the pod network of this node as a separate process, against any API server.

use super::{cni_paths, runtime_directories};
use crate::node_agent::node_name;
use crate::options::{ConfigErrors, Network};
use crate::signals::Signals;
use anyhow::Context as _;
use client::metrics::Metrics;
use client::{Rate, transport};
use env::World;
use metrics::Registry;
use network::pod_network::node::{self, Options};
use nodeagent::assembly;
use nodeagent::runtime::cri::CniDirectories;
use std::sync::Arc;

/// One list and one watch are all its requests.
const RATE: Rate = Rate { per_second: 5.0, burst: 10 };

/// Runs until a signal arrives.
pub async fn network(args: Network, world: World) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    anyhow::ensure!(rustix::process::geteuid().is_root(), "links and routes take root");
    let mut errors = ConfigErrors::default();
    let target = args.target(&mut errors);
    errors.check()?;
    let target = target.context("no API server to call: set --kubeconfig")?;
    let directories = match (&args.cni_conf_dir, &args.cni_bin_dir) {
        (Some(configurations), Some(plugins)) => {
            CniDirectories { configurations: configurations.clone(), plugins: plugins.clone() }
        }
        _ => {
            let endpoint = args.container_runtime_endpoint.clone().or_else(assembly::runtime_endpoint);
            runtime_directories(endpoint.as_deref().unwrap_or(assembly::embedded_runtime::ENDPOINT)).await?
        }
    };
    let paths = cni_paths(directories, args.state_dir)?;
    let node = args.node_name.unwrap_or_else(node_name);
    let metrics = Metrics::new(Arc::new(Registry::new(metrics::Options::default())));
    let transport = transport::transport(&target, "pod-network", &metrics)?;
    let client = transport::client(&transport, RATE, &world);
    tracing::info!(node, server = target.url, "the pod network starts");
    tokio::select! {
        () = signals.next() => Ok(()),
        () = node::run(client, world, Options { node, paths }) => anyhow::bail!("the pod network ended"),
    }
}
