//! Rows of pods in tables.

use crate::{metadata, read};
use schema::{Value, time};
use std::collections::HashMap;
use std::time::Duration;

/// The fields that the cells read.
pub(super) const READS: &[&str] = &[
    "metadata.name",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "spec.containers.name",
    "spec.initContainers.name",
    "spec.nodeName",
    "spec.readinessGates",
    "status",
];

pub(super) fn cells(pod: &Value, now: Duration) -> Vec<Value> {
    let summary = summarize(pod);
    let restarts = match summary.last_restart {
        Some(then) => {
            format!("{} ({} ago)", summary.restarts, time::human_duration(now.as_secs() as i64 - then))
        }
        None => summary.restarts.to_string(),
    };
    let address = pod.items(&["status", "podIPs"]).first().map_or("", |it| it.text(&["ip"]));
    vec![
        metadata::name(pod),
        format!("{}/{}", summary.ready, pod.items(&["spec", "containers"]).len()).into(),
        summary.reason.into(),
        restarts.into(),
        metadata::age(pod, now),
        metadata::or(address, "<none>"),
        metadata::or(pod.text(&["spec", "nodeName"]), "<none>"),
        metadata::or(pod.text(&["status", "nominatedNodeName"]), "<none>"),
        readiness_gates(pod).into(),
    ]
}

/// Conditions of the row: that the pod is over and why, for clients that hide such rows.
pub fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match pod.text(&["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    let mut condition = Value::map();
    condition.set(&["type"], "Completed");
    condition.set(&["status"], "True");
    condition.set(&["reason"], reason);
    condition.set(&["message"], message);
    vec![condition]
}

struct PodSummary {
    reason: String,
    ready: usize,
    restarts: i64,
    /// When a container last ended and was started again, in Unix seconds.
    last_restart: Option<i64>,
}

impl PodSummary {
    fn count(&mut self, status: &Value) {
        self.restarts += read::int(status, &["restartCount"]);
        let ended = time::to_unix(status.text(&["lastState", "terminated", "finishedAt"]));
        self.last_restart = self.last_restart.max(ended);
    }
}

fn summarize(pod: &Value) -> PodSummary {
    let reason = match pod.text(&["status", "reason"]) {
        "" => pod.text(&["status", "phase"]),
        reason => reason,
    };
    let mut summary = PodSummary { reason: reason.to_owned(), ready: 0, restarts: 0, last_restart: None };
    let gated =
        |it: &Value| it.text(&["type"]) == "PodScheduled" && it.text(&["reason"]) == "SchedulingGated";
    if pod.items(&["status", "conditions"]).iter().any(gated) {
        summary.reason = "SchedulingGated".to_owned();
    }
    if !initializing(pod, &mut summary) {
        summary.restarts = 0;
        running(pod, &mut summary);
    }
    if read::has(pod, &["metadata", "deletionTimestamp"]) {
        let lost = pod.text(&["status", "reason"]) == "NodeLost";
        summary.reason = if lost { "Unknown" } else { "Terminating" }.to_owned();
    }
    summary
}

/// Looks at the init containers up to the first that is not done. Says whether there is one.
fn initializing(pod: &Value, summary: &mut PodSummary) -> bool {
    let total = pod.items(&["spec", "initContainers"]).len();
    for (at, status) in pod.items(&["status", "initContainerStatuses"]).iter().enumerate() {
        summary.count(status);
        let terminated = read::has(status, &["state", "terminated"]);
        if terminated && read::int(status, &["state", "terminated", "exitCode"]) == 0 {
            continue;
        }
        let waiting = status.text(&["state", "waiting", "reason"]);
        summary.reason = if terminated {
            format!("Init:{}", ending(status))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{at}/{total}")
        };
        return true;
    }
    false
}

fn running(pod: &Value, summary: &mut PodSummary) {
    let mut has_running = false;
    for status in pod.items(&["status", "containerStatuses"]).iter().rev() {
        summary.count(status);
        let waiting = status.text(&["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if read::has(status, &["state", "terminated"]) {
            summary.reason = ending(status);
        } else if read::flag(status, &["ready"]) && read::has(status, &["state", "running"]) {
            has_running = true;
            summary.ready += 1;
        }
    }
    // one container being done does not end the pod while another runs
    if summary.reason == "Completed" && has_running {
        let ready = |it: &Value| it.text(&["type"]) == "Ready" && it.text(&["status"]) == "True";
        let is_ready = pod.items(&["status", "conditions"]).iter().any(ready);
        summary.reason = if is_ready { "Running" } else { "NotReady" }.to_owned();
    }
}

/// The reason of a terminated container.
fn ending(status: &Value) -> String {
    match status.text(&["state", "terminated", "reason"]) {
        "" => match read::int(status, &["state", "terminated", "signal"]) {
            0 => format!("ExitCode:{}", read::int(status, &["state", "terminated", "exitCode"])),
            signal => format!("Signal:{signal}"),
        },
        reason => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.items(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let mut states: HashMap<&str, bool> = HashMap::new();
    for condition in pod.items(&["status", "conditions"]) {
        // the first of a type counts
        states.entry(condition.text(&["type"])).or_insert(condition.text(&["status"]) == "True");
    }
    let met = gates.iter().filter(|it| states.get(it.text(&["conditionType"])) == Some(&true)).count();
    format!("{met}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    fn check(pod: &str, expected: [&str; 3]) {
        let now = Duration::from_secs(1_577_934_245 + 300);
        let row = cells(&json(pod), now);
        assert_eq!(row[1..4], expected.map(Value::from), "{pod}");
        assert_eq!(row.len(), 9);
        // the cells read only the declared fields
        let (kind, hooks) = crate::builtin().into_iter().find(|(kind, _)| kind.name == "Pod").unwrap();
        let fields = schema::decode::FieldTree::of(hooks.read.row_reads.iter().copied());
        let parts = schema::decode::canonical_parts(pod.as_bytes(), &kind.root, &fields).unwrap();
        assert_eq!(cells(&parts, now), row, "{pod}");
        assert_eq!(row_conditions(&parts), row_conditions(&json(pod)));
    }

    #[test]
    fn reasons_are_found() {
        let with = |status: &str| {
            format!(r#"{{"spec":{{"containers":[{{}}],"initContainers":[{{}},{{}}]}},"status":{status}}}"#)
        };
        check(&with(r#"{"phase":"Pending"}"#), ["0/1", "Pending", "0"]);
        check(&with(r#"{"phase":"Failed","reason":"Evicted"}"#), ["0/1", "Evicted", "0"]);
        check(
            &with(
                r#"{"phase":"Running","containerStatuses":[{"ready":true,"restartCount":2,"state":{"running":{}},
                "lastState":{"terminated":{"finishedAt":"2020-01-02T03:04:05Z"}}}]}"#,
            ),
            ["1/1", "Running", "2 (5m ago)"],
        );
        check(
            &with(r#"{"containerStatuses":[{"state":{"terminated":{"exitCode":0,"signal":9}}}]}"#),
            ["0/1", "Signal:9", "0"],
        );
        check(
            &with(r#"{"containerStatuses":[{"state":{"terminated":{"exitCode":3}}}]}"#),
            ["0/1", "ExitCode:3", "0"],
        );
        check(
            &with(r#"{"initContainerStatuses":[{"restartCount":2,"state":{"terminated":{"exitCode":2}}}]}"#),
            ["0/1", "Init:ExitCode:2", "2"],
        );
        check(
            &with(
                r#"{"initContainerStatuses":[{"state":{"terminated":{"exitCode":0}}},{"state":{"running":{}}}]}"#,
            ),
            ["0/1", "Init:1/2", "0"],
        );
        check(
            &with(
                r#"{"containerStatuses":[{"state":{"terminated":{"reason":"Completed"}}},{"ready":true,"state":{"running":{}}}]}"#,
            ),
            ["1/1", "NotReady", "0"],
        );
    }

    #[test]
    fn deletion_shows() {
        let deleted = r#"{"metadata":{"deletionTimestamp":"2020-01-02T03:04:05Z"},"spec":{"containers":[{}]},"status":{"reason":"X"}}"#;
        check(deleted, ["0/1", "Terminating", "0"]);
        check(&deleted.replace("\"X\"", "\"NodeLost\""), ["0/1", "Unknown", "0"]);
    }

    #[test]
    fn gates_are_counted() {
        let pod = json(
            r#"{"spec":{"readinessGates":[{"conditionType":"a"},{"conditionType":"b"}]},
                "status":{"conditions":[{"type":"a","status":"True"}]}}"#,
        );
        assert_eq!(readiness_gates(&pod), "1/2");
    }

    #[test]
    fn ended_pods_say_so_beside_their_cells() {
        assert!(row_conditions(&json(r#"{"status":{"phase":"Running"}}"#)).is_empty());
        assert_eq!(row_conditions(&json(r#"{"status":{"phase":"Failed"}}"#))[0].text(&["reason"]), "Failed");
    }
}
