//! The order in which pods are evicted for the node's sake, and the message of an eviction.
//!
//! Everything here is pure. Messages are upstream's.

use super::thresholds::{Amount, Observation, Signal, Threshold};
use crate::pod_facts::{EPHEMERAL_STORAGE, MEMORY, is_critical, pod_requests};
use api::Quantity;
use api::core::v1::Pod;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a pod uses of the resource that is scarce.
#[derive(Debug, Clone)]
pub struct PodUsage {
    pub pod: Arc<Pod>,
    pub total: u64,
    pub containers: BTreeMap<String, u64>,
}

/// The resource of requests that a signal counts.
fn request_name(signal: Signal) -> Option<&'static str> {
    match signal {
        Signal::Memory | Signal::AllocatableMemory => Some(MEMORY),
        Signal::NodeDisk | Signal::ImageDisk => Some(EPHEMERAL_STORAGE),
        _ => None,
    }
}

/// The pod to evict: one that uses more than it requests, of the lowest priority, the farthest above its request.
/// Processes are not requested: there the priority comes first.
pub fn victim(signal: Signal, pods: &[PodUsage]) -> Option<&PodUsage> {
    let key = |it: &&PodUsage| {
        let request = request_name(signal).and_then(|name| pod_requests(&it.pod).remove(name));
        let request = request.map_or(0, |it| u64::try_from(it.whole()).unwrap_or(0));
        let above = i128::from(it.total) - i128::from(request);
        (above <= 0 && signal != Signal::Processes, it.pod.spec.priority.unwrap_or(0), Reverse(above))
    };
    pods.iter().filter(|it| !is_critical(&it.pod)).min_by_key(key)
}

/// The message of the eviction of a pod, with the threshold that was reached and what was available then.
pub fn message(signal: Signal, usage: &PodUsage, reached: Option<(&Threshold, Observation)>) -> String {
    let scarce = signal.resource();
    let mut text = format!("The node was low on resource: {scarce}. ");
    if let Some((threshold, Observation { available, capacity })) = reached {
        let amount = threshold.amount.of(capacity);
        let quantity = match threshold.amount {
            Amount::Absolute(_) => signal.quantity(amount),
            // a share is shown as bytes, whatever it is of
            Amount::Share(_) => Signal::Memory.quantity(amount),
        };
        text += &format!("Threshold quantity: {quantity}, available: {}. ", signal.quantity(available));
    }
    let Some(resource) = request_name(signal) else { return text };
    for container in &usage.pod.spec.containers {
        let Some(used) = usage.containers.get(&container.name) else { continue };
        let used = signal.quantity(*used);
        let none = Quantity::default();
        let request = container.resources.requests.get(resource).unwrap_or(&none);
        if used > *request {
            let name = &container.name;
            text += &format!(
                "Container {name} was using {used}, request is {request}, has larger consumption of {scarce}. "
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;

    fn usage(name: &str, priority: i32, request: &str, used: u64) -> PodUsage {
        let pod = object(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"priority":{priority},
                "containers":[{{"name":"c","resources":{{"requests":{{"memory":"{request}"}}}}}}]}}}}"#
        ));
        let containers = BTreeMap::from([("c".to_owned(), used)]);
        PodUsage { pod: Arc::new(pod), total: used, containers }
    }

    #[test]
    fn pods_above_their_requests_go_first() {
        let mut pods = vec![
            usage("critical", 2_000_000_000, "0", 900 << 20),
            usage("inside", 0, "1Gi", 800 << 20),
            usage("important", 5, "1Mi", 700 << 20),
            usage("small", 0, "1Mi", 2 << 20),
            usage("large", 0, "100Mi", 200 << 20),
        ];
        let mut order = Vec::new();
        while let Some(found) = victim(Signal::Memory, &pods) {
            let name = found.pod.metadata.name.clone();
            pods.retain(|it| it.pod.metadata.name != name);
            order.push(name);
        }
        assert_eq!(order, ["large", "small", "important", "inside"]);
    }

    #[test]
    fn pods_with_many_processes_go_first_within_a_priority() {
        let usages = [usage("none", 0, "0", 0), usage("many", 1, "0", 900), usage("some", 0, "1Gi", 7)];
        let found = victim(Signal::Processes, &usages).unwrap();
        assert_eq!(found.pod.metadata.name, "some");
        // inodes are not requested, so every pod with files uses more than it requests
        let usages = [usage("none", 0, "0", 0), usage("many", 1, "0", 900), usage("few", 1, "1Gi", 7)];
        let found = victim(Signal::NodeInodes, &usages).unwrap();
        assert_eq!(found.pod.metadata.name, "many");
    }

    #[test]
    fn messages_name_the_containers_above_their_requests() {
        let threshold = |signal, amount| Threshold { signal, amount, grace: None, reclaim: None };
        let observed = |available, capacity| Observation { available, capacity };
        let memory = threshold(Signal::Memory, Amount::Absolute(100 << 20));
        let reached = Some((&memory, observed(50 << 20, 1 << 30)));
        assert_eq!(
            message(Signal::Memory, &usage("p", 0, "1Mi", 2 << 20), reached),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 2Mi, request is 1Mi, has larger consumption of memory. "
        );
        assert_eq!(
            message(Signal::Memory, &usage("p", 0, "4Mi", 1 << 20), None),
            "The node was low on resource: memory. "
        );
        let processes = threshold(Signal::Processes, Amount::Share(0.5));
        assert_eq!(
            message(Signal::Processes, &usage("p", 0, "1", 2), Some((&processes, observed(1500, 4096)))),
            "The node was low on resource: pids. Threshold quantity: 2Ki, available: 1500. "
        );
    }
}
