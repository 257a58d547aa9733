//! The workers of a loop: they take keys from its queue and reconcile them.

use crate::error::Failure;
use crate::metrics;
use crate::queue::Queue;
use env::Upkeep;
use std::fmt::Display;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The future of a running loop.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The reconciler of a loop.
pub trait Reconcile: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Display + Send + Sync + 'static;

    /// The name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Brings the observed state of an object closer to the desired one.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Action, Failure>> + Send;

    /// The name of the queue in metrics, if it differs.
    fn queue_name(&self) -> &'static str {
        self.name()
    }

    /// The failures in a row after which a key is dropped until it changes; `None` retries for ever.
    fn gives_up_after(&self) -> Option<u32> {
        None
    }
}

/// When to reconcile a key again, as in kube-rs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// When an object changes.
    AwaitChange,
    /// After this time at the latest.
    Requeue(Duration),
    /// The same for upkeep: a paused clock may put it off by whole periods.
    RequeueUpkeep(Duration, Upkeep),
}

/// The default number of keys that a loop reconciles at a time.
pub const WORKERS: usize = 5;

/// Reconciles keys until the queue is closed. A worker exists only while it has a key: an idle loop holds no more than its
/// queue.
pub async fn run<L: Reconcile>(reconciler: Arc<L>, queue: Queue<L::Key>, workers: usize) {
    metrics::show(reconciler.queue_name(), &queue);
    let keys = queue.clone();
    run_workers(keys, workers, Box::new(move |key| worker(reconciler.clone(), queue.clone(), key))).await;
}

/// Starts the worker of a key.
type Start<K> = Box<dyn Fn(K) -> Running + Send>;

/// Knows no reconciler and is boxed, so that it is compiled once for all loops with the same type of keys.
fn run_workers<K>(queue: Queue<K>, workers: usize, start: Start<K>) -> Running
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
{
    Box::pin(async move {
        let mut working: JoinSet<()> = JoinSet::new();
        loop {
            if working.len() >= workers.max(1) {
                working.join_next().await;
                continue;
            }
            tokio::select! {
                biased;
                Some(_) = working.join_next() => continue,
                key = queue.next() => match key {
                    Some(key) => working.spawn(start(key)),
                    None => break,
                },
            };
        }
        while working.join_next().await.is_some() {}
    })
}

/// Boxed, so that the code of spawning a task is compiled once for all loops.
fn worker<L: Reconcile>(reconciler: Arc<L>, queue: Queue<L::Key>, key: L::Key) -> Running {
    Box::pin(async move {
        let guard = KeyGuard { queue: &queue, key };
        let outcome = reconciler.reconcile(&guard.key).await;
        settle(&queue, &guard.key, reconciler.name(), reconciler.gives_up_after(), outcome);
    })
}

/// Forgets the failures of a key or adds it again, by the outcome of its reconciliation.
fn settle<K: Clone + Eq + Hash + Display>(
    queue: &Queue<K>,
    key: &K,
    name: &'static str,
    gives_up_after: Option<u32>,
    outcome: Result<Action, Failure>,
) {
    let why = match outcome {
        Ok(action) => {
            queue.forget(key);
            match action {
                Action::AwaitChange => {}
                Action::Requeue(pause) => queue.add_after(key.clone(), pause),
                Action::RequeueUpkeep(pause, upkeep) => queue.add_upkeep_after(key.clone(), pause, upkeep),
            }
            return;
        }
        Err(why) => why,
    };
    if gives_up_after.is_some_and(|most| queue.failures(key) >= most) {
        tracing::warn!(controller = name, %key, %why, "given up until it changes");
        queue.forget(key);
        return;
    }
    // a conflict: another writer was faster
    if why.is(409) {
        tracing::debug!(controller = name, %key, %why, "conflict, retried");
    } else {
        tracing::info!(controller = name, %key, %why, "failed, retried");
    }
    queue.add_failed(key.clone());
}

/// Marks a key as done when it is dropped; a key whose worker panicked is retried.
struct KeyGuard<'q, K: Clone + Eq + Hash> {
    queue: &'q Queue<K>,
    key: K,
}

impl<K: Clone + Eq + Hash> Drop for KeyGuard<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.add_failed(self.key.clone());
        }
        self.queue.done(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tokio::sync::watch;

    struct Flaky {
        seen: Mutex<Vec<u8>>,
        most: Option<u32>,
    }

    impl Reconcile for Flaky {
        type Key = u8;

        fn name(&self) -> &'static str {
            "flaky"
        }

        async fn reconcile(&self, key: &u8) -> Result<Action, Failure> {
            let mut seen = self.seen.lock();
            seen.push(*key);
            match seen.len() {
                1..4 => Err(Failure::Other("not yet".to_owned())),
                4 => Ok(Action::Requeue(Duration::from_secs(7))),
                _ => Ok(Action::AwaitChange),
            }
        }

        fn gives_up_after(&self) -> Option<u32> {
            self.most
        }
    }

    /// The number of reconciliations.
    struct Fragile(watch::Sender<u32>);

    impl Reconcile for Fragile {
        type Key = u8;

        fn name(&self) -> &'static str {
            "fragile"
        }

        async fn reconcile(&self, _: &u8) -> Result<Action, Failure> {
            self.0.send_modify(|looked| *looked += 1);
            assert!(*self.0.borrow() > 3, "on purpose");
            Ok(Action::AwaitChange)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_costs_neither_the_worker_nor_the_key() {
        let (fragile, queue) =
            (Arc::new(Fragile(watch::Sender::new(0))), Queue::new(&(env::Seeded::new(0, 0) as env::World)));
        let mut looked = fragile.0.subscribe();
        queue.add(1);
        let running = tokio::spawn(run(fragile, queue.clone(), 1));
        looked.wait_for(|times| *times == 4).await.unwrap();
        queue.add(1);
        looked.wait_for(|times| *times == 5).await.unwrap();
        queue.close();
        running.await.unwrap();
        assert_eq!(*looked.borrow(), 5);
    }

    async fn seen(most: Option<u32>) -> usize {
        let (flaky, queue) = (
            Arc::new(Flaky { seen: Mutex::default(), most }),
            Queue::new(&(env::Seeded::new(0, 0) as env::World)),
        );
        queue.add(1);
        let running = tokio::spawn(run(flaky.clone(), queue.clone(), 2));
        tokio::time::sleep(Duration::from_secs(100)).await;
        queue.close();
        running.await.unwrap();
        flaky.seen.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn failed_keys_are_retried_and_requeued_ones_come_again() {
        assert_eq!(seen(None).await, 5);
        assert_eq!(seen(Some(1)).await, 2);
    }
}
