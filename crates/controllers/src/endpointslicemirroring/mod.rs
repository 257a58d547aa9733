//! The endpoint slice mirroring controller: mirrors `Endpoints` that users write to endpoint slices.
//!
//! Only `Endpoints` of services without a selector are mirrored: other controllers write both for the rest.

mod metrics;
mod mirror;
#[cfg(test)]
mod tests;

use crate::Context;
use crate::slices::{self, metrics::Writes};
use api::core::v1::{Endpoints, Service};
use api::discovery::v1::EndpointSlice;
use client::events::EventType;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run};
use metrics::MirrorMetrics;
use names::Names;
use std::sync::Arc;

/// The default limit of mirrored addresses of a subset.
pub const MOST: usize = 1000;

struct MirrorController {
    context: Context,
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    slices: Informer<EndpointSlice>,
    written: WriteTracker<EndpointSlice>,
    most: usize,
    manager: String,
    metrics: MirrorMetrics,
}

fn manager(names: &Names) -> String {
    format!("endpointslicemirroring-controller.{}", names.api_domain)
}

/// Whether an object is mirrored: it has no label that forbids it, and is no lock of leader election.
fn is_mirrored(endpoints: &Endpoints, names: &Names) -> bool {
    let skip = names.well_known_under("endpointslice", "skip-mirror");
    let leader = names.well_known_under("control-plane.alpha", "leader");
    let metadata = &endpoints.metadata;
    metadata.labels.get(&skip).is_none_or(|it| it != "true") && !metadata.annotations.contains_key(&leader)
}

fn selects(service: &Service) -> bool {
    !service.spec.selector.is_empty()
}

pub async fn run(context: Context, options: slices::Options) {
    let queue = Queue::<Key>::new(&context.world);
    let services = context.informer::<Service>();
    let endpoints = context.informer::<Endpoints>();
    let slices = slices::follow(&context, &queue, manager(&context.names));
    let (changed, names, batch) = (queue.clone(), context.names.clone(), options.batch_period);
    endpoints.listen(move |change| {
        let is_relevant = match change {
            Change::Updated { old, new } => is_mirrored(old, &names) || is_mirrored(new, &names),
            Change::Added(it) | Change::Deleted(it) => is_mirrored(it, &names),
        };
        if is_relevant {
            changed.add_after(change.key(), batch);
        }
    });
    let changed = queue.clone();
    services.listen(move |change| {
        if let Change::Updated { old, new } = change
            && selects(old) == selects(new)
        {
            return;
        }
        changed.add(change.key());
    });
    services.synced().await;
    endpoints.synced().await;
    slices.synced().await;
    let manager = manager(&context.names);
    let owner = (&*manager, &context.names, options.most.max(1));
    let controller = MirrorController {
        metrics: MirrorMetrics::new(&context.metrics, &slices, owner),
        manager,
        context,
        services,
        endpoints,
        written: WriteTracker::new(slices.clone()),
        slices,
        most: options.most,
    };
    run::run(Arc::new(controller), queue, options.workers).await;
}

impl Reconcile for MirrorController {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpointslicemirroring"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.written.seen(key).await?;
        let since = self.context.world.elapsed();
        let result = self.mirror(key).await;
        self.metrics.synced(self.context.world.elapsed().saturating_sub(since));
        result
    }
}

impl MirrorController {
    async fn mirror(&self, key: &Key) -> Result<Action, Failure> {
        let names = &self.context.names;
        let existing = slices::of_service(&self.slices, key, &self.manager, names);
        let has_no_selector = self.services.get(key).is_some_and(|it| !selects(&it));
        let endpoints = self.endpoints.get(key).filter(|it| has_no_selector && is_mirrored(it, names));
        let Some(endpoints) = endpoints else {
            let plan = slices::Plan { delete: existing, ..slices::Plan::default() };
            plan.carry_out(&self.context.client, &self.written, key, false).await?;
            return Ok(Action::AwaitChange);
        };
        let mirror = mirror::Mirror { endpoints: &endpoints, most: self.most, manager: &self.manager };
        let (plan, skipped) = mirror.plan(&existing, names);
        self.record_skipped(&endpoints, &skipped);
        let writes = Writes::of(&plan, &existing);
        self.metrics.planned(&writes, &skipped);
        let is_terminating = endpoints.metadata.deletion_timestamp.is_some();
        let result = plan.carry_out(&self.context.client, &self.written, key, is_terminating).await;
        match &result {
            Ok(()) => self.metrics.wrote(&writes),
            Err(why) if why.is(409) => {}
            Err(why) => {
                let why = format!("Error updating Endpoint Slices for Endpoints {key}: {}", why.message());
                self.context.events.record(
                    &*endpoints,
                    EventType::Warning,
                    "FailedToUpdateEndpointSlices",
                    why,
                );
            }
        }
        result.map(|()| Action::AwaitChange)
    }

    fn record_skipped(&self, endpoints: &Endpoints, skipped: &mirror::SkippedAddresses) {
        let events = &self.context.events;
        let warn = |reason: &str, why: String| events.record(endpoints, EventType::Warning, reason, why);
        if skipped.invalid > 0 {
            let count = skipped.invalid;
            warn(
                "InvalidIPAddress",
                format!("Skipped {count} invalid IP addresses when mirroring to EndpointSlices"),
            );
        }
        if skipped.too_many > 0 {
            let (most, count) = (self.most, skipped.too_many);
            let why = format!(
                "A max of {most} addresses can be mirrored to EndpointSlices per Endpoints subset. {count} addresses were skipped"
            );
            warn("TooManyAddressesToMirror", why);
        }
    }
}
