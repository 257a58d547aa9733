//! The informer of pods: whole pods go to the scheduler, and a summary of each stays.
//!
//! Pods that have ended are not watched: the server's selection leaves them out, so that their end is a deletion here.

use std::sync::{Arc, Weak};

use api::core::v1::Pod;
use client::{Handler, InformerFactory, SummaryInformer};
use parking_lot::Mutex;

use super::event_handlers::Receiver;
use crate::interner::Interner;
use crate::metrics::{PodResources, PodTotals};

/// Pods that have not ended.
const ACTIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// See the module.
pub(super) struct PodInformer<R: Receiver>(SummaryInformer<Pod, PodHandler<R>>);

impl<R: Receiver> PodInformer<R> {
    /// Starts to list and watch pods.
    pub fn start(factory: &InformerFactory, receiver: &Arc<R>) -> Self {
        // the receiver owns the informer
        let handler = PodHandler { receiver: Arc::downgrade(receiver), interned: Mutex::default() };
        PodInformer(factory.summaries(ACTIVE_PODS, handler))
    }

    pub async fn synced(&self) {
        self.0.synced().await;
    }

    /// Requests and limits of all pods.
    pub fn resources(&self) -> Vec<PodResources> {
        self.0.map(|key, pod| PodResources {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            node: Arc::clone(&pod.node),
            totals: Arc::clone(&pod.totals),
        })
    }
}

struct PodSummary {
    uid: Box<str>,
    node: Arc<str>,
    totals: Arc<PodTotals>,
}

#[derive(Default)]
struct Interned {
    nodes: Interner<str>,
    totals: Interner<PodTotals>,
}

struct PodHandler<R> {
    receiver: Weak<R>,
    interned: Mutex<Interned>,
}

impl<R> PodHandler<R> {
    fn summarize(&self, pod: &Pod, same: Option<&PodSummary>) -> PodSummary {
        let mut interned = self.interned.lock();
        PodSummary {
            uid: (&*pod.metadata.uid).into(),
            node: interned.nodes.intern(&*pod.spec.node_name),
            totals: match same {
                Some(same) => Arc::clone(&same.totals),
                None => interned.totals.intern_arc(&Arc::new(PodTotals::new(pod))),
            },
        }
    }
}

impl<R: Receiver> Handler<Pod> for PodHandler<R> {
    type Summary = PodSummary;

    fn apply(&self, pod: &Arc<Pod>, old: Option<&PodSummary>) -> PodSummary {
        let same = old.filter(|old| *old.uid == *pod.metadata.uid);
        let replaced = old.filter(|_| same.is_none()).map(|old| old.uid.clone());
        let summary = self.summarize(pod, same);
        if let Some(receiver) = self.receiver.upgrade() {
            let pod = Arc::clone(pod);
            receiver.apply(move |scheduler, now| {
                if let Some(uid) = replaced {
                    scheduler.remove_pod(now, &uid);
                }
                scheduler.set_pod(now, pod);
            });
        }
        summary
    }

    fn delete(&self, last: PodSummary) {
        if let Some(receiver) = self.receiver.upgrade() {
            receiver.apply(move |scheduler, now| scheduler.remove_pod(now, &last.uid));
        }
    }
}
