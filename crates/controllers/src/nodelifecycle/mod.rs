//! The life of nodes: which of them are heard of, which take pods, and which are emptied.
//!
//! | part | what it does |
//! |---|---|
//! | `monitor.rs` | looks at all nodes every few seconds: says of those that are not heard of that nobody knows how they are, and has those emptied that are not ready |
//! | `health.rs` | whether a node was heard of lately |
//! | `zones.rs` | how fast nodes of a zone are emptied, if at all |
//! | `taints.rs` | which taints and labels follow from what a node is |
//! | `upkeep.rs` | keeps taints against new pods, and labels |
//! | `unready.rs` | says of pods on lost nodes that they are not ready |
//! | `evict.rs` | removes pods that do not bear a taint against all pods |
//!
//! What always holds: what is decided is decided from the node as it is; nothing of it is kept but who was heard of
//! when, and who waits.

mod evict;
mod health;
mod metrics;
mod monitor;
mod options;
mod taints;
mod task;
mod unready;
mod upkeep;
mod zones;

pub use options::Options;
pub use zones::Rates;

use crate::Context;
use crate::pods::placed;
use client::Change;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::sync::Arc;
use tokio::sync::Notify;

pub async fn run(context: Context, options: Options) {
    let (nodes, pods) = (context.informer::<Node>(), context.informer::<Pod>());
    let leases = context.informer_of::<Lease>(&context.names.node_lease_namespace(), "");
    let taint_names = Arc::new(taints::TaintNames::new(&context.names));
    placed::index(&pods);
    nodes.synced().await;
    leases.synced().await;
    let upkeep = upkeep::Upkeep::listen(&context, &nodes, &taint_names);
    let unready = unready::Unready::listen(&context, &nodes, &pods);
    let evictor = evict::Evictor::listen(&context, &nodes, &pods, &options);
    let news = Arc::<Notify>::default();
    let come = news.clone();
    nodes.listen(move |change| {
        if matches!(change, Change::Added(_)) {
            come.notify_one();
        }
    });
    pods.synced().await;
    let monitor = monitor::Monitor::new(context, options, nodes, leases, taint_names);
    tokio::join!(monitor.run(news), upkeep.run(), unready.run(), evictor.run());
}
