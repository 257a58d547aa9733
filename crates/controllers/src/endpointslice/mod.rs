//! The endpoint slice controller: writes the endpoint slices of services that select pods.

mod desired;
mod hints;
mod metrics;
mod pack;

use crate::backends::{self, Backends, Triggers};
use crate::slices::metrics::Writes;
use crate::slices::{self, Plan, Template};
use crate::{Context, controller_ref};
use api::Resource;
use api::core::v1::{Node, Pod, Service};
use api::discovery::v1::{EndpointPort, EndpointSlice};
use client::events::EventType;
use client::{Action, Failure, Informer, Key, Queue, Reconcile, WriteTracker, run};
use hints::Zones;
use metrics::SliceMetrics;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The default limit of endpoints of a slice.
pub const MOST: usize = 100;

struct SliceController {
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
    let queue = Queue::<Key>::new(&context.world);
    let backends = Backends::watch(&context, &queue, options.batch_period);
    let nodes = context.informer::<Node>();
    let slices = slices::follow(&context, &queue, manager(&context.names));
    backends.synced().await;
    nodes.synced().await;
    slices.synced().await;
    let (manager, most) = (manager(&context.names), options.most.max(1));
    let metrics = SliceMetrics::new(&context.metrics, &slices, (&manager, &context.names, most));
    let controller = SliceController {
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
    run::run(Arc::new(controller), queue, options.workers).await;
}

impl Reconcile for SliceController {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpointslice"
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        self.written.seen(key).await?;
        let Some(service) = self.backends.services.get(key) else {
            // the garbage collector deletes the slices
            self.triggers.forget(key);
            return Ok(Action::AwaitChange);
        };
        if !backends::selects(&service) {
            return Ok(Action::AwaitChange);
        }
        let pods = self.backends.pods_of(&service);
        let existing = slices::of_service(&self.slices, key, &self.manager, &self.context.names);
        // updated even if nothing is written
        let trigger = self.triggers.since_last(key, &service, &pods);
        let hinted = self.context.gates.hints && hints::requested(&service, &self.context.names);
        let zones = hinted.then(|| Zones::of(&self.nodes.all(), &self.context.names));
        let node = |name: &str| self.nodes.get(&Key::new("", name));
        let desired = SliceSpec { service: &service, zones, most: self.most, manager: &self.manager };
        let (mut plan, skipped) = desired.plan(&pods, node, &existing, &self.context.names);
        self.annotate_trigger(&mut plan, trigger.as_deref());
        let writes = Writes::of(&plan, &existing);
        let is_terminating = service.metadata.deletion_timestamp.is_some();
        let mut result = plan.carry_out(&self.context.client, &self.written, key, is_terminating).await;
        if let (Ok(()), Some(why)) = (&result, skipped) {
            result = Err(Failure::Other(why));
        }
        self.metrics.synced(&writes, hinted, result.is_ok());
        if let Err(why) = &result
            && !why.is(409)
        {
            let why = format!("Error updating Endpoint Slices for Service {key}: {}", why.message());
            self.context.events.record(&*service, EventType::Warning, "FailedToUpdateEndpointSlices", why);
        }
        result.map(|()| Action::AwaitChange)
    }
}

impl SliceController {
    fn annotate_trigger(&self, plan: &mut Plan, trigger: Option<&str>) {
        let name = self.context.names.well_known_under("endpoints", "last-change-trigger-time");
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            let annotations = &mut slice.metadata.annotations;
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
    /// The zones of nodes, if endpoints have hints.
    zones: Option<Zones>,
    most: usize,
    manager: &'w str,
}

impl SliceSpec<'_> {
    /// The writes, and why pods were skipped.
    fn plan(
        &self,
        pods: &[Arc<Pod>],
        node: impl Fn(&str) -> Option<Arc<Node>>,
        existing: &[Arc<EndpointSlice>],
        names: &Names,
    ) -> (Plan, Option<String>) {
        let families = desired::families(self.service);
        let mut plan = Plan::default();
        let mut skipped = None;
        for family in &families {
            let of_family: Vec<_> =
                existing.iter().filter(|it| it.address_type == *family).cloned().collect();
            let (groups, errors) = desired::groups(self.service, pods, &node, family, names);
            skipped = skipped.or(errors.into_iter().next());
            plan.add(self.plan_family(groups, &of_family, family, names));
        }
        let other = existing.iter().filter(|it| !families.contains(&&*it.address_type));
        plan.delete.extend(other.cloned());
        plan.recycle(self.service);
        (plan, skipped)
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
                by_ports.entry(slices::ports(&slice.ports)).or_default().push(slice.clone());
            } else {
                plan.delete.push(slice.clone());
            }
        }
        let mut kept = Vec::new();
        for (ports, group) in groups {
            let template = self.template(family, group.ports, names);
            let existing = by_ports.remove(&ports).unwrap_or_default();
            let (packed, unchanged) = pack::pack(&existing, group.endpoints, &template, self.most);
            plan.add(packed);
            kept.extend(unchanged);
        }
        // ports that no pod has any more
        plan.delete.extend(by_ports.into_values().flatten());
        if existing.len() == plan.delete.len() && plan.create.is_empty() {
            self.add_placeholder(&mut plan, family, names);
        }
        hints::apply(&mut plan, kept, self.zones.as_ref());
        plan
    }

    /// Adds the empty slice of a service without endpoints.
    fn add_placeholder(&self, plan: &mut Plan, family: &str, names: &Names) {
        let empty = self.template(family, Vec::new(), names).slice();
        let is_placeholder = |it: &EndpointSlice| {
            it.endpoints.is_empty()
                && it.ports.is_empty()
                && it.metadata.labels == empty.metadata.labels
                && controller_ref::is_controlled_by(it, self.service)
        };
        match plan.delete.iter().position(|it| is_placeholder(it)) {
            Some(at) => drop(plan.delete.remove(at)),
            None => plan.create.push(empty),
        }
    }

    fn template(&self, family: &str, ports: Vec<EndpointPort>, names: &Names) -> Template {
        let mut labels = self.service.metadata.labels.clone();
        let headless = names.well_known_under("service", "headless");
        match backends::is_headless(self.service) {
            true => drop(labels.insert(headless, String::new())),
            false => drop(labels.remove(&headless)),
        }
        labels.insert(slices::service_label(names), self.service.name().to_owned());
        labels.insert(slices::manager_label(names), self.manager.to_owned());
        Template {
            namespace: self.service.namespace().to_owned(),
            prefix: self.service.name().to_owned(),
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
