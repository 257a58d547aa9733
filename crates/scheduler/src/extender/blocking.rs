//! An HTTP extender as the cycles of one run call it.
//!
//! The calling thread waits while the request runs on the async runtime, so a caller must not be a thread of that
//! runtime. The wait ends with the timeout of the client.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};

use api::core::v1::Pod;
use serde_json::Value;
use tokio::runtime::Handle;

use super::http::HttpExtender;
use super::{Candidate, Extender, Filtered, wire};
use crate::node_info::NodeInfo;
use crate::pod_info::PodInfo;
use crate::snapshot::Snapshot;

/// See [the module](self).
pub struct BlockingExtender {
    extender: Arc<HttpExtender>,
    runtime: Handle,
}

impl BlockingExtender {
    /// Requests run on `runtime`.
    pub fn new(extender: Arc<HttpExtender>, runtime: Handle) -> Self {
        BlockingExtender { extender, runtime }
    }

    fn post(&self, verb: &str, body: Vec<u8>) -> Result<Value, String> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (extender, verb) = (self.extender.clone(), verb.to_owned());
        self.runtime.spawn(async move {
            // a receiver that is gone needs no answer
            let _ = sender.send(extender.post(&verb, body).await);
        });
        receiver.recv().unwrap_or_else(|_| Err("the scheduler is stopping".to_owned()))
    }

    fn candidate(&self, answer: wire::MetaVictims, snapshot: &Snapshot) -> Result<Candidate, String> {
        let wire::MetaVictims { node: name, uids, violations } = answer;
        let node =
            snapshot.node(&name).ok_or_else(|| format!("nodeinfo not found for node name {name:?}"))?;
        let pods: HashMap<&str, &Arc<PodInfo>> = node.pods.iter().map(|pod| (pod.uid(), pod)).collect();
        let find = |uid: String| {
            let url = &self.extender.config().url_prefix;
            pods.get(&*uid).map(|pod| Arc::clone(pod)).ok_or_else(|| {
                format!(
                    "extender: {url} claims to preempt pod (UID: {uid}) on node: {name}, but the pod is not found on that node"
                )
            })
        };
        let victims = uids.into_iter().map(find).collect::<Result<_, String>>()?;
        Ok(Candidate { node: name, victims, violations })
    }
}

impl Extender for BlockingExtender {
    fn is_interested(&self, pod: &PodInfo) -> bool {
        self.extender.is_interested(pod)
    }

    fn is_ignorable(&self) -> bool {
        self.extender.config().ignorable
    }

    fn weight(&self) -> i64 {
        self.extender.config().weight
    }

    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Filtered, String> {
        let config = self.extender.config();
        if config.filter_verb.is_empty() {
            let nodes = nodes.iter().map(|node| node.name().to_owned()).collect();
            return Ok(Filtered { nodes, ..Filtered::default() });
        }
        let is_cached = config.node_cache_capable;
        let answer = self.post(&config.filter_verb, wire::args(&pod.pod, nodes, is_cached))?;
        let filtered = wire::filtered(&answer, is_cached)?;
        if is_cached {
            let known: std::collections::HashSet<&str> = nodes.iter().map(|node| node.name()).collect();
            if let Some(other) = filtered.nodes.iter().find(|name| !known.contains(&***name)) {
                return Err(format!(
                    "extender {:?} claims a filtered node {other:?} which is not found in the input node list",
                    config.url_prefix
                ));
            }
        }
        Ok(filtered)
    }

    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<(String, i64)>, String> {
        let config = self.extender.config();
        if config.prioritize_verb.is_empty() {
            return Ok(Vec::new());
        }
        let args = wire::args(&pod.pod, nodes, config.node_cache_capable);
        wire::priorities(&self.post(&config.prioritize_verb, args)?)
    }

    fn supports_preemption(&self) -> bool {
        !self.extender.config().preempt_verb.is_empty()
    }

    fn reads_victims(&self) -> bool {
        self.supports_preemption() && !self.extender.config().node_cache_capable
    }

    fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
        snapshot: &Snapshot,
    ) -> Result<Vec<Candidate>, String> {
        let config = self.extender.config();
        let pods = match self.reads_victims() {
            true => Some(candidates.iter().map(victims).collect()),
            false => None,
        };
        let args = wire::preemption_args(&pod.pod, candidates, pods);
        let answer = self.post(&config.preempt_verb, args)?;
        wire::meta_victims(&answer)?.into_iter().map(|victims| self.candidate(victims, snapshot)).collect()
    }
}

/// The objects of the victims; the snapshot keeps them for extenders that read them.
fn victims(candidate: &Candidate) -> Vec<Arc<Pod>> {
    candidate.victims.iter().map(|victim| Arc::clone(&victim.pod)).collect()
}
