//! Facts that follow from the spec of a pod: its QoS class, requests and limits, its priority, its name in messages.
//!
//! Everything here is pure.

use api::Quantity;
use api::core::v1::{Container, EphemeralContainer, Pod};
use std::collections::BTreeMap;

/// Amounts by resource.
pub type ResourceList = BTreeMap<String, Quantity>;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Threads, which are held back from pods and are no resource of theirs.
pub const PID: &str = "pid";
const HUGEPAGES: &str = "hugepages-";

/// The priority from which a pod is critical.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The priority class of pods without which a node does not work.
const NODE_CRITICAL: &str = "system-node-critical";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    /// The text of `status.qosClass`.
    pub fn text(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// `Guaranteed` if the limits of every container are its requests, `BestEffort` if no container has any.
pub fn qos_class(pod: &Pod) -> QosClass {
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    let mut is_limited = true;
    for container in pod.spec.containers.iter().chain(&pod.spec.init_containers) {
        let compute = |list: &ResourceList| -> ResourceList {
            let counts = |(name, amount): &(&String, &Quantity)| {
                [CPU, MEMORY].contains(&name.as_str()) && amount.sign() > 0
            };
            list.iter().filter(counts).map(|(name, amount)| (name.clone(), amount.clone())).collect()
        };
        let limited = compute(&container.resources.limits);
        is_limited &= limited.len() == 2;
        add_all(&mut limits, &limited);
        add_all(&mut requests, &compute(&container.resources.requests));
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if is_limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// What the whole pod requests: the sum of its containers or the largest init container, plus the overhead.
pub fn pod_requests(pod: &Pod) -> ResourceList {
    let mut sum = total(pod, |container| &container.resources.requests);
    add_all(&mut sum, &pod.spec.overhead);
    sum
}

/// The limits of the whole pod, like [`pod_requests`]; overhead counts for resources that have a limit.
pub fn pod_limits(pod: &Pod) -> ResourceList {
    let mut sum = total(pod, |container| &container.resources.limits);
    for (name, amount) in &pod.spec.overhead {
        if let Some(limit) = sum.get_mut(name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(amount);
        }
    }
    sum
}

fn total(pod: &Pod, list: impl Fn(&Container) -> &ResourceList) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in &pod.spec.containers {
        add_all(&mut sum, list(container));
    }
    for (name, amount) in pod.spec.init_containers.iter().flat_map(list) {
        let largest = sum.entry(name.clone()).or_insert_with(|| amount.clone());
        if *amount > *largest {
            *largest = amount.clone();
        }
    }
    sum
}

/// Adds the amounts of a list to another.
pub fn add_all(sum: &mut ResourceList, list: &ResourceList) {
    for (name, amount) in list {
        match sum.get_mut(name) {
            Some(current) => *current = current.plus(amount),
            None => {
                sum.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Whether a resource is neither of the API itself nor of a quota: it has a domain of its own.
pub fn is_extended_resource(name: &str) -> bool {
    !apimachinery::resource_list::is_native(name)
        && !name.starts_with("requests.")
        && schema::format::qualified_name(&format!("requests.{name}")).is_empty()
}

/// The page size in bytes of a resource such as `hugepages-2Mi`.
pub fn hugepage_size(resource: &str) -> Option<i64> {
    resource.strip_prefix(HUGEPAGES)?.parse::<Quantity>().ok().map(|size| size.whole())
}

/// The resource of a page size in bytes.
pub fn hugepage_resource(size: i64) -> String {
    format!("{HUGEPAGES}{}", Quantity::from_bytes(size))
}

/// A page size in bytes as cgroup files spell it: `2MB`.
pub fn hugepage_unit(size: u64) -> String {
    let mut size = size;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if size < 1024 || !size.is_multiple_of(1024) {
            return format!("{size}{unit}");
        }
        size /= 1024;
    }
    format!("{size}PB")
}

/// Whether the pod comes from a file or a URL, by the annotation that its source sets.
pub fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.get(names::node::CONFIG_SOURCE);
    source.is_some_and(|source| source != "api")
}

/// Whether the pod is the copy of a static pod in the API.
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.contains_key(names::node::CONFIG_MIRROR)
}

/// Whether the pod may take the place of others on a full node.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || pod.spec.priority.is_some_and(|it| it >= CRITICAL_PRIORITY)
}

/// Whether a pod may take the place of another one on a full node.
pub fn is_preemptable(preemptor: &Pod, pod: &Pod) -> bool {
    let priorities = preemptor.spec.priority.zip(pod.spec.priority);
    is_critical(preemptor) && !is_critical(pod) || priorities.is_some_and(|(higher, lower)| higher > lower)
}

/// Whether the node does not work without the pod.
pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && pod.spec.priority_class_name == NODE_CRITICAL
}

/// Name, namespace and uid, as messages have them: `web_default(1234)`.
pub fn description(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}_{}({})", meta.name, meta.namespace, meta.uid)
}

/// An ephemeral container with the fields of the others.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let it = ephemeral.clone();
    Container {
        name: it.name,
        image: it.image,
        command: it.command,
        args: it.args,
        working_dir: it.working_dir,
        ports: it.ports,
        env_from: it.env_from,
        env: it.env,
        resources: it.resources,
        volume_mounts: it.volume_mounts,
        volume_devices: it.volume_devices,
        liveness_probe: it.liveness_probe,
        readiness_probe: it.readiness_probe,
        startup_probe: it.startup_probe,
        lifecycle: it.lifecycle,
        termination_message_path: it.termination_message_path,
        termination_message_policy: it.termination_message_policy,
        image_pull_policy: it.image_pull_policy,
        security_context: it.security_context,
        stdin: it.stdin,
        stdin_once: it.stdin_once,
        tty: it.tty,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;

    fn pod(spec: &str) -> Pod {
        from_json(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn the_class_follows_from_resources() {
        let check = |spec: &str, expected: &str| assert_eq!(qos_class(&pod(spec)).text(), expected, "{spec}");
        check(r#"{"containers":[{}]}"#, "BestEffort");
        check(r#"{"containers":[{"resources":{"requests":{"cpu":"0","memory":"0"}}}]}"#, "BestEffort");
        check(r#"{"containers":[{"resources":{"requests":{"memory":"8Gi"}}}]}"#, "Burstable");
        let equal = r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1000m","memory":"1Gi"}}"#;
        check(&format!(r#"{{"containers":[{{"resources":{equal}}}]}}"#), "Guaranteed");
        check(&format!(r#"{{"containers":[{{"resources":{equal}}}],"initContainers":[{{}}]}}"#), "Burstable");
    }

    #[test]
    fn a_pod_needs_the_sum_of_its_containers_or_its_largest_init_container() {
        let pod = pod(r#"{"overhead":{"cpu":"10m"},
                "containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Gi"},"limits":{"memory":"1Gi"}}},
                              {"resources":{"requests":{"cpu":"200m"}}}],
                "initContainers":[{"resources":{"requests":{"cpu":"250m","memory":"2Gi"}}}]}"#);
        let requests = pod_requests(&pod);
        assert_eq!((requests[CPU].milli(), requests[MEMORY].to_string()), (310, "2Gi".to_owned()));
        assert_eq!(pod_limits(&pod).get(CPU), None);
    }

    #[test]
    fn page_sizes_have_two_spellings() {
        assert_eq!(hugepage_size("hugepages-2Mi"), Some(2 << 20));
        assert_eq!(hugepage_size("memory"), None);
        assert_eq!(hugepage_resource(1 << 30), "hugepages-1Gi");
        assert_eq!((hugepage_unit(2 << 20), hugepage_unit(64 << 10)), ("2MB".to_owned(), "64KB".to_owned()));
    }

    #[test]
    fn extended_resources_have_a_domain() {
        for good in ["example.com/gpu", "vendor.example/x-y.z"] {
            assert!(is_extended_resource(good), "{good}");
        }
        for bad in ["gpu", "cpu", "requests.example.com/gpu", "example.com/", "a b/c", ""] {
            assert!(!is_extended_resource(bad), "{bad}");
        }
    }
}
