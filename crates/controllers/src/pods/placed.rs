//! The index of pods by node.

use super::rank;
use api::core::v1::Pod;
use client::Informer;
use std::sync::Arc;

const BY_NODE: &str = "node";

/// Adds the index to an informer.
pub fn index(pods: &Informer<Pod>) {
    pods.index(BY_NODE, |pod| rank::node(pod).map(str::to_owned).into_iter().collect());
}

/// The pods on a node.
pub fn on(pods: &Informer<Pod>, node: &str) -> Vec<Arc<Pod>> {
    pods.by(BY_NODE, node)
}
