//! PodMetrics: the usage of the containers of a running pod.

use super::collector::{Collector, Sample};
use super::{amounts, measurement};
use env::MaybeReady;
use rest::{Api, ApiError, VirtualRead, VirtualResource};
use schema::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
pub struct PodMetrics {
    pub collector: Arc<Collector>,
}

impl VirtualResource for PodMetrics {
    fn read<'a>(&'a self, request: &'a VirtualRead<'a>) -> MaybeReady<'a, Result<Vec<Value>, ApiError>> {
        MaybeReady::later(self.metrics(request))
    }
}

impl PodMetrics {
    async fn metrics(&self, request: &VirtualRead<'_>) -> Result<Vec<Value>, ApiError> {
        let found = self.collector.with_api(|api| {
            let pods = running_pods(api, request);
            let names: BTreeSet<&str> = pods.iter().map(|it| it.text(&["spec", "nodeName"])).collect();
            let nodes = names.into_iter().filter_map(|name| api.lookup("nodes", "", name)).collect();
            (nodes, pods)
        });
        let (nodes, pods): (Vec<Value>, Vec<Value>) = found.unwrap_or_default();
        let samples = self.collector.samples(nodes).await;
        let metrics = |pod: &Value| object(pod, samples.get(pod.text(&["spec", "nodeName"]))?, request.now);
        Ok(pods.iter().filter_map(metrics).collect())
    }
}

/// The running pods that a read may select: only their nodes get requests.
fn running_pods(api: &Api, request: &VirtualRead<'_>) -> Vec<Value> {
    let pods = match request.name {
        Some(name) => api.lookup("pods", request.namespace, name).into_iter().collect(),
        None => api.list_of("pods", Some(request.namespace).filter(|it| !it.is_empty())),
    };
    let is_running = |pod: &Value| pod.text(&["status", "phase"]) == "Running";
    pods.into_iter().filter(|pod| is_running(pod) && (request.selects)(pod)).collect()
}

fn object(pod: &Value, sample: &Sample, now: &str) -> Option<Value> {
    let (namespace, name) = (pod.text(&["metadata", "namespace"]), pod.text(&["metadata", "name"]));
    let usage = sample.summary.pods.get(&(namespace.to_owned(), name.to_owned()))?;
    // the summary may be of an earlier pod of this name
    let is_same = usage.uid.is_empty() || usage.uid == pod.text(&["metadata", "uid"]);
    if !is_same || usage.containers.is_empty() {
        return None;
    }
    let time = if usage.time.is_empty() { now } else { &usage.time };
    let mut object = measurement(name, time, sample.window, now);
    object.set(&["metadata", "namespace"], namespace);
    if let Some(labels) = pod.at(&["metadata", "labels"]) {
        object.set(&["metadata", "labels"], labels.clone());
    }
    let containers = usage.containers.iter().map(|(name, usage)| {
        let mut container = Value::map();
        container.set(&["name"], name.as_str());
        container.set(&["usage"], amounts(usage));
        container
    });
    object.set(&["containers"], containers.collect::<Vec<_>>());
    Some(object)
}
