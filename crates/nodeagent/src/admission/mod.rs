//! Admission on the node: whether a pod may run here, beside the pods that run already.
//!
//! The API may bind a pod to the node that it cannot run: the scheduler was late, or was left out.
//!
//! | module | what it is |
//! |---|---|
//! | [`sysctls`] | kernel parameters that pods may set |
//! | [`apparmor`] | pods that wait for AppArmor |
//! | [`preemption`] | pods that make room for a critical one |

pub mod apparmor;
pub mod preemption;
pub mod sysctls;

use crate::pod_facts::{
    CPU, EPHEMERAL_STORAGE, MEMORY, QosClass, ResourceList, add_all, is_critical, is_static, pod_requests,
    qos_class,
};
use api::Quantity;
use api::core::v1::{Node, Pod, Taint, Toleration};
use api::node_selector::RequiredNodes;
use names::labels::TAINT_MEMORY_PRESSURE;
use names::node::OS;
use preemption::{PODS, Shortage, amount, victims};
use std::collections::BTreeMap;
use std::sync::Arc;
use sysctls::SysctlAllowlist;

/// The operating system of nodes, whatever their label says.
const NODE_OS: &str = "linux";
const MEMORY_PRESSURE: &str = "MemoryPressure";
/// The conditions of a node under which pods are not admitted.
const PRESSURES: [&str; 3] = [MEMORY_PRESSURE, "DiskPressure", "PIDPressure"];

/// Why a pod is rejected: the reason of its status and of the event, and the message of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

/// The node as admission sees it.
#[derive(Debug, Clone, Default)]
pub struct AdmissionNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub allocatable: ResourceList,
    /// The pressures that the node is under, by the names of their conditions.
    pub pressures: Vec<&'static str>,
}

impl From<&Node> for AdmissionNode {
    fn from(node: &Node) -> Self {
        let conditions = &node.status.conditions;
        let has = |name: &&str| conditions.iter().any(|it| it.type_ == *name && it.status == "True");
        AdmissionNode {
            pressures: PRESSURES.into_iter().filter(has).collect(),
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            taints: node.spec.taints.clone(),
            allocatable: node.status.allocatable.clone(),
        }
    }
}

/// What comes before the start of a pod that is admitted.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// The pods that end first, to make room for a critical one.
    pub victims: Vec<Arc<Pod>>,
    /// The resource that they make room of.
    pub resource: String,
}

fn rejection(reason: impl Into<String>, message: impl Into<String>) -> Rejection {
    Rejection { reason: reason.into(), message: message.into() }
}

/// Checks a pod against the pressures of the node, and its kernel parameters. A pod that passes may get resources of its
/// own.
pub fn precheck(pod: &Pod, node: &AdmissionNode, sysctls: &SysctlAllowlist) -> Result<(), Rejection> {
    if is_kept_out(pod, node) {
        let message = format!("The node had condition: [{}]. ", node.pressures.join(" "));
        return Err(rejection("Evicted", message));
    }
    let checked = sysctls.check(pod);
    checked.map_err(|why| rejection("SysctlForbidden", format!("forbidden sysctl: {why}")))
}

/// Whether the node is under a pressure that would evict the pod, or could. Critical pods run under any.
fn is_kept_out(pod: &Pod, node: &AdmissionNode) -> bool {
    match *node.pressures {
        [] => false,
        _ if is_critical(pod) => false,
        [MEMORY_PRESSURE] => {
            let (key, effect) = (TAINT_MEMORY_PRESSURE.to_owned(), "NoSchedule".to_owned());
            let taint = Taint { key, effect, ..Taint::default() };
            let is_tolerated = pod.spec.tolerations.iter().any(|it| tolerates(it, &taint));
            qos_class(pod) == QosClass::BestEffort && !is_tolerated
        }
        _ => true,
    }
}

/// Checks a pod against the node, its kernel parameters and the pods that are active there.
pub fn admit(
    pod: &Pod,
    node: &AdmissionNode,
    sysctls: &SysctlAllowlist,
    others: &[Arc<Pod>],
) -> Result<Admission, Rejection> {
    precheck(pod, node, sysctls)?;
    let lacks = lacking(pod, node, others);
    // a critical pod finds room, unless it cannot run here for another reason
    if let Some(lack) = lacks.first().filter(|_| !is_critical(pod)) {
        return Err(lack.rejection());
    }
    if let Some(name) = failed_predicate(pod, node, others) {
        return Err(rejection(name, format!("Predicate {name} failed")));
    }
    check_os(pod)?;
    check_user_namespace(pod)?;
    let Some(first) = lacks.first() else { return Ok(Admission::default()) };
    let shortages: Vec<Shortage> = lacks.iter().map(Lack::shortage).collect();
    let found = victims(pod, others, &shortages).map_err(|why| {
        let message = "Unexpected error while attempting to recover from admission failure: \
                       preemption: error finding a set of pods to preempt";
        rejection("UnexpectedAdmissionError", format!("{message}: {why}"))
    });
    Ok(Admission { victims: found?, resource: first.resource.clone() })
}

/// Checks the operating system that a pod is for, by its label and its field.
fn check_os(pod: &Pod) -> Result<(), Rejection> {
    if pod.metadata.labels.get(OS).is_some_and(|it| it != NODE_OS) {
        let message = format!("Failed to admit pod as the `{OS}` label doesn't match node label");
        return Err(rejection("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if pod.spec.os.as_ref().is_some_and(|it| it.name != NODE_OS) {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(rejection("PodOSNotSupported", message));
    }
    Ok(())
}

/// The agent requests no user namespaces, and some runtimes would run the pod without the one that it requests.
fn check_user_namespace(pod: &Pod) -> Result<(), Rejection> {
    if pod.spec.host_users == Some(false) {
        let message = "Failed to admit pod as this node makes no user namespaces";
        return Err(rejection("UserNamespacesNotSupported", message));
    }
    Ok(())
}

/// The first predicate that a pod fails, besides those of resources.
fn failed_predicate(pod: &Pod, node: &AdmissionNode, others: &[Arc<Pod>]) -> Option<&'static str> {
    if !RequiredNodes::new(pod).matches(&node.name, &node.labels) {
        return Some("NodeAffinity");
    }
    if !pod.spec.node_name.is_empty() && pod.spec.node_name != node.name {
        return Some("NodeName");
    }
    if others.iter().any(|other| has_port_conflict(pod, other)) {
        return Some("NodePorts");
    }
    let is_tolerated = |taint: &Taint| pod.spec.tolerations.iter().any(|it| tolerates(it, taint));
    let executes = node.taints.iter().filter(|it| it.effect == "NoExecute");
    let is_untolerated = !is_static(pod) && executes.into_iter().any(|it| !is_tolerated(it));
    is_untolerated.then_some("TaintToleration")
}

/// A resource of which the node has too little for a pod, with amounts as messages have them.
struct Lack {
    resource: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Lack {
    fn rejection(&self) -> Rejection {
        let Lack { resource, requested, used, capacity } = self;
        let message = format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        rejection(format!("OutOf{resource}"), message)
    }

    fn shortage(&self) -> Shortage {
        let missing = self.requested.saturating_sub(self.capacity.saturating_sub(self.used));
        Shortage { resource: self.resource.clone(), missing }
    }
}

/// The resources that do not suffice for a pod.
fn lacking(pod: &Pod, node: &AdmissionNode, others: &[Arc<Pod>]) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if let Some(capacity) = node.allocatable.get(PODS).map(Quantity::whole) {
        let used = i64::try_from(others.len()).unwrap_or(i64::MAX);
        if used >= capacity {
            lacks.push(Lack { resource: PODS.to_owned(), requested: 1, used, capacity });
        }
    }
    let mut used = ResourceList::new();
    for other in others {
        add_all(&mut used, &pod_requests(other));
    }
    let requests = pod_requests(pod);
    let first = [CPU, MEMORY, EPHEMERAL_STORAGE].map(str::to_owned);
    let rest = requests.keys().filter(|it| !first.contains(it)).cloned().collect::<Vec<_>>();
    for name in first.iter().chain(&rest) {
        let of = |list: &ResourceList| list.get(name).map_or(0, |it| amount(name, it));
        let requested = of(&requests);
        // a resource that the node does not have is the scheduler's business
        let is_native = !name.contains('/');
        if requested == 0 || !is_native && !node.allocatable.contains_key(name) {
            continue;
        }
        let (used, capacity) = (of(&used), of(&node.allocatable));
        if requested > capacity.saturating_sub(used) {
            lacks.push(Lack { resource: name.clone(), requested, used, capacity });
        }
    }
    lacks
}

/// Ports of the node that a pod takes: protocol, address, port.
fn host_ports(pod: &Pod) -> impl Iterator<Item = (&str, &str, i32)> {
    let ports = pod.spec.containers.iter().flat_map(|it| &it.ports).filter(|it| it.host_port > 0);
    ports.map(|it| {
        let protocol = if it.protocol.is_empty() { "TCP" } else { &*it.protocol };
        let ip = if it.host_ip.is_empty() { "0.0.0.0" } else { &*it.host_ip };
        (protocol, ip, it.host_port)
    })
}

fn has_port_conflict(pod: &Pod, other: &Pod) -> bool {
    let any = "0.0.0.0";
    host_ports(pod).any(|(protocol, ip, port)| {
        host_ports(other).any(|(their_protocol, their_ip, their_port)| {
            protocol == their_protocol
                && port == their_port
                && (ip == their_ip || ip == any || their_ip == any)
        })
    })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key = toleration.key.is_empty() || toleration.key == taint.key;
    let value = match &*toleration.operator {
        "Exists" => true,
        _ => !toleration.key.is_empty() && toleration.value == taint.value,
    };
    effect && key && value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &str) -> Arc<Pod> {
        Arc::new(api::from_json(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap())
    }

    fn node() -> AdmissionNode {
        let node: Node = api::from_json(
            br#"{"metadata":{"name":"n","labels":{"disk":"ssd"}},
                 "status":{"allocatable":{"cpu":"1850m","memory":"1Gi","pods":"3","example.com/gpu":"1","hugepages-2Mi":"0"}}}"#,
        )
        .unwrap();
        AdmissionNode::from(&node)
    }

    #[test]
    fn pods_are_rejected_with_reasons() {
        let others = [
            pod(
                r#"{"containers":[{"ports":[{"hostPort":80,"containerPort":80}],"resources":{"requests":{"cpu":"1"}}}]}"#,
            ),
            pod(r#"{"containers":[{"ports":[{"hostPort":81,"hostIP":"127.0.0.1"}]}]}"#),
        ];
        let cases = [
            (r#"{"containers":[{}]}"#, ""),
            (
                r#"{"os":{"name":"windows"}}"#,
                "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
            ),
            (
                r#"{"hostUsers":false}"#,
                "UserNamespacesNotSupported: Failed to admit pod as this node makes no user namespaces",
            ),
            (r#"{"hostUsers":true}"#, ""),
            (r#"{"nodeSelector":{"disk":"ssd"}}"#, ""),
            (r#"{"nodeSelector":{"no":"such"}}"#, "NodeAffinity: Predicate NodeAffinity failed"),
            (
                r#"{"containers":[{"resources":{"requests":{"cpu":"1000"}}}]}"#,
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000000, used: 1000, capacity: 1850",
            ),
            (
                r#"{"containers":[{"resources":{"requests":{"hugepages-2Mi":"2Mi"}}}]}"#,
                "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
            ),
            (r#"{"containers":[{"resources":{"requests":{"example.com/none":"5"}}}]}"#, ""),
            (
                r#"{"containers":[{"resources":{"requests":{"example.com/gpu":"5"}}}]}"#,
                "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 5, used: 0, capacity: 1",
            ),
            (r#"{"containers":[{"ports":[{"hostPort":80}]}]}"#, "NodePorts: Predicate NodePorts failed"),
            (r#"{"containers":[{"ports":[{"hostPort":80,"protocol":"UDP"}]}]}"#, ""),
            (r#"{"containers":[{"ports":[{"hostPort":81,"hostIP":"127.0.0.2"}]}]}"#, ""),
            (
                r#"{"securityContext":{"sysctls":[{"name":"vm.swappiness","value":"1"}]}}"#,
                "SysctlForbidden: forbidden sysctl: \"vm.swappiness\" not allowlisted",
            ),
            (r#"{"nodeName":"other"}"#, "NodeName: Predicate NodeName failed"),
        ];
        for (spec, expected) in cases {
            let result = admit(&pod(spec), &node(), &SysctlAllowlist::default(), &others);
            let text = result.err().map(|it| format!("{}: {}", it.reason, it.message)).unwrap_or_default();
            assert_eq!(text, expected, "{spec}");
        }
        let full = [others[0].clone(), others[1].clone(), pod("{}")];
        let reason = admit(&pod("{}"), &node(), &SysctlAllowlist::default(), &full).err().map(|it| it.reason);
        assert_eq!(reason.as_deref(), Some("OutOfpods"));
    }

    #[test]
    fn a_pod_of_another_operating_system_is_rejected() {
        let check = |labels: &str, spec: &str, expected: &str| {
            let text = format!(r#"{{"metadata":{{"labels":{{{labels}}}}},"spec":{spec}}}"#);
            let pod: Pod = api::from_json(text.as_bytes()).unwrap();
            let result = admit(&pod, &node(), &SysctlAllowlist::default(), &[]);
            let text = result.err().map(|it| format!("{}: {}", it.reason, it.message)).unwrap_or_default();
            assert_eq!(text, expected, "{labels} {spec}");
        };
        let label = "PodOSSelectorNodeLabelDoesNotMatch: \
                     Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        let field = "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS";
        check("", r#"{"os":{"name":"linux"}}"#, "");
        check(r#""kubernetes.io/os":"linux""#, "{}", "");
        check(r#""kubernetes.io/os":"windows""#, "{}", label);
        check(r#""kubernetes.io/os":"windows""#, r#"{"os":{"name":"windows"}}"#, label);
        check("", r#"{"os":{"name":"windows"}}"#, field);
        // the predicates come first
        check("", r#"{"os":{"name":"windows"},"nodeName":"x"}"#, "NodeName: Predicate NodeName failed");
    }

    #[test]
    fn a_critical_pod_finds_room_among_others() {
        let other = |name: &str, cpu: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"priority":7,"containers":[
                    {{"ports":[{{"hostPort":80}}],"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}"#
            );
            Arc::new(api::from_json::<Pod>(text.as_bytes()).unwrap())
        };
        let others = [other("small", "600m"), other("large", "900m"), other("none", "0")];
        let check = |fields: &str, expected: &str| {
            let requests = r#""resources":{"requests":{"cpu":"700m"}}"#;
            let critical = format!(
                r#"{{"priority":2000000000{fields},"containers":[{{{requests}}},{{"ports":[{{"hostPort":81}}]}}]}}"#
            );
            let text = match admit(&pod(&critical), &node(), &SysctlAllowlist::default(), &others) {
                Ok(Admission { victims, resource }) => {
                    let names = victims.iter().map(|it| it.metadata.name.clone());
                    format!("{resource}: {}", names.collect::<Vec<_>>().join(" "))
                }
                Err(it) => format!("{}: {}", it.reason, it.message),
            };
            assert_eq!(text, expected, "{fields}");
        };
        // a pod less, and its CPUs
        check("", "pods: small");
        // nothing ends for a pod that cannot run here
        check(r#","nodeName":"other""#, "NodeName: Predicate NodeName failed");
        let os = "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS";
        check(r#","os":{"name":"windows"}"#, os);
        check(
            r#","overhead":{"memory":"2Gi"}"#,
            "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: \
             preemption: error finding a set of pods to preempt: \
             no set of running pods found to reclaim resources: [(res: memory, q: 1073741824), ]",
        );
    }

    #[test]
    fn a_node_under_pressure_takes_no_pods_that_it_would_evict() {
        let requests = r#"{"containers":[{"resources":{"requests":{"cpu":"1m"}}}]}"#;
        let toleration = |key: &str| {
            format!(
                r#"{{"containers":[{{}}],"tolerations":[{{"key":"node.kubernetes.io/{key}","operator":"Exists"}}]}}"#
            )
        };
        let (tolerant, other) = (toleration("memory-pressure"), toleration("disk-pressure"));
        let pods = [r#"{"containers":[{}]}"#, requests, &tolerant, &other, r#"{"priority":2000000000}"#];
        let cases = [
            (&[][..], "", [true; 5]),
            (&["MemoryPressure"], "MemoryPressure", [false, true, true, false, true]),
            (&["DiskPressure"], "DiskPressure", [false, false, false, false, true]),
            (&["PIDPressure"], "PIDPressure", [false, false, false, false, true]),
            (
                &["PIDPressure", "MemoryPressure"],
                "MemoryPressure PIDPressure",
                [false, false, false, false, true],
            ),
        ];
        for (pressures, shown, expected) in cases {
            let condition = |name: &str| {
                let status = if pressures.contains(&name) { "True" } else { "False" };
                format!(r#"{{"type":"{name}","status":"{status}"}}"#)
            };
            let all = ["Ready", "PIDPressure", "DiskPressure", "MemoryPressure"].map(condition).join(",");
            let node = format!(r#"{{"status":{{"allocatable":{{"cpu":"1"}},"conditions":[{all}]}}}}"#);
            let node: Node = api::from_json(node.as_bytes()).unwrap();
            for (spec, is_admitted) in pods.iter().zip(expected) {
                let node = AdmissionNode::from(&node);
                let refused = admit(&pod(spec), &node, &SysctlAllowlist::default(), &[]).err();
                let text = refused.map(|it| format!("{}: {}", it.reason, it.message));
                let message = format!("Evicted: The node had condition: [{shown}]. ");
                assert_eq!(text, (!is_admitted).then_some(message), "{spec}");
            }
        }
    }
}
