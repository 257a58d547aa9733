//! Admission on the node: whether a pod may run here, beside the pods that run already.
//!
//! The API may bind a pod to the node that it cannot run: the scheduler was late, or was left out.
//!
//! | module | what it is |
//! |---|---|
//! | [`sysctls`] | kernel parameters that pods may set |
//! | [`apparmor`] | pods that wait for AppArmor |

pub mod apparmor;
pub mod sysctls;

use crate::pod_facts::{CPU, EPHEMERAL_STORAGE, MEMORY, ResourceList, add_all, is_static, pod_requests};
use api::Quantity;
use api::core::v1::{Node, Pod, Taint, Toleration};
use api::node_selector::RequiredNodes;
use std::collections::BTreeMap;
use std::sync::Arc;
use sysctls::SysctlAllowlist;

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
}

impl From<&Node> for AdmissionNode {
    fn from(node: &Node) -> Self {
        AdmissionNode {
            name: node.metadata.name.clone(),
            labels: node.metadata.labels.clone(),
            taints: node.spec.taints.clone(),
            allocatable: node.status.allocatable.clone(),
        }
    }
}

fn reject(reason: impl Into<String>, message: impl Into<String>) -> Result<(), Rejection> {
    Err(Rejection { reason: reason.into(), message: message.into() })
}

/// Checks a pod against the node, its kernel parameters, and the pods that are active there.
pub fn admit(
    pod: &Pod,
    node: &AdmissionNode,
    sysctls: &SysctlAllowlist,
    others: &[Arc<Pod>],
) -> Result<(), Rejection> {
    if let Err(why) = sysctls.check(pod) {
        return reject("SysctlForbidden", format!("forbidden sysctl: {why}"));
    }
    if pod.spec.os.as_ref().is_some_and(|it| !it.name.is_empty() && it.name != "linux") {
        return reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    admit_resources(pod, node, others)?;
    let predicate = |name: &str| reject(name, format!("Predicate {name} failed"));
    if !RequiredNodes::new(pod).matches(&node.name, &node.labels) {
        return predicate("NodeAffinity");
    }
    if !pod.spec.node_name.is_empty() && pod.spec.node_name != node.name {
        return predicate("NodeName");
    }
    if others.iter().any(|other| has_port_conflict(pod, other)) {
        return predicate("NodePorts");
    }
    let is_tolerated = |taint: &Taint| pod.spec.tolerations.iter().any(|it| tolerates(it, taint));
    let executes = node.taints.iter().filter(|it| it.effect == "NoExecute");
    if !is_static(pod) && executes.into_iter().any(|it| !is_tolerated(it)) {
        return predicate("TaintToleration");
    }
    Ok(())
}

fn admit_resources(pod: &Pod, node: &AdmissionNode, others: &[Arc<Pod>]) -> Result<(), Rejection> {
    let insufficient = |name: &str, requested: i64, used: i64, capacity: i64| {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        reject(format!("OutOf{name}"), message)
    };
    if let Some(capacity) = node.allocatable.get("pods").map(Quantity::whole) {
        let used = others.len() as i64;
        if used + 1 > capacity {
            return insufficient("pods", 1, used, capacity);
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
        let amount = |list: &ResourceList| {
            list.get(name).map_or(0, |it| if name == CPU { it.milli() } else { it.whole() })
        };
        let requested = amount(&requests);
        // a resource that the node does not have is the scheduler's business
        let is_native = !name.contains('/');
        if requested == 0 || !is_native && !node.allocatable.contains_key(name) {
            continue;
        }
        let (used, capacity) = (amount(&used), amount(&node.allocatable));
        if requested > capacity - used {
            return insufficient(name, requested, used, capacity);
        }
    }
    Ok(())
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
}
