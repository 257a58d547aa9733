//! What is used of each quota, counted again when something is given back, and now and then anyway.
//!
//! Admission charges quotas as objects are made; it never gives anything back. This loop counts what there is.
//!
//! What always holds: what is written was counted after the quota was read, and is refused when anything was charged
//! meanwhile. Nothing is kept here: objects are read, a page at a time, when they are to be counted.

mod count;

use crate::Context;
use crate::monitors::{Listener, Metadata};
use client::discovery::{Discovery, Resource};
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, run, unless};
use count::Counting;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use names::Names;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// How often everything is counted again.
    pub sync_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: 5, sync_period: Duration::from_secs(300) }
    }
}

struct Quotas {
    context: Context,
    discovery: Arc<Discovery>,
    quotas: Informer<ResourceQuota>,
}

/// Recalculates quotas when objects release resources.
#[derive(Clone)]
struct Replenishment {
    quotas: Informer<ResourceQuota>,
    queue: Queue<Key>,
    names: Arc<Names>,
}

impl Replenishment {
    /// Something of this resource takes less in a namespace than it did.
    fn less(&self, group: &str, plural: &str, namespace: &str) {
        for quota in self.quotas.in_namespace(namespace) {
            let mut bounds = quota.spec.iter().flat_map(|it| it.hard.iter().flatten()).map(|(name, _)| name);
            if bounds.any(|name| kinds::quota::concerns(group, plural, name, &self.names)) {
                self.queue.add(Key::of(&*quota));
            }
        }
    }
}

impl Listener for Replenishment {
    fn put(&self, _: &Arc<Resource>, _: &Metadata) {}

    fn gone(&self, of: &Arc<Resource>, object: &Metadata) {
        self.less(&of.group, &of.plural, &object.namespace);
    }

    fn whole(&self, of: &Arc<Resource>, _: &HashSet<String>) {
        // what went while nobody looked is not known
        for quota in self.quotas.all() {
            self.less(&of.group, &of.plural, &quota.namespace().unwrap_or_default());
        }
    }

    fn ended(&self, _: &Arc<Resource>) {}
}

/// Whether a pod takes nothing any more although it is there: it has ended, or should have.
fn has_ended(pod: &Pod, now: i64) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return true;
    }
    let meta = &pod.metadata;
    match (&meta.deletion_timestamp, meta.deletion_grace_period_seconds) {
        (Some(since), Some(grace)) => now > since.0.timestamp().saturating_add(grace),
        _ => false,
    }
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::default();
    let quotas = context.informer::<ResourceQuota>();
    let news = queue.clone();
    quotas.listen(move |change| {
        let changed = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.spec != new.spec,
            Change::Deleted(_) => false,
        };
        if changed {
            news.add(change.key());
        }
    });
    let returned =
        Replenishment { quotas: quotas.clone(), queue: queue.clone(), names: context.names.clone() };
    let (of_pods, world) = (returned.clone(), context.world.clone());
    context.informer::<Pod>().listen(move |change| {
        if let Change::Updated { old, new } = change {
            let now = env::unix_seconds(&world);
            if has_ended(new, now) && !has_ended(old, now) {
                of_pods.less("", "pods", &change.key().namespace);
            }
        }
    });
    let of_services = returned.clone();
    context.informer::<Service>().listen(move |change| {
        if let Change::Updated { old, new } = change
            && old.spec != new.spec
        {
            of_services.less("", "services", &change.key().namespace);
        }
    });
    context.monitors().listen(Arc::new(returned));
    quotas.synced().await;
    let this = Arc::new(Quotas { discovery: context.discovery(), context, quotas });
    let (again, all, period) = (queue.clone(), this.clone(), options.sync_period);
    let again = async move {
        loop {
            tokio::time::sleep(period).await;
            all.quotas.all().iter().for_each(|it| again.add(Key::of(&**it)));
        }
    };
    tokio::select! {
        () = again => {}
        () = run::run(this, queue, options.workers) => {}
    }
}

impl Reconcile for Quotas {
    type Key = Key;

    fn name(&self) -> &'static str {
        "resourcequota"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        if self.quotas.get(key).is_none() {
            return Ok(Action::AwaitChange);
        }
        let api: Api<ResourceQuota> = Api::namespaced(self.context.client.clone(), &key.namespace);
        // read before anything is counted: what is charged after this makes the write fail
        let only = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let Some(quota) = api.list(&only).await?.items.pop() else { return Ok(Action::AwaitChange) };
        let counting = Counting {
            client: &self.context.client,
            discovery: &self.discovery,
            names: &self.context.names,
            now: self.context.now(),
        };
        let (used, failed) = counting.used(&quota).await?;
        if let Some(status) = count::status(&quota, used) {
            let next = ResourceQuota { status: Some(status), ..quota };
            let body = serde_json::to_vec(&next).map_err(kube::Error::SerdeError)?;
            unless(404, api.replace_status(&key.name, &PostParams::default(), body).await)?;
        }
        failed.map_or(Ok(Action::AwaitChange), Err)
    }
}
