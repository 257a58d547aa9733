//! NodeMetrics: the usage of a node.

use super::collector::{Collector, Sample};
use super::{amounts, measurement};
use env::MaybeReady;
use rest::{ApiError, VirtualRead, VirtualResource};
use schema::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// See the module.
pub struct NodeMetrics {
    pub collector: Arc<Collector>,
}

impl VirtualResource for NodeMetrics {
    fn read<'a>(&'a self, request: &'a VirtualRead<'a>) -> MaybeReady<'a, Result<Vec<Value>, ApiError>> {
        MaybeReady::later(self.metrics(request))
    }
}

impl NodeMetrics {
    async fn metrics(&self, request: &VirtualRead<'_>) -> Result<Vec<Value>, ApiError> {
        let nodes = self.collector.with_api(|api| match request.name {
            Some(name) => api.lookup("nodes", "", name).into_iter().collect(),
            None => api.list_of("nodes", None),
        });
        let nodes: Vec<Value> = nodes.unwrap_or_default();
        if request.name.is_none() {
            let names: HashSet<&str> = nodes.iter().map(|it| it.text(&["metadata", "name"])).collect();
            self.collector.retain(|name| names.contains(name));
        }
        let samples = self.collector.samples(nodes.clone()).await;
        let metrics =
            |node: &Value| object(node, samples.get(node.text(&["metadata", "name"]))?, request.now);
        Ok(nodes.iter().filter_map(metrics).collect())
    }
}

fn object(node: &Value, sample: &Sample, now: &str) -> Option<Value> {
    let usage = sample.summary.node?;
    let time = if sample.summary.time.is_empty() { now } else { &sample.summary.time };
    let mut object = measurement(node.text(&["metadata", "name"]), time, sample.window, now);
    if let Some(labels) = node.at(&["metadata", "labels"]) {
        object.set(&["metadata", "labels"], labels.clone());
    }
    object.set(&["usage"], amounts(&usage));
    Some(object)
}
