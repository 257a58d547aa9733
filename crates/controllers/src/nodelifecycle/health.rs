//! Heartbeats: whether a node has reported lately.
//!
//! A heartbeat is a write of the node's status, or a renewal of its lease. Its time is when this loop saw it, on a
//! monotonic clock: the clocks of nodes may be wrong. After a start every node has its whole grace period again.

use super::options::Options;
use crate::nodes::{READY, condition};
use api::coordination::v1::Lease;
use api::core::v1::{Node, NodeCondition};
use api::{MicroTime, Time};
use std::time::Duration;

/// The conditions that become `Unknown` without heartbeats. `NetworkUnavailable` has another writer.
const REPORTED: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];
const UNKNOWN: &str = "Unknown";

/// A moment on both clocks.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub time: Time,
    pub elapsed: Duration,
}

/// The heartbeats of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health {
    /// When the last heartbeat was seen.
    pub last_seen: Duration,
    /// The heartbeat time of the ready condition; `None` without that condition.
    reported: Option<Option<Time>>,
    renewed: Option<MicroTime>,
}

impl Health {
    /// The state after an observation of a node and its lease.
    pub fn observe(before: Option<&Health>, node: &Node, lease: Option<&Lease>, now: &Moment) -> Self {
        let reported = condition(node, READY).map(|it| it.last_heartbeat_time);
        let renewed = lease.and_then(|it| it.spec.renew_time);
        let is_renewed = renewed > before.and_then(|it| it.renewed);
        let last_seen = match before {
            _ if is_renewed => now.elapsed,
            Some(before) if before.reported == reported => before.last_seen,
            // no report since it was created
            None if reported.is_none() => now.elapsed.saturating_sub(age(node, now)),
            _ => now.elapsed,
        };
        Health { last_seen, reported, renewed: renewed.max(before.and_then(|it| it.renewed)) }
    }

    /// Whether the grace period has passed without a heartbeat. A node that never reported has a longer one.
    pub fn is_silent(&self, now: &Moment, options: &Options) -> bool {
        let grace = if self.reported.is_some() { options.grace_period } else { options.startup_grace_period };
        now.elapsed.saturating_sub(self.last_seen) > grace
    }
}

fn age(node: &Node, now: &Moment) -> Duration {
    let created = node.metadata.creation_timestamp.unwrap_or(now.time);
    let seconds = now.time.unix_seconds().saturating_sub(created.unix_seconds());
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// The conditions that change when a node is lost; `None` if it is marked as lost already. `agent` is the name of the
/// agent that should have reported.
pub(super) fn unknown(node: &Node, now: Time, agent: &str) -> Option<Vec<NodeCondition>> {
    if condition(node, READY).is_some_and(|it| it.status == UNKNOWN) {
        return None;
    }
    let agent = capitalized(agent);
    let all = REPORTED.iter().filter_map(|name| match condition(node, name) {
        None => Some(NodeCondition {
            type_: (*name).to_owned(),
            status: UNKNOWN.to_owned(),
            reason: "NodeStatusNeverUpdated".to_owned(),
            message: format!("{agent} never posted node status."),
            last_heartbeat_time: node.metadata.creation_timestamp,
            last_transition_time: Some(now),
            ..NodeCondition::default()
        }),
        Some(known) if known.status != UNKNOWN => Some(NodeCondition {
            status: UNKNOWN.to_owned(),
            reason: "NodeStatusUnknown".to_owned(),
            message: format!("{agent} stopped posting node status."),
            last_transition_time: Some(now),
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
    use crate::testing::object;
    use serde_json::json;

    fn at(seconds: u64) -> Moment {
        Moment { time: Time(1_000_000 + seconds as i64), elapsed: Duration::from_secs(5000 + seconds) }
    }

    fn stamp(seconds: u64) -> String {
        at(seconds).time.to_string()
    }

    fn node(created: u64, ready: Option<(&str, u64)>) -> Node {
        let conditions: Vec<_> = ready
            .iter()
            .map(|(status, beat)| json!({"type": "Ready", "status": status, "lastHeartbeatTime": stamp(*beat)}))
            .collect();
        object(json!({
            "metadata": {"name": "n", "creationTimestamp": stamp(created)},
            "status": {"conditions": conditions}
        }))
    }

    fn lease(renewed: Option<u64>) -> Lease {
        let renewed = renewed.map(|it| MicroTime(at(it).time.unix_seconds() * 1_000_000).to_string());
        object(json!({"metadata": {"name": "n"}, "spec": {"renewTime": renewed}}))
    }

    /// Observes a node second by second. Returns the first second at which it is silent.
    fn silent_at(start: u64, end: u64, observe: impl Fn(u64) -> (Node, Option<Lease>)) -> Option<u64> {
        let mut known: Option<Health> = None;
        (start..end).find(|second| {
            let (node, lease) = observe(*second);
            let now = at(*second);
            let health = Health::observe(known.as_ref(), &node, lease.as_ref(), &now);
            let silent = health.is_silent(&now, &Options::default());
            known = Some(health);
            silent
        })
    }

    #[test]
    fn a_node_is_silent_after_the_grace_period() {
        // status every ten seconds until 100, and then none
        let beats = |second: u64| (second.min(100) / 10) * 10;
        assert_eq!(silent_at(0, 300, |it| (node(0, Some(("True", beats(it)))), None)), Some(141));
        // whatever the last status was
        assert_eq!(silent_at(0, 300, |it| (node(0, Some(("False", beats(it)))), None)), Some(141));
        // after a start the grace period begins again
        assert_eq!(silent_at(200, 300, |_| (node(0, Some(("True", 100))), None)), Some(241));
        // the clock of the node may be wrong, as long as it moves
        assert_eq!(silent_at(0, 300, |it| (node(0, Some(("True", 7000 - beats(it)))), None)), Some(141));
    }

    #[test]
    fn a_renewed_lease_is_a_heartbeat() {
        let renewed = |second: u64| Some((second.min(200) / 10) * 10);
        let quiet = || node(0, Some(("True", 0)));
        assert_eq!(silent_at(0, 400, |it| (quiet(), Some(lease(renewed(it))))), Some(241));
        // and the other way round
        let both = |it: u64| (node(0, Some(("True", (it.min(300) / 10) * 10))), Some(lease(Some(0))));
        assert_eq!(silent_at(0, 400, both), Some(341));
        // a lease that was never renewed, or goes back, is none
        assert_eq!(silent_at(0, 400, |_| (quiet(), Some(lease(None)))), Some(41));
        assert_eq!(silent_at(0, 400, |it| (quiet(), Some(lease(Some(500 - it))))), Some(41));
        // a lease that comes and goes counts once
        let flickers = |it: u64| (quiet(), it.is_multiple_of(2).then(|| lease(Some(0))));
        assert_eq!(silent_at(0, 400, flickers), Some(41));
    }

    #[test]
    fn a_node_that_never_reported_has_a_longer_grace_period() {
        assert_eq!(silent_at(10, 400, |_| (node(10, None), None)), Some(71));
        // counted from its creation, also after a later start
        assert_eq!(silent_at(50, 400, |_| (node(10, None), None)), Some(71));
        assert_eq!(silent_at(200, 400, |_| (node(10, None), None)), Some(200));
        // it is alive while it renews its lease
        assert_eq!(silent_at(10, 400, |it| (node(10, None), Some(lease(Some(it.min(300)))))), Some(361));
        // a condition that is removed counts as a heartbeat
        let removed = |it: u64| if it < 100 { node(0, Some(("True", it))) } else { node(0, None) };
        assert_eq!(silent_at(0, 400, |it| (removed(it), None)), Some(161));
    }

    #[test]
    fn the_conditions_of_a_lost_node_are_unknown() {
        let changed = |node: &Node| {
            let all = unknown(node, at(99).time, "kubelet")?;
            let changed = all.into_iter().map(|it| {
                assert_eq!((it.status.as_str(), it.last_transition_time), ("Unknown", Some(at(99).time)));
                (it.type_, it.reason, it.message, it.last_heartbeat_time)
            });
            Some(changed.collect::<Vec<_>>())
        };
        let never = changed(&node(5, None)).unwrap();
        assert_eq!(never.iter().map(|it| &*it.0).collect::<Vec<_>>(), REPORTED);
        assert_eq!(
            (&*never[0].1, &*never[0].2),
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        );
        assert_eq!(never[0].3, Some(at(5).time));
        let stopped = changed(&node(5, Some(("True", 50)))).unwrap();
        assert_eq!(
            (&*stopped[0].1, &*stopped[0].2),
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        );
        assert_eq!((&*stopped[1].1, stopped[0].3), ("NodeStatusNeverUpdated", Some(at(50).time)));
        assert_eq!(changed(&node(5, Some(("Unknown", 50)))), None);
    }
}
