//! The objects of the benchmark: nodes, and the pods of each mode.

use clap::ValueEnum;
use names::Names;
use names::labels::{HOSTNAME, TOPOLOGY_ZONE};
use serde_json::{Value, json};

pub const NAMESPACE: &str = "bench";
const ZONES: usize = 3;
/// The priority classes of preempted pods and of preemptors.
pub const PRIORITIES: [(&str, i32); 2] = [("bench-low", 1), ("bench-high", 1000)];

/// The constraints of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// No constraints, no owner
    Basic,
    /// Pods of a replica set without constraints: default spreading applies
    Deployment,
    /// At most one pod more in one zone than in another, and rather on different nodes
    Spread,
    /// One pod per node
    Anti,
    /// Rather in one zone, rather on different nodes
    Prefaff,
    /// Every pod takes the place of one of lower priority
    Preempt,
}

impl Mode {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

pub fn node(nth: usize, storm: usize) -> Value {
    let name = node_name(nth);
    let resources = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "500Gi"});
    let pool = if nth < storm { "storm" } else { "rest" };
    json!({
        "metadata": {"name": name, "labels": {
            HOSTNAME: name, TOPOLOGY_ZONE: format!("zone-{}", nth % ZONES), "pool": pool,
        }},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub fn node_name(nth: usize) -> String {
    format!("node-{nth:05}")
}

fn labels(mode: Mode) -> Value {
    json!({"app": format!("bench-{}", mode.name())})
}

/// A pod of a mode.
pub fn pod(mode: Mode, nth: usize) -> Value {
    let mut pod = plain(&mode.name(), nth, labels(mode));
    let spec = &mut pod["spec"];
    let selector = json!({"matchLabels": labels(mode)});
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": selector});
    let preferred = |key: &str| json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": term(key)}]});
    match mode {
        Mode::Basic => {}
        Mode::Deployment => {
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "bench", "controller": true,
                "uid": "11111111-1111-1111-1111-111111111111",
            }]);
        }
        Mode::Spread => {
            let constraint = |key: &str, action: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector});
            spec["topologySpreadConstraints"] =
                json!([constraint(TOPOLOGY_ZONE, "DoNotSchedule"), constraint(HOSTNAME, "ScheduleAnyway")]);
        }
        Mode::Anti => {
            spec["affinity"] = json!({"podAntiAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": [term(HOSTNAME)]}});
        }
        Mode::Prefaff => {
            spec["affinity"] =
                json!({"podAffinity": preferred(TOPOLOGY_ZONE), "podAntiAffinity": preferred(HOSTNAME)});
        }
        Mode::Preempt => {
            spec["nodeSelector"] = json!({"pool": "storm"});
            spec["priorityClassName"] = PRIORITIES[1].0.into();
            spec["containers"][0]["resources"]["requests"]["cpu"] = "30".into();
        }
    }
    pod
}

/// A pod that takes most of a node, to be preempted.
pub fn low_pod(nth: usize) -> Value {
    let mut pod = assigned_pod(nth, usize::MAX);
    pod["metadata"]["name"] = format!("low-{nth:06}").into();
    pod["spec"]["priorityClassName"] = PRIORITIES[0].0.into();
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "30".into();
    pod
}

/// A pod that has its node already.
pub fn assigned_pod(nth: usize, nodes: usize) -> Value {
    let mut pod = plain("assigned", nth, json!({"app": format!("assigned-{}", nth / 100)}));
    pod["spec"]["nodeName"] = node_name(nth % nodes).into();
    pod
}

fn plain(prefix: &str, nth: usize, labels: Value) -> Value {
    let requests = json!({"cpu": "100m", "memory": "128Mi"});
    json!({
        "metadata": {"name": format!("{prefix}-{nth:06}"), "namespace": NAMESPACE, "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "c", "image": "registry.test/app:1", "resources": {"requests": requests}},
        ]},
    })
}

/// The replica set that owns the pods of [`Mode::Deployment`].
pub fn replica_set() -> Value {
    let (labels, pod) = (labels(Mode::Deployment), pod(Mode::Basic, 0));
    json!({
        "metadata": {"name": "bench", "namespace": NAMESPACE},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]}},
    })
}

/// The path of the objects of a kind.
pub fn path(resource: &str) -> String {
    match resource {
        "pods" => format!("/api/v1/namespaces/{NAMESPACE}/pods"),
        "replicasets" => format!("/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"),
        "priorityclasses" => {
            format!("/apis/{}/v1/priorityclasses", Names::kubernetes().group("scheduling"))
        }
        other => format!("/api/v1/{other}"),
    }
}
