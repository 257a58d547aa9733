//! A cluster in memory on a thread of its own, beside others in the process; and its forks, for `/simulation/clusters`.
//!
//! Each has its own runtime, world, store, caches, certificates, metrics and port. The log is that of the process.

use crate::cli::Up;
use crate::instruments::Instruments;
use crate::logs::Verbosity;
use crate::snapshot::Fork;
use crate::up::{self, ClusterContext};
use crate::world::{self, ClusterWorld};
use crate::{kubeconfig, threads};
use anyhow::Context as _;
use apiserver::deployment::{ClusterHost, ForkInfo};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Revision, SnapshotRecord};
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
    pub(crate) async fn start(
        args: &Up,
        fork: Option<Fork>,
        verbosity: Verbosity,
        instruments: Option<Instruments>,
    ) -> anyhow::Result<Self> {
        let mut args = args.clone();
        args.server.secure_port = 0;
        args.server.write_kubeconfig = None;
        args.server.store.data_dir = None;
        args.server.store.ephemeral = true;
        let ((ready, started), (stop, stopping)) = (oneshot::channel(), oneshot::channel());
        let (end, ended) = oneshot::channel();
        let run = move || {
            // an unused result: the starter is gone
            let begin = (fork, instruments);
            if let Err(why) = run(&args, begin, verbosity, stopping, |address| drop(ready.send(address))) {
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
    (fork, instruments): (Option<Fork>, Option<Instruments>),
    verbosity: Verbosity,
    stopping: oneshot::Receiver<()>,
    report: impl FnOnce(anyhow::Result<ClusterAddress>),
) -> anyhow::Result<()> {
    let start = fork.as_ref().map(|it| it.taken_at).or(instruments.as_ref().and_then(|it| it.start));
    let is_alone = instruments.as_ref().is_some_and(|it| it.users.are_present());
    let (runtime, world, clock) = match world::of_cluster(&args.clock, start)? {
        ClusterWorld::Real(world) => (threads::of_cluster()?, world, None),
        ClusterWorld::Manual(clock) => (threads::paused(&clock, is_alone)?, clock.clone() as _, Some(clock)),
    };
    if let Some(clock) = &clock
        && instruments.as_ref().is_some_and(|it| it.varies_turns)
    {
        clock.vary_turns();
    }
    runtime.block_on(async {
        let forks = Forks::of(args, &verbosity);
        let clusters = forks.clone().map(|it| it as _);
        let context = ClusterContext { world, verbosity, clock, fork, clusters, instruments };
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
        if let Some(forks) = forks {
            forks.stop_all().await;
        }
        Ok(())
    })
}

fn address(server: SocketAddr, kubeconfig_file: Option<&Path>) -> anyhow::Result<ClusterAddress> {
    let kubeconfig_file = kubeconfig_file.context("the cluster has no authority of its own")?.to_owned();
    let kubeconfig = std::fs::read_to_string(&kubeconfig_file)
        .with_context(|| format!("cannot read {}", kubeconfig_file.display()))?;
    Ok(ClusterAddress { url: kubeconfig::url(server), kubeconfig, kubeconfig_file })
}

/// The forks of one cluster.
pub struct Forks {
    args: Up,
    verbosity: Verbosity,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many were made.
    count: u64,
    /// A fork that is starting has a name and no thread.
    running: BTreeMap<String, Option<ClusterThread>>,
}

/// The most forks of a cluster that run at once.
const MAX_FORKS: usize = 256;

impl Forks {
    /// Those of a cluster in memory: it is one for tests, and small. Others have none.
    pub fn of(args: &Up, verbosity: &Verbosity) -> Option<Arc<Self>> {
        let is_in_memory = args.server.store.ephemeral && args.server.etcd.etcd_servers.is_empty();
        let forks = || Forks { args: args.clone(), verbosity: verbosity.clone(), state: Mutex::default() };
        is_in_memory.then(|| Arc::new(forks()))
    }

    /// Stops all of them.
    pub async fn stop_all(&self) {
        let running = std::mem::take(&mut self.state.lock().running);
        for thread in running.into_values().flatten() {
            thread.stop().await;
        }
    }

    fn reserve_name(&self) -> Result<String, String> {
        let mut state = self.state.lock();
        if state.running.len() >= MAX_FORKS {
            return Err(format!("{MAX_FORKS} forks run: stop some first"));
        }
        state.count += 1;
        let name = format!("fork-{}", state.count);
        state.running.insert(name.clone(), None);
        Ok(name)
    }

    async fn start(
        &self,
        name: &str,
        (revision, taken_at, records): (Revision, i64, Vec<SnapshotRecord>),
    ) -> anyhow::Result<ForkInfo> {
        let fork = Fork::new(revision, taken_at, records)?;
        let mut args = self.args.clone();
        args.from = None;
        let thread = ClusterThread::start(&args, Some(fork), self.verbosity.clone(), None).await?;
        let info = info(name, &thread);
        self.state.lock().running.insert(name.to_owned(), Some(thread));
        Ok(info)
    }
}

fn info(name: &str, thread: &ClusterThread) -> ForkInfo {
    let address = &thread.address;
    ForkInfo { name: name.to_owned(), server: address.url.clone(), kubeconfig: address.kubeconfig.clone() }
}

impl ClusterHost for Forks {
    fn fork(
        &self,
        snapshot: (Revision, i64, Vec<SnapshotRecord>),
    ) -> BoxFuture<'_, Result<ForkInfo, String>> {
        Box::pin(async {
            let name = self.reserve_name()?;
            self.start(&name, snapshot).await.map_err(|why| {
                self.state.lock().running.remove(&name);
                format!("{why:#}")
            })
        })
    }

    fn list(&self) -> Vec<ForkInfo> {
        let state = self.state.lock();
        let running = state.running.iter().filter_map(|(name, it)| Some((name, it.as_ref()?)));
        running.map(|(name, thread)| info(name, thread)).collect()
    }

    fn stop(&self, name: &str) -> BoxFuture<'_, bool> {
        let thread = {
            let mut state = self.state.lock();
            let is_running = state.running.get(name).is_some_and(Option::is_some);
            if is_running { state.running.remove(name).flatten() } else { None }
        };
        Box::pin(async {
            match thread {
                Some(thread) => {
                    thread.stop().await;
                    true
                }
                None => false,
            }
        })
    }
}
