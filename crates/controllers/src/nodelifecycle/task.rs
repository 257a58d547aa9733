//! Queue keys of loops that reconcile the pods of nodes.

use crate::pods::placed;
use api::core::v1::Pod;
use client::{Informer, Key, Queue};
use std::fmt;

/// A node whose pods are to be reconciled, or one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// All pods of a node.
    Node(String),
    Pod(Key),
}

impl fmt::Display for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Node(name) => write!(out, "node {name}"),
            Task::Pod(key) => key.fmt(out),
        }
    }
}

/// Adds all pods of a node to a queue.
pub(super) fn each_pod(pods: &Informer<Pod>, node: &str, queue: &Queue<Task>) {
    placed::on(pods, node).iter().for_each(|pod| queue.add(Task::Pod(Key::of(&**pod))));
}

/// The number of nodes or pods that are written concurrently.
pub(super) const AT_ONCE: usize = 8;
