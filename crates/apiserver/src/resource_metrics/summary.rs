//! The summary of an agent (`/stats/summary`), as far as it is used. Pure.

use schema::Value;
use std::collections::HashMap;

/// CPU and memory in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_nano_cores: u64,
    /// The working set: what cannot be reclaimed at once.
    pub memory_bytes: u64,
}

/// The usage of a node and its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub node: Option<Usage>,
    /// The time of the measurement, as the agent writes it; empty if it does not.
    pub time: String,
    /// Whether the rates come from counters of used CPU, so that they are those since the last request.
    pub is_counted: bool,
    /// Containers with their names, by namespace and name of the pod.
    pub pods: HashMap<(String, String), PodUsage>,
}

/// The usage of the containers of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodUsage {
    pub uid: String,
    pub time: String,
    pub containers: Vec<(String, Usage)>,
}

fn number(value: &Value, path: &[&str]) -> Option<u64> {
    u64::try_from(value.at(path)?.as_int()?).ok()
}

/// The usage of a part; `None` if the agent has not measured it.
fn usage(part: &Value) -> Option<Usage> {
    Some(Usage {
        cpu_nano_cores: number(part, &["cpu", "usageNanoCores"])?,
        memory_bytes: number(part, &["memory", "workingSetBytes"])?,
    })
}

/// A time of the API: agents of other makes write fractions of seconds, too.
fn time(part: &Value) -> String {
    schema::time::parse_time(part.text(&["cpu", "time"])).unwrap_or_default()
}

impl Summary {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let summary = schema::decode::json_untyped(text).ok()?.value;
        let node = summary.at(&["node"])?;
        let pod = |pod: &Value| {
            let reference = |field: &'static str| pod.text(&["podRef", field]).to_owned();
            let mut pod_usage = PodUsage { uid: reference("uid"), ..PodUsage::default() };
            for container in pod.items(&["containers"]) {
                // usage of a part of the containers would look like that of the pod
                let usage = usage(container)?;
                pod_usage.containers.push((container.text(&["name"]).to_owned(), usage));
                pod_usage.time = time(container);
            }
            Some(((reference("namespace"), reference("name")), pod_usage))
        };
        let has_counter = |part: &Value| part.at(&["cpu", "usageCoreNanoSeconds"]).is_some();
        let pods = summary.items(&["pods"]);
        let containers = || pods.iter().flat_map(|pod| pod.items(&["containers"]));
        let is_counted = has_counter(node) || containers().any(has_counter);
        let pods = pods.iter().filter_map(pod).collect();
        Some(Summary { node: usage(node), time: time(node), is_counted, pods })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_nodes_and_containers_is_read() {
        let text = br#"{"node":{"nodeName":"n","cpu":{"time":"2026-11-17T10:00:00.25Z","usageNanoCores":5},
            "memory":{"workingSetBytes":7}},"pods":[
            {"podRef":{"name":"p","namespace":"d","uid":"u"},"containers":[
              {"name":"a","cpu":{"time":"2026-11-17T10:00:01Z","usageNanoCores":1},"memory":{"workingSetBytes":2}}]},
            {"podRef":{"name":"new","namespace":"d"},"containers":[
              {"name":"a","cpu":{"usageNanoCores":1},"memory":{"workingSetBytes":2}},{"name":"b","cpu":{}}]}]}"#;
        let summary = Summary::parse(text).unwrap();
        assert_eq!(summary.node, Some(Usage { cpu_nano_cores: 5, memory_bytes: 7 }));
        assert_eq!(summary.time, "2026-11-17T10:00:00Z");
        let pod = &summary.pods[&("d".to_owned(), "p".to_owned())];
        assert_eq!(pod.containers, [("a".to_owned(), Usage { cpu_nano_cores: 1, memory_bytes: 2 })]);
        assert_eq!((pod.uid.as_str(), pod.time.as_str()), ("u", "2026-11-17T10:00:01Z"));
        assert!(!summary.pods.contains_key(&("d".to_owned(), "new".to_owned())));
        assert!(!summary.is_counted);
        for text in [
            r#"{"node":{"cpu":{"usageNanoCores":0,"usageCoreNanoSeconds":9}}}"#,
            r#"{"node":{},"pods":[{"containers":[{"cpu":{"usageCoreNanoSeconds":0}}]}]}"#,
        ] {
            assert!(Summary::parse(text.as_bytes()).unwrap().is_counted, "{text}");
        }
        assert_eq!(Summary::parse(b"nonsense"), None);
        assert_eq!(Summary::parse(b"{}"), None);
    }
}
