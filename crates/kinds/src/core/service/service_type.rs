//! The type of a service, the fields that it requires, and comparisons of fields.

use crate::read;
use schema::{Value, decode};

pub(super) fn kind(service: &Value) -> &str {
    service.text(&["spec", "type"])
}

pub(super) fn needs_address(service: &Value) -> bool {
    kind(service) != "ExternalName"
}

pub(super) fn needs_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// Whether ports without a node port get one.
pub(super) fn wants_node_ports(service: &Value) -> bool {
    let requested = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    kind(service) == "NodePort" || kind(service) == "LoadBalancer" && requested.unwrap_or(true)
}

pub(super) fn needs_health_port(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && service.text(&["spec", "externalTrafficPolicy"]) == "Local"
}

pub(super) fn has_internal_traffic(service: &Value) -> bool {
    matches!(kind(service), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// The texts of a list.
pub(super) fn texts(service: &Value, path: &[&str]) -> Vec<String> {
    service.items(path).iter().map(|it| read::text(it).to_owned()).collect()
}

/// Whether a field has the same value in both, where zero counts as absent.
pub(super) fn same(new: &Value, old: &Value, path: &[&str]) -> bool {
    let present = |it: &Value| it.at(path).filter(|value| !decode::is_zero(value)).cloned();
    present(new) == present(old)
}
