//! Node IPAM: allocates the pod CIDRs of nodes from the cluster networks, one of each network.
//!
//! Invariants: ranges of nodes overlap neither with each other nor with service networks; a node keeps its ranges
//! until it is gone (see `allocations.rs`). Without a cluster network the loop does nothing.

mod allocations;
mod cidrs;
mod metrics;
mod options;

pub use cidrs::Pool;
pub use options::Options;

use crate::Context;
use crate::nodes::{self, Part};
use allocations::{Allocations, pod_cidrs};
use api::Resource;
use api::core::v1::Node;
use client::{Action, Change, Failure, Informer, Queue, Reconcile, run};
use metrics::CidrMetrics;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;

const WORKERS: usize = 8;

struct Allocator {
    context: Context,
    nodes: Informer<Node>,
    allocations: Arc<Mutex<Allocations>>,
    queue: Queue<String>,
}

pub async fn run(context: Context, options: Options) {
    if options.pools.is_empty() {
        return std::future::pending().await;
    }
    let allocations = Allocations::new(&options, CidrMetrics::new(&context.metrics));
    let (allocations, queue) = (Arc::new(Mutex::new(allocations)), Queue::new(&context.world));
    let formatted = allocations.clone();
    metrics::show_usage(&context.metrics, move |visit| formatted.lock().each(visit));
    let nodes = context.informer::<Node>();
    let (changed, held) = (queue.clone(), allocations.clone());
    nodes.listen(move |change| {
        let node = change.object();
        let (needs, unserved) = match change {
            Change::Deleted(node) => (false, held.lock().release(node.name())),
            Change::Added(node) | Change::Updated { new: node, .. } => held.lock().observe(node),
        };
        let is_new = matches!(change, Change::Added(_))
            || matches!(change, Change::Updated { old, .. }
            if old.uid() != node.uid() || !pod_cidrs(old).is_empty());
        unserved.into_iter().for_each(|name| changed.add(name));
        if needs && is_new {
            changed.add(node.name().to_owned());
        }
    });
    // all existing ranges must be known before the first allocation
    nodes.synced().await;
    let allocator = Allocator { context, nodes, allocations, queue: queue.clone() };
    run::run(Arc::new(allocator), queue, WORKERS).await;
}

impl Reconcile for Allocator {
    type Key = String;

    fn name(&self) -> &'static str {
        "nodeipam"
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Failure> {
        let Some(node) = self.nodes.get(&nodes::key(name)) else { return Ok(Action::AwaitChange) };
        if !pod_cidrs(&node).is_empty() || node.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let events = &self.context.events;
        let Some(ranges) = self.allocations.lock().allocate(&node) else {
            nodes::record_state(events, &node, "CIDRNotAvailable");
            return Ok(Action::AwaitChange);
        };
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let decide = |node: &Node| {
            let change = json!({"spec": {"podCIDR": ranges.first(), "podCIDRs": ranges}});
            pod_cidrs(node).is_empty().then_some(change)
        };
        let patched = nodes::patch(&self.context.client, &node, Part::Main, decide).await;
        // the node may have been deleted before the allocation
        if self.nodes.get(&nodes::key(name)).is_none() {
            let unserved = self.allocations.lock().release(name);
            unserved.into_iter().for_each(|name| self.queue.add(name));
        }
        if let Err(why) = patched {
            if !why.is(409) {
                nodes::record_state(events, &node, "CIDRAssignmentFailed");
            }
            return Err(why);
        }
        Ok(Action::AwaitChange)
    }
}
