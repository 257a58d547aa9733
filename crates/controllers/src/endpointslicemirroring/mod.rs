//! Endpoints that people keep by hand are mirrored to endpoint slices, so that it is enough to look at these.
//!
//! Only those of services that select no pods: for the others a loop makes both.

mod metrics;
mod mirror;
#[cfg(test)]
mod tests;

use crate::Context;
use crate::slices::{self, metrics::Writes};
use client::events::EventType;
use client::{Action, Change, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use metrics::MirrorMetrics;
use names::Names;
use std::sync::Arc;

/// How many addresses of a subset are mirrored at the most, where nobody said otherwise.
pub const MOST: usize = 1000;

struct Loop {
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

/// Whether these should be mirrored: nobody asked for them not to be, and they are no lease of old.
fn mirrored(endpoints: &Endpoints, names: &Names) -> bool {
    let skip = names.well_known_under("endpointslice", "skip-mirror");
    let leader = names.well_known_under("control-plane.alpha", "leader");
    endpoints.labels().get(&skip).is_none_or(|it| it != "true")
        && !endpoints.annotations().contains_key(&leader)
}

fn selects(service: &Service) -> bool {
    service.spec.as_ref().and_then(|it| it.selector.as_ref()).is_some_and(|it| !it.is_empty())
}

pub async fn run(context: Context, options: slices::Options) {
    let queue = Queue::<Key>::default();
    let services = context.informer::<Service>();
    let endpoints = context.informer::<Endpoints>();
    let slices = slices::follow(&context, &queue, manager(&context.names));
    let (news, names, batch) = (queue.clone(), context.names.clone(), options.batch_period);
    endpoints.listen(move |change| {
        let concerns = match change {
            Change::Updated { old, new } => mirrored(old, &names) || mirrored(new, &names),
            Change::Added(it) | Change::Deleted(it) => mirrored(it, &names),
        };
        if concerns {
            news.add_after(change.key(), batch);
        }
    });
    let news = queue.clone();
    services.listen(move |change| {
        if let Change::Updated { old, new } = change
            && selects(old) == selects(new)
        {
            return;
        }
        news.add(change.key());
    });
    services.synced().await;
    endpoints.synced().await;
    slices.synced().await;
    let manager = manager(&context.names);
    let whose = (&*manager, &context.names, options.most.max(1));
    let this = Loop {
        metrics: MirrorMetrics::new(&context.metrics, &slices, whose),
        manager,
        context,
        services,
        endpoints,
        written: WriteTracker::new(slices.clone()),
        slices,
        most: options.most,
    };
    run::run(Arc::new(this), queue, options.workers).await;
}

impl Reconcile for Loop {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpointslicemirroring"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.written.seen(key).await?;
        let since = self.context.world.elapsed();
        let looked = self.look(key).await;
        self.metrics.looked(self.context.world.elapsed().saturating_sub(since));
        looked
    }
}

impl Loop {
    async fn look(&self, key: &Key) -> Result<Action, Failure> {
        let names = &self.context.names;
        let existing = slices::of_service(&self.slices, key, &self.manager, names);
        let unselected = self.services.get(key).is_some_and(|it| !selects(&it));
        let endpoints = self.endpoints.get(key).filter(|it| unselected && mirrored(it, names));
        let Some(endpoints) = endpoints else {
            let plan = slices::Plan { delete: existing, ..slices::Plan::default() };
            plan.carry_out(&self.context.client, &self.written, key, false).await?;
            return Ok(Action::AwaitChange);
        };
        let mirror = mirror::Mirror { endpoints: &endpoints, most: self.most, manager: &self.manager };
        let (plan, skipped) = mirror.plan(&existing, names);
        self.tell(&endpoints, &skipped);
        let writes = Writes::of(&plan, &existing);
        self.metrics.planned(&writes, &skipped);
        let going = endpoints.metadata.deletion_timestamp.is_some();
        let done = plan.carry_out(&self.context.client, &self.written, key, going).await;
        match &done {
            Ok(()) => self.metrics.wrote(&writes),
            Err(why) if why.is(409) => {}
            Err(why) => {
                let why = format!("Error updating Endpoint Slices for Endpoints {key}: {}", why.message());
                self.context.events.tell(
                    &*endpoints,
                    EventType::Warning,
                    "FailedToUpdateEndpointSlices",
                    why,
                );
            }
        }
        done.map(|()| Action::AwaitChange)
    }

    fn tell(&self, endpoints: &Endpoints, skipped: &mirror::SkippedAddresses) {
        let warn =
            |reason: &str, why: String| self.context.events.tell(endpoints, EventType::Warning, reason, why);
        if skipped.invalid > 0 {
            let count = skipped.invalid;
            warn(
                "InvalidIPAddress",
                format!("SkippedAddresses {count} invalid IP addresses when mirroring to EndpointSlices"),
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
