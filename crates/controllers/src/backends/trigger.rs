//! Since when what is published about a service should be otherwise: the moment of the change that has not been
//! published yet, so that others can measure how long it took.

use crate::pods::state;
use client::Key;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What was looked at last, by service.
#[derive(Default)]
pub struct Triggers {
    seen: Mutex<HashMap<Key, TriggerTimes>>,
}

#[derive(Default)]
struct TriggerTimes {
    service: Option<DateTime<Utc>>,
    pods: BTreeMap<String, DateTime<Utc>>,
}

impl Triggers {
    pub fn forget(&self, key: &Key) {
        self.seen.lock().remove(key);
    }

    /// The earliest change since the last look; for a service that is new, when it was made.
    pub fn since_last(&self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Option<String> {
        let made = service.metadata.creation_timestamp.as_ref().map(|it| it.0);
        let turned = |pod: &Arc<Pod>| {
            let ready = state::condition(pod, "Ready")?;
            Some((pod.metadata.name.clone()?, ready.last_transition_time.as_ref()?.0))
        };
        let now = TriggerTimes { service: made, pods: pods.iter().filter_map(turned).collect() };
        let mut seen = self.seen.lock();
        let changed = match seen.get(key) {
            None => made,
            Some(before) => {
                let later =
                    now.pods.iter().filter(|(name, at)| before.pods.get(*name).is_none_or(|then| *at > then));
                let service = made.filter(|at| before.service.is_none_or(|then| *at > then));
                later.map(|(_, at)| *at).chain(service).min()
            }
        };
        seen.insert(key.clone(), now);
        changed.map(|at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_earliest_change_that_is_news_counts() {
        let triggers = Triggers::default();
        let key = Key::new("ns", "s");
        let service: Service =
            serde_json::from_value(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:09Z"}}))
                .unwrap();
        let pod = |name: &str, second: u32| {
            let ready = json!({"type": "Ready", "status": "True",
                "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z")});
            let pod = json!({"metadata": {"name": name}, "status": {"conditions": [ready]}});
            Arc::new(serde_json::from_value::<Pod>(pod).unwrap())
        };
        let look = |pods: &[Arc<Pod>]| triggers.since_last(&key, &service, pods);
        assert_eq!(look(&[pod("a", 1)]).as_deref(), Some("2026-01-01T00:00:09Z"));
        assert_eq!(look(&[pod("a", 1)]), None);
        let both = [pod("a", 20), pod("b", 15)];
        assert_eq!(look(&both).as_deref(), Some("2026-01-01T00:00:15Z"));
        assert_eq!(look(&both), None);
        triggers.forget(&key);
        assert_eq!(triggers.since_last(&key, &service, &both).as_deref(), Some("2026-01-01T00:00:09Z"));
    }
}
