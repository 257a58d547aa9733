//! NodePorts: keeps pods off nodes whose pods use the same host ports.

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;

pub fn filter(pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    match pod.host_ports.iter().any(|port| node.has_port_conflict(port)) {
        false => Ok(()),
        true => Err(Rejection::unschedulable("node(s) didn't have free ports for the requested pod ports")),
    }
}
