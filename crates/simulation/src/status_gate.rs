//! The statuses of a node's pods on their way to the API: they wait while the node is silent.

use api::core::v1::{Pod, PodStatus};
use nodeagent::pod::worker::StatusSink;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A status that waits.
struct Waiting {
    pod: Arc<Pod>,
    status: PodStatus,
    is_finished: bool,
}

/// See the module.
pub struct StatusGate {
    statuses: Arc<dyn StatusSink>,
    /// The newest status of each pod, by uid, while the node is silent.
    waiting: Mutex<Option<BTreeMap<String, Waiting>>>,
}

impl StatusGate {
    pub fn new(statuses: Arc<dyn StatusSink>) -> Self {
        StatusGate { statuses, waiting: Mutex::default() }
    }

    /// Holds statuses back from now on.
    pub fn close(&self) {
        self.waiting.lock().get_or_insert_default();
    }

    /// Hands on the statuses that wait, and all that follow.
    pub fn open(&self) {
        let waiting = self.waiting.lock().take();
        for Waiting { pod, status, is_finished } in waiting.into_iter().flat_map(BTreeMap::into_values) {
            self.statuses.set(&pod, &status, is_finished);
        }
    }
}

impl StatusSink for StatusGate {
    fn set(&self, pod: &Arc<Pod>, status: &PodStatus, is_finished: bool) {
        let mut waiting = self.waiting.lock();
        let Some(waiting) = waiting.as_mut() else {
            drop(waiting);
            return self.statuses.set(pod, status, is_finished);
        };
        let was_finished = waiting.get(&pod.metadata.uid).is_some_and(|it| it.is_finished);
        let is_finished = is_finished || was_finished;
        let newest = Waiting { pod: pod.clone(), status: status.clone(), is_finished };
        waiting.insert(pod.metadata.uid.clone(), newest);
    }

    fn restore(&self, pod: &Arc<Pod>, status: &PodStatus) {
        let is_closed = self.waiting.lock().is_some();
        match is_closed {
            true => self.set(pod, status, false),
            false => self.statuses.restore(pod, status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Records(Mutex<Vec<(String, bool)>>);

    impl StatusSink for Records {
        fn set(&self, _: &Arc<Pod>, status: &PodStatus, is_finished: bool) {
            self.0.lock().push((status.phase.clone(), is_finished));
        }
    }

    #[test]
    fn a_closed_gate_keeps_the_newest_status() {
        let records = Arc::new(Records::default());
        let gate = StatusGate::new(records.clone());
        let pod = Arc::new(Pod::default());
        let set = |phase: &str, is_finished| {
            gate.set(&pod, &PodStatus { phase: phase.to_owned(), ..PodStatus::default() }, is_finished);
        };
        let taken = || std::mem::take(&mut *records.0.lock());
        set("Pending", false);
        assert_eq!(taken(), [("Pending".to_owned(), false)]);
        gate.close();
        set("Running", true);
        set("Failed", false);
        assert!(taken().is_empty());
        gate.open();
        assert_eq!(taken(), [("Failed".to_owned(), true)]);
        set("Succeeded", false);
        assert_eq!(taken().len(), 1);
    }
}
