//! Trigger times: when the oldest change happened that is not published yet, so that others can measure the delay.

use crate::pods::state;
use api::core::v1::{Pod, Service};
use api::{Resource, Time};
use client::Key;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The last observed times, by service.
#[derive(Default)]
pub struct Triggers {
    seen: Mutex<HashMap<Key, TriggerTimes>>,
}

#[derive(Default)]
struct TriggerTimes {
    service: Option<Time>,
    pods: BTreeMap<String, Time>,
}

impl Triggers {
    pub fn forget(&self, key: &Key) {
        self.seen.lock().remove(key);
    }

    /// The time of the earliest change since the last call; for a new service, its creation.
    pub fn since_last(&self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Option<String> {
        let created = service.metadata.creation_timestamp;
        let changed = |pod: &Arc<Pod>| {
            let ready = state::condition(pod, "Ready")?;
            Some((pod.name().to_owned(), ready.last_transition_time?))
        };
        let now = TriggerTimes { service: created, pods: pods.iter().filter_map(changed).collect() };
        let mut seen = self.seen.lock();
        let trigger = match seen.get(key) {
            None => created,
            Some(before) => {
                let later =
                    now.pods.iter().filter(|(name, at)| before.pods.get(*name).is_none_or(|then| *at > then));
                let service = created.filter(|at| before.service.is_none_or(|then| *at > then));
                later.map(|(_, at)| *at).chain(service).min()
            }
        };
        seen.insert(key.clone(), now);
        trigger.map(|at| at.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn the_earliest_new_change_counts() {
        let triggers = Triggers::default();
        let key = Key::new("ns", "s");
        let service: Service = object(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:09Z"}}));
        let pod = |name: &str, second: u32| {
            let ready = json!({"type": "Ready", "status": "True",
                "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z")});
            Arc::new(object::<Pod>(json!({"metadata": {"name": name}, "status": {"conditions": [ready]}})))
        };
        let trigger = |pods: &[Arc<Pod>]| triggers.since_last(&key, &service, pods);
        assert_eq!(trigger(&[pod("a", 1)]).as_deref(), Some("2026-01-01T00:00:09Z"));
        assert_eq!(trigger(&[pod("a", 1)]), None);
        let both = [pod("a", 20), pod("b", 15)];
        assert_eq!(trigger(&both).as_deref(), Some("2026-01-01T00:00:15Z"));
        assert_eq!(trigger(&both), None);
        triggers.forget(&key);
        assert_eq!(triggers.since_last(&key, &service, &both).as_deref(), Some("2026-01-01T00:00:09Z"));
    }
}
