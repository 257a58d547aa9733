//! The resource quota controller: recalculates the usage of quotas when objects release resources, and periodically.
//!
//! Admission charges quotas when objects are created, and never releases anything. This controller counts the objects.
//!
//! Always true: the written usage was counted after the quota was read, and the write conflicts if admission charged the
//! quota meanwhile. An object that is charged is not there yet: usage goes down only by what was charged so long before the
//! count that its request has ended ([`release`]). Objects are read page by page when they are counted, and not kept.

mod count;
mod release;

use crate::Context;
use crate::metadata_informers::Listener;
use api::Resource;
use api::core::v1::{Pod, ResourceQuota, Service};
use api::meta::v1::ObjectMeta;
use client::discovery::{self, Discovery};
use client::{Action, Api, Change, Failure, Informer, Key, ListParams, Queue, Reconcile, run, unless};
use count::UsageCounter;
use env::Upkeep;
use names::Names;
use release::Releases;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub workers: usize,
    /// How often all quotas are recalculated.
    pub sync_period: Duration,
    /// How long after the charge of an object its request has ended.
    pub settle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { workers: 5, sync_period: Duration::from_secs(300), settle: Duration::from_secs(1) }
    }
}

struct Quotas {
    context: Context,
    discovery: Arc<Discovery>,
    quotas: Informer<ResourceQuota>,
    releases: Releases,
}

/// Recalculates quotas when objects release resources.
#[derive(Clone)]
struct Replenishment {
    quotas: Informer<ResourceQuota>,
    queue: Queue<Key>,
    names: Arc<Names>,
}

impl Replenishment {
    /// Queues the quotas of a namespace that limit a resource, because one of its objects uses less than before.
    fn release(&self, group: &str, plural: &str, namespace: &str) {
        for quota in self.quotas.in_namespace(namespace) {
            if quota
                .spec
                .hard
                .keys()
                .any(|name| apimachinery::quota::concerns(group, plural, name, &self.names))
            {
                self.queue.add(Key::of(&*quota));
            }
        }
    }
}

impl Listener for Replenishment {
    fn put(&self, _: &Arc<discovery::Resource>, _: &ObjectMeta) {}

    fn gone(&self, of: &Arc<discovery::Resource>, object: &ObjectMeta) {
        self.release(&of.group, &of.plural, &object.namespace);
    }

    fn whole(&self, of: &Arc<discovery::Resource>, _: &HashSet<String>) {
        // deletions during the gap are unknown
        for quota in self.quotas.all() {
            self.release(&of.group, &of.plural, quota.namespace());
        }
    }

    fn ended(&self, _: &Arc<discovery::Resource>) {}
}

/// Whether a pod uses nothing any more: it has ended, or its deletion is overdue.
fn has_ended(pod: &Pod, now: i64) -> bool {
    if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
        return true;
    }
    let meta = &pod.metadata;
    match (meta.deletion_timestamp, meta.deletion_grace_period_seconds) {
        (Some(since), Some(grace)) => now > since.0.saturating_add(grace),
        _ => false,
    }
}

pub async fn run(context: Context, options: Options) {
    let queue = Queue::<Key>::new(&context.world);
    let quotas = context.informer::<ResourceQuota>();
    let changed = queue.clone();
    quotas.listen(move |change| {
        let is_changed = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.spec != new.spec,
            Change::Deleted(_) => false,
        };
        if is_changed {
            changed.add(change.key());
        }
    });
    let replenishment =
        Replenishment { quotas: quotas.clone(), queue: queue.clone(), names: context.names.clone() };
    let (of_pods, world) = (replenishment.clone(), context.world.clone());
    context.informer::<Pod>().listen(move |change| {
        if let Change::Updated { old, new } = change {
            let now = env::unix_seconds(&world);
            if has_ended(new, now) && !has_ended(old, now) {
                of_pods.release("", "pods", &change.key().namespace);
            }
        }
    });
    let of_services = replenishment.clone();
    context.informer::<Service>().listen(move |change| {
        if let Change::Updated { old, new } = change
            && old.spec != new.spec
        {
            of_services.release("", "services", &change.key().namespace);
        }
    });
    context.metadata_informers().listen(Arc::new(replenishment));
    quotas.synced().await;
    let world = context.world.clone();
    let controller = Arc::new(Quotas {
        discovery: context.discovery(),
        releases: Releases::new(options.settle),
        context,
        quotas,
    });
    let (due, quotas) = (queue.clone(), controller.quotas.clone());
    let resync = async move {
        loop {
            env::sleep_upkeep(&world, Upkeep::check(options.sync_period)).await;
            quotas.all().iter().for_each(|it| due.add(Key::of(&**it)));
        }
    };
    tokio::select! {
        biased;
        () = resync => {}
        () = run::run(controller, queue, options.workers) => {}
    }
}

impl Reconcile for Quotas {
    type Key = Key;

    fn name(&self) -> &'static str {
        "resourcequota"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        if self.quotas.get(key).is_none() {
            self.releases.forget(key);
            return Ok(Action::AwaitChange);
        }
        let quotas: Api<ResourceQuota> = Api::namespaced(&self.context.client, &key.namespace);
        // read before the objects are counted: a charge after this read makes the write conflict
        let only = ListParams::default().fields(format!("metadata.name={}", key.name));
        let Some(quota) = quotas.list(&only).await?.items.pop() else { return Ok(Action::AwaitChange) };
        let begun = self.context.world.elapsed();
        let counter = UsageCounter {
            client: &self.context.client,
            discovery: &self.discovery,
            names: &self.context.names,
            now: self.context.now(),
        };
        let (counted, failed) = counter.used(&quota).await?;
        let (used, again) = self.releases.usage(key, &quota, counted, begun);
        if let Some(status) = count::status(&quota, used) {
            unless(404, quotas.replace_status(&ResourceQuota { status, ..quota }).await)?;
        }
        match (failed, again) {
            (Some(why), _) => Err(why),
            (None, Some(pause)) => Ok(Action::Requeue(pause)),
            (None, None) => Ok(Action::AwaitChange),
        }
    }
}
