//! Endpoint slices: for each service that selects pods, who stands behind it, so many at a time.

mod desired;
mod hints;
mod metrics;
mod pack;

use crate::backends::{self, Backends, Triggers};
use crate::slices::metrics::Writes;
use crate::slices::{self, Plan, Template};
use crate::{Context, controller_ref};
use client::events::EventType;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run};
use hints::Zones;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use metrics::SliceMetrics;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many endpoints a slice has at the most, where nobody said otherwise.
pub const MOST: usize = 100;

struct Loop {
    context: Context,
    backends: Backends,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    written: WriteTracker<EndpointSlice>,
    triggers: Triggers,
    most: usize,
    manager: String,
    metrics: SliceMetrics,
}

fn manager(names: &Names) -> String {
    format!("endpointslice-controller.{}", names.api_domain)
}

pub async fn run(context: Context, options: slices::Options) {
    let queue = Queue::<Key>::default();
    let backends = Backends::watch(&context, &queue, options.batch_period);
    let nodes = context.informer::<Node>();
    let slices = slices::follow(&context, &queue, manager(&context.names));
    backends.synced().await;
    nodes.synced().await;
    slices.synced().await;
    let (manager, most) = (manager(&context.names), options.most.max(1));
    let metrics = SliceMetrics::new(&context.metrics, &slices, (&manager, &context.names, most));
    let this = Loop {
        manager,
        metrics,
        context,
        backends,
        nodes,
        written: WriteTracker::new(slices.clone()),
        slices,
        triggers: Triggers::default(),
        most,
    };
    run::run(Arc::new(this), queue, options.workers).await;
}

impl Reconcile for Loop {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpointslice"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.written.seen(key).await?;
        let Some(service) = self.backends.services.get(key) else {
            // the slices go with their owner
            self.triggers.forget(key);
            return Ok(Action::AwaitChange);
        };
        if !backends::selects(&service) {
            return Ok(Action::AwaitChange);
        }
        let pods = self.backends.pods_of(&service);
        let existing = slices::of_service(&self.slices, key, &self.manager, &self.context.names);
        // remembered even if nothing is to be written
        let trigger = self.triggers.since_last(key, &service, &pods);
        let hinted = self.context.gates.hints && hints::wanted(&service, &self.context.names);
        let zones = hinted.then(|| Zones::of(&self.nodes.all(), &self.context.names));
        let node = |name: &str| self.nodes.get(&Key::new("", name));
        let wanted = SliceSpec { service: &service, zones, most: self.most, manager: &self.manager };
        let (mut plan, lost) = wanted.plan(&pods, node, &existing, &self.context.names);
        self.note_trigger(&mut plan, trigger.as_deref());
        let writes = Writes::of(&plan, &existing);
        let going = service.metadata.deletion_timestamp.is_some();
        let mut done = plan.carry_out(&self.context.client, &self.written, key, going).await;
        if let (Ok(()), Some(why)) = (&done, lost) {
            done = Err(Failure::Other(why));
        }
        self.metrics.looked(&writes, hinted, done.is_ok());
        if let Err(why) = &done
            && !why.is(409)
        {
            let why = format!("Error updating Endpoint Slices for Service {key}: {}", why.message());
            self.context.events.tell(&*service, EventType::Warning, "FailedToUpdateEndpointSlices", why);
        }
        done.map(|()| Action::AwaitChange)
    }
}

impl Loop {
    fn note_trigger(&self, plan: &mut Plan, trigger: Option<&str>) {
        let name = self.context.names.well_known_under("endpoints", "last-change-trigger-time");
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            let annotations = slice.metadata.annotations.get_or_insert_default();
            match trigger {
                Some(time) => drop(annotations.insert(name.clone(), time.to_owned())),
                None => drop(annotations.remove(&name)),
            }
        }
    }
}

/// The desired slices of a service.
struct SliceSpec<'w> {
    service: &'w Service,
    /// Where nodes are, if endpoints should say for which zones they are.
    zones: Option<Zones>,
    most: usize,
    manager: &'w str,
}

impl SliceSpec<'_> {
    /// What is written, and why some pods were left out.
    fn plan(
        &self,
        pods: &[Arc<Pod>],
        node: impl Fn(&str) -> Option<Arc<Node>>,
        existing: &[Arc<EndpointSlice>],
        names: &Names,
    ) -> (Plan, Option<String>) {
        let families = desired::families(self.service);
        let mut plan = Plan::default();
        let mut lost = None;
        for family in &families {
            let of_family: Vec<_> =
                existing.iter().filter(|it| it.address_type == *family).cloned().collect();
            let (groups, missing) = desired::groups(self.service, pods, &node, family, names);
            lost = lost.or(missing.into_iter().next());
            plan.add(self.plan_family(groups, &of_family, family, names));
        }
        let other = existing.iter().filter(|it| !families.contains(&&*it.address_type));
        plan.delete.extend(other.cloned());
        plan.recycle(self.service);
        (plan, lost)
    }

    fn plan_family(
        &self,
        groups: BTreeMap<slices::Ports, desired::Group>,
        existing: &[Arc<EndpointSlice>],
        family: &str,
        names: &Names,
    ) -> Plan {
        let mut plan = Plan::default();
        let mut by_ports: BTreeMap<slices::Ports, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in existing {
            if controller_ref::is_controlled_by(&**slice, self.service) {
                let ports = slices::ports(slice.ports.as_deref().unwrap_or_default());
                by_ports.entry(ports).or_default().push(slice.clone());
            } else {
                plan.delete.push(slice.clone());
            }
        }
        let mut kept = Vec::new();
        for (ports, group) in groups {
            let template = self.template(family, group.ports, names);
            let there = by_ports.remove(&ports).unwrap_or_default();
            let (packed, left_alone) = pack::pack(&there, group.endpoints, &template, self.most);
            plan.add(packed);
            kept.extend(left_alone);
        }
        // ports that nobody offers any more
        plan.delete.extend(by_ports.into_values().flatten());
        if existing.len() == plan.delete.len() && plan.create.is_empty() {
            self.hold_the_place(&mut plan, family, names);
        }
        hints::give(&mut plan, kept, self.zones.as_ref());
        plan
    }

    /// A service without endpoints has a slice that says so.
    fn hold_the_place(&self, plan: &mut Plan, family: &str, names: &Names) {
        let empty = self.template(family, Vec::new(), names).slice();
        let is_it = |it: &EndpointSlice| {
            it.endpoints.is_empty()
                && it.ports.as_ref().is_none_or(Vec::is_empty)
                && it.metadata.labels == empty.metadata.labels
                && controller_ref::is_controlled_by(it, self.service)
        };
        match plan.delete.iter().position(|it| is_it(it)) {
            Some(at) => drop(plan.delete.remove(at)),
            None => plan.create.push(empty),
        }
    }

    fn template(
        &self,
        family: &str,
        ports: Vec<k8s_openapi::api::discovery::v1::EndpointPort>,
        names: &Names,
    ) -> Template {
        let mut labels = self.service.labels().clone();
        let headless = names.well_known_under("service", "headless");
        match backends::is_headless(self.service) {
            true => drop(labels.insert(headless, String::new())),
            false => drop(labels.remove(&headless)),
        }
        labels.insert(slices::service_label(names), self.service.name_any());
        labels.insert(slices::manager_label(names), self.manager.to_owned());
        Template {
            namespace: self.service.namespace().unwrap_or_default(),
            prefix: self.service.name_any(),
            owner: controller_ref::controller_reference(self.service),
            labels,
            annotations: BTreeMap::new(),
            address_type: family.to_owned(),
            ports,
        }
    }
}

#[cfg(test)]
mod tests;
