//! A cluster in memory on a thread of its own, beside others in the process.
//!
//! Each has its own runtime, world, store, caches, certificates, metrics and port. The log is that of the process.

use crate::cli::Up;
use crate::logs::Verbosity;
use crate::snapshot::Fork;
use crate::up::{self, ClusterContext};
use crate::world::{self, ClusterWorld};
use crate::{kubeconfig, threads};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// Deep recursion needs it in debug builds; unused stack takes no memory.
const STACK_BYTES: usize = 8 << 20;

/// Where a cluster is reached, and with which credentials.
#[derive(Debug, Clone)]
pub struct ClusterAddress {
    pub url: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: String,
    /// The file that has it while the cluster runs.
    pub kubeconfig_file: PathBuf,
}

/// A running cluster. It stops when this is dropped.
pub struct ClusterThread {
    pub address: ClusterAddress,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl ClusterThread {
    /// Starts a cluster with the flags of `up`, but in memory and on a port that the system chooses.
    pub(crate) async fn start(args: &Up, fork: Option<Fork>, verbosity: Verbosity) -> anyhow::Result<Self> {
        let mut args = args.clone();
        args.server.secure_port = 0;
        args.server.write_kubeconfig = None;
        args.server.store.data_dir = None;
        args.server.store.ephemeral = true;
        let ((ready, started), (stop, stopping)) = (oneshot::channel(), oneshot::channel());
        let (end, ended) = oneshot::channel();
        let run = move || {
            // an unused result: the starter is gone
            if let Err(why) = run(&args, fork, verbosity, stopping, |address| drop(ready.send(address))) {
                tracing::warn!(%why, "a cluster ended");
            }
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name("cluster".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(run).context("cannot start a thread")?;
        let address = started.await.context("the cluster ended at its start: see the log")??;
        Ok(ClusterThread { address, stop, ended })
    }

    /// Stops the cluster, and waits for its end.
    pub async fn stop(self) {
        // it may have ended by itself
        let _ = self.stop.send(());
        let _ = self.ended.await;
    }
}

fn run(
    args: &Up,
    fork: Option<Fork>,
    verbosity: Verbosity,
    stopping: oneshot::Receiver<()>,
    report: impl FnOnce(anyhow::Result<ClusterAddress>),
) -> anyhow::Result<()> {
    let (runtime, world, clock) = match world::of_cluster(&args.clock, fork.as_ref().map(|it| it.taken_at))? {
        ClusterWorld::Real(world) => (threads::single()?, world, None),
        ClusterWorld::Manual(clock) => (threads::paused(&clock)?, clock.clone() as _, Some(clock)),
    };
    runtime.block_on(async {
        let context = ClusterContext { world, verbosity, clock, fork };
        let cluster = match up::start(args, context).await {
            Ok(cluster) => cluster,
            Err(why) => {
                report(Err(why));
                return Ok(());
            }
        };
        report(address(cluster.local_addr(), cluster.kubeconfig()));
        tokio::select! {
            // also if the owner is gone
            _ = stopping => {}
            () = cluster.ended() => {}
        }
        cluster.stop().await;
        Ok(())
    })
}

fn address(server: SocketAddr, kubeconfig_file: Option<&Path>) -> anyhow::Result<ClusterAddress> {
    let kubeconfig_file = kubeconfig_file.context("the cluster has no authority of its own")?.to_owned();
    let kubeconfig = std::fs::read_to_string(&kubeconfig_file)
        .with_context(|| format!("cannot read {}", kubeconfig_file.display()))?;
    Ok(ClusterAddress { url: kubeconfig::url(server), kubeconfig, kubeconfig_file })
}
