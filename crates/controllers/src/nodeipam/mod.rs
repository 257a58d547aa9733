//! Addresses for the pods of nodes: each node gets a range out of the cluster's network, or one out of each of two.
//!
//! What always holds: no two nodes hold the same addresses, nor do services; a node keeps its range until it is gone. See
//! `held.rs`. Where no network is given nothing is done.

mod cidrs;
mod held;
mod metrics;
mod options;

pub use cidrs::Pool;
pub use options::Options;

use crate::Context;
use crate::nodes::{self, Part};
use client::{Action, Change, Failure, Informer, Queue, Reconcile, run};
use held::{Ranges, written};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use metrics::CidrMetrics;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;

const WORKERS: usize = 8;

struct Allocator {
    context: Context,
    nodes: Informer<Node>,
    ranges: Arc<Mutex<Ranges>>,
    queue: Queue<String>,
}

pub async fn run(context: Context, options: Options) {
    if options.pools.is_empty() {
        return std::future::pending().await;
    }
    let ranges = Ranges::new(&options, CidrMetrics::new(&context.metrics));
    let (ranges, queue) = (Arc::new(Mutex::new(ranges)), Queue::default());
    let held = ranges.clone();
    metrics::show_usage(&context.metrics, move |visit| held.lock().each(visit));
    let nodes = context.informer::<Node>();
    let (news, held) = (queue.clone(), ranges.clone());
    nodes.listen(move |change| {
        let node = change.object();
        let (needs, freed) = match change {
            Change::Deleted(node) => (false, held.lock().gone(&node.name_any())),
            Change::Added(node) | Change::Updated { new: node, .. } => held.lock().see(node),
        };
        let is_new = matches!(change, Change::Added(_))
            || matches!(change, Change::Updated { old, .. }
            if old.metadata.uid != node.metadata.uid || !written(old).is_empty());
        freed.into_iter().for_each(|name| news.add(name));
        if needs && is_new {
            news.add(node.name_any());
        }
    });
    // what is taken must be known before anything is given
    nodes.synced().await;
    let this = Allocator { context, nodes, ranges, queue: queue.clone() };
    run::run(Arc::new(this), queue, WORKERS).await;
}

impl Reconcile for Allocator {
    type Key = String;

    fn name(&self) -> &'static str {
        "nodeipam"
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Failure> {
        let Some(node) = self.nodes.get(&nodes::key(name)) else { return Ok(Action::AwaitChange) };
        if !written(&node).is_empty() || node.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let events = &self.context.events;
        let Some(ranges) = self.ranges.lock().choose(&node) else {
            nodes::tell_state(events, &node, "CIDRNotAvailable");
            return Ok(Action::AwaitChange);
        };
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let decide = |node: &Node| {
            let change = json!({"spec": {"podCIDR": ranges.first(), "podCIDRs": ranges}});
            written(node).is_empty().then_some(change)
        };
        let given = nodes::patch(&self.context.client, &node, Part::Main, decide).await;
        // it may have gone before it was given anything
        let now = self.nodes.get(&nodes::key(name));
        if now.is_none() {
            let freed = self.ranges.lock().gone(name);
            freed.into_iter().for_each(|name| self.queue.add(name));
        }
        if let Err(why) = given {
            if !why.is(409) {
                nodes::tell_state(events, &node, "CIDRAssignmentFailed");
            }
            return Err(why);
        }
        Ok(Action::AwaitChange)
    }
}
