//! Whether a node was heard of lately.
//!
//! A node is heard of when its agent writes its status or renews its lease. What counts is when this loop saw that, by a
//! clock that never goes back: the clocks of nodes need not agree with it, nor be set right. A loop that begins gives
//! every node its whole time again.

use super::options::Options;
use crate::nodes::{READY, condition};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::chrono::{DateTime, Utc};
use std::time::Duration;

/// What nobody knows any more of a node that is not heard of. Whether it has a network others say.
const FORGOTTEN: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];
const UNKNOWN: &str = "Unknown";

/// A moment by both clocks.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub time: Time,
    pub elapsed: Duration,
}

/// What is remembered of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health {
    /// When it was heard of last.
    pub heard: Duration,
    /// What its status says about when that was written; nothing where it says nothing about itself.
    said: Option<Option<DateTime<Utc>>>,
    renewed: Option<DateTime<Utc>>,
}

impl Health {
    /// What is known after a look at a node and its lease.
    pub fn look(known: Option<&Health>, node: &Node, lease: Option<&Lease>, now: &Moment) -> Self {
        let said = condition(node, READY).map(|it| it.last_heartbeat_time.as_ref().map(|it| it.0));
        let renewed = lease.and_then(|it| it.spec.as_ref()?.renew_time.as_ref()).map(|it| it.0);
        let is_renewed = renewed > known.and_then(|it| it.renewed);
        let heard = match known {
            _ if is_renewed => now.elapsed,
            Some(known) if known.said == said => known.heard,
            // it has not said anything since it was made
            None if said.is_none() => now.elapsed.saturating_sub(age(node, now)),
            _ => now.elapsed,
        };
        Health { heard, said, renewed: renewed.max(known.and_then(|it| it.renewed)) }
    }

    /// Whether it was not heard of for too long. Who never said anything has longer.
    pub fn is_silent(&self, now: &Moment, options: &Options) -> bool {
        let grace = if self.said.is_some() { options.grace_period } else { options.startup_grace_period };
        now.elapsed.saturating_sub(self.heard) > grace
    }
}

fn age(node: &Node, now: &Moment) -> Duration {
    let made = node.metadata.creation_timestamp.as_ref().map_or(now.time.0, |it| it.0);
    now.time.0.signed_duration_since(made).to_std().unwrap_or_default()
}

/// The conditions of a node that is not heard of any more, as far as they change; none where that was said already.
/// `agent` is who should have spoken.
pub(super) fn unknown(node: &Node, now: &Time, agent: &str) -> Option<Vec<NodeCondition>> {
    if condition(node, READY).is_some_and(|it| it.status == UNKNOWN) {
        return None;
    }
    let agent = capitalized(agent);
    let all = FORGOTTEN.iter().filter_map(|name| match condition(node, name) {
        None => Some(NodeCondition {
            type_: (*name).to_owned(),
            status: UNKNOWN.to_owned(),
            reason: Some("NodeStatusNeverUpdated".to_owned()),
            message: Some(format!("{agent} never posted node status.")),
            last_heartbeat_time: node.metadata.creation_timestamp.clone(),
            last_transition_time: Some(now.clone()),
        }),
        Some(known) if known.status != UNKNOWN => Some(NodeCondition {
            status: UNKNOWN.to_owned(),
            reason: Some("NodeStatusUnknown".to_owned()),
            message: Some(format!("{agent} stopped posting node status.")),
            last_transition_time: Some(now.clone()),
            ..known.clone()
        }),
        Some(_) => None,
    });
    Some(all.collect())
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: u64) -> Moment {
        let time = DateTime::from_timestamp(1_000_000 + seconds as i64, 0).unwrap();
        Moment { time: Time(time), elapsed: Duration::from_secs(5000 + seconds) }
    }

    fn stamp(seconds: u64) -> Value {
        json!(at(seconds).time)
    }

    fn node(created: u64, ready: Option<(&str, u64)>) -> Node {
        let conditions: Vec<_> = ready
            .iter()
            .map(|(status, beat)| json!({"type": "Ready", "status": status, "lastHeartbeatTime": stamp(*beat)}))
            .collect();
        let node = json!({
            "metadata": {"name": "n", "creationTimestamp": stamp(created)},
            "status": {"conditions": conditions}
        });
        serde_json::from_value(node).unwrap()
    }

    fn lease(renewed: Option<u64>) -> Lease {
        let renewed = renewed.map(|it| format!("{}.000000Z", at(it).time.0.format("%Y-%m-%dT%H:%M:%S")));
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"renewTime": renewed}})).unwrap()
    }

    /// Plays what a loop sees, second by second: the first second at which the node is silent.
    fn silent_at(begins: u64, until: u64, see: impl Fn(u64) -> (Node, Option<Lease>)) -> Option<u64> {
        let mut known: Option<Health> = None;
        (begins..until).find(|second| {
            let (node, lease) = see(*second);
            let now = at(*second);
            let health = Health::look(known.as_ref(), &node, lease.as_ref(), &now);
            let silent = health.is_silent(&now, &Options::default());
            known = Some(health);
            silent
        })
    }

    #[test]
    fn silence_lasts_for_longer_than_the_grace_period() {
        // status every ten seconds until 100, and then nothing
        let beats = |second: u64| (second.min(100) / 10) * 10;
        assert_eq!(silent_at(0, 300, |it| (node(0, Some(("True", beats(it)))), None)), Some(141));
        // whatever it said last
        assert_eq!(silent_at(0, 300, |it| (node(0, Some(("False", beats(it)))), None)), Some(141));
        // a loop that begins gives it its time again
        assert_eq!(silent_at(200, 300, |_| (node(0, Some(("True", 100))), None)), Some(241));
        // the clock of the node may be wrong, as long as it moves
        assert_eq!(silent_at(0, 300, |it| (node(0, Some(("True", 7000 - beats(it)))), None)), Some(141));
    }

    #[test]
    fn leases_are_as_good_as_status() {
        let renewed = |second: u64| Some((second.min(200) / 10) * 10);
        let quiet = || node(0, Some(("True", 0)));
        assert_eq!(silent_at(0, 400, |it| (quiet(), Some(lease(renewed(it))))), Some(241));
        // and the other way round
        let both = |it: u64| (node(0, Some(("True", (it.min(300) / 10) * 10))), Some(lease(Some(0))));
        assert_eq!(silent_at(0, 400, both), Some(341));
        // a lease that was never renewed, or goes back, says nothing
        assert_eq!(silent_at(0, 400, |_| (quiet(), Some(lease(None)))), Some(41));
        assert_eq!(silent_at(0, 400, |it| (quiet(), Some(lease(Some(500 - it))))), Some(41));
        // a lease that comes and goes is not news each time
        let flickers = |it: u64| (quiet(), it.is_multiple_of(2).then(|| lease(Some(0))));
        assert_eq!(silent_at(0, 400, flickers), Some(41));
    }

    #[test]
    fn who_never_said_anything_has_longer() {
        assert_eq!(silent_at(10, 400, |_| (node(10, None), None)), Some(71));
        // counted from when it was made, also by a loop that begins later
        assert_eq!(silent_at(50, 400, |_| (node(10, None), None)), Some(71));
        assert_eq!(silent_at(200, 400, |_| (node(10, None), None)), Some(200));
        // it is alive while it renews its lease
        assert_eq!(silent_at(10, 400, |it| (node(10, None), Some(lease(Some(it.min(300)))))), Some(361));
        // what is taken away is news, too
        let taken = |it: u64| if it < 100 { node(0, Some(("True", it))) } else { node(0, None) };
        assert_eq!(silent_at(0, 400, |it| (taken(it), None)), Some(161));
    }

    #[test]
    fn what_is_not_known_any_more() {
        let told = |node: &Node| {
            let all = unknown(node, &at(99).time, "kubelet")?;
            let told = all.into_iter().map(|it| {
                assert_eq!((it.status.as_str(), it.last_transition_time), ("Unknown", Some(at(99).time)));
                (it.type_, it.reason.unwrap(), it.message.unwrap(), it.last_heartbeat_time)
            });
            Some(told.collect::<Vec<_>>())
        };
        let never = told(&node(5, None)).unwrap();
        assert_eq!(never.iter().map(|it| &*it.0).collect::<Vec<_>>(), FORGOTTEN);
        assert_eq!(
            (&*never[0].1, &*never[0].2),
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        );
        assert_eq!(never[0].3, Some(at(5).time));
        let stopped = told(&node(5, Some(("True", 50)))).unwrap();
        assert_eq!(
            (&*stopped[0].1, &*stopped[0].2),
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        );
        assert_eq!((&*stopped[1].1, stopped[0].3.clone()), ("NodeStatusNeverUpdated", Some(at(50).time)));
        assert_eq!(told(&node(5, Some(("Unknown", 50)))), None);
    }
}
