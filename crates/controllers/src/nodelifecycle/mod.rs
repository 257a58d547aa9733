//! The node lifecycle controller: detects lost nodes, keeps the taints of nodes, and evicts pods.
//!
//! | part | what it does |
//! |---|---|
//! | `monitor.rs` | checks all nodes every few seconds: marks nodes without heartbeats, and taints nodes that are not ready |
//! | `health.rs` | heartbeats of a node |
//! | `zones.rs` | the eviction rate of each zone |
//! | `taints.rs` | the taints and labels that follow from conditions |
//! | `condition_taints.rs` | keeps `NoSchedule` taints, and labels |
//! | `unready.rs` | marks pods on lost nodes as not ready |
//! | `evict.rs` | evicts pods that do not tolerate a `NoExecute` taint |
//!
//! Invariant: decisions follow from the node as it is. The only other state is the time of the last heartbeats and the
//! order of nodes that wait for eviction.

mod condition_taints;
mod evict;
mod health;
mod metrics;
mod monitor;
mod options;
mod taints;
mod task;
mod unready;
mod zones;

pub use options::Options;
pub use zones::Rates;

use crate::Context;
use crate::pods::placed;
use api::coordination::v1::Lease;
use api::core::v1::{Node, Pod};
use client::Change;
use std::sync::Arc;
use tokio::sync::Notify;

pub async fn run(context: Context, options: Options) {
    let (nodes, pods) = (context.informer::<Node>(), context.informer::<Pod>());
    let leases = context.informer_of::<Lease>(&context.names.node_lease_namespace(), "");
    let taint_names = Arc::new(taints::TaintNames::new(&context.names));
    placed::index(&pods);
    nodes.synced().await;
    leases.synced().await;
    let condition_taints = condition_taints::ConditionTaints::listen(&context, &nodes, &taint_names);
    let unready = unready::UnreadyMarker::listen(&context, &nodes, &pods);
    let evictor = evict::Evictor::listen(&context, &nodes, &pods, &options);
    let node_added = Arc::<Notify>::default();
    let added = node_added.clone();
    nodes.listen(move |change| {
        if matches!(change, Change::Added(_)) {
            added.notify_one();
        }
    });
    pods.synced().await;
    let monitor = monitor::Monitor::new(context, options, nodes, leases, taint_names);
    tokio::join!(monitor.run(node_added), condition_taints.run(), unready.run(), evictor.run());
}
