//! NodeName: a pod with `spec.nodeName` goes to that node only.

use crate::framework::{FilterResult, Rejection};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;

pub fn filter(pod: &PodInfo, node: &NodeInfo) -> FilterResult {
    let name = &pod.pod.spec.node_name;
    match name.is_empty() || name == node.name() {
        true => Ok(()),
        false => Err(Rejection::unresolvable("node(s) didn't match the requested node name")),
    }
}
