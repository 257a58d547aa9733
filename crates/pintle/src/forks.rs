//! Forks of a cluster in the same process, for `/simulation/clusters`.

use crate::cli::Up;
use crate::cluster_thread::ClusterThread;
use crate::logs::Verbosity;
use crate::snapshot::Fork;
use apiserver::deployment::{ClusterHost, ForkInfo};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use store::{Revision, SnapshotRecord};

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
    pub fn new(args: &Up, verbosity: Verbosity) -> Self {
        Forks { args: args.clone(), verbosity, state: Mutex::default() }
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
        let thread = ClusterThread::start(&args, Some(fork), self.verbosity.clone()).await?;
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
