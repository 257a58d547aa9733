//! Pods by the node that they are on.

use super::rank;
use client::Informer;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

const BY_NODE: &str = "node";

/// Pods are found by their node from now on.
pub fn index(pods: &Informer<Pod>) {
    pods.index(BY_NODE, |pod| rank::node(pod).map(str::to_owned).into_iter().collect());
}

/// The pods on a node.
pub fn on(pods: &Informer<Pod>, node: &str) -> Vec<Arc<Pod>> {
    pods.by(BY_NODE, node)
}
