//! The page `/metrics/resources`: requests and limits of each pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;
use api::core::v1::Pod;
use metrics::{Descriptor, Gauge, Registry, Samples};

use super::descriptors::{POD_LIMIT, POD_REQUEST};

type Resources = BTreeMap<String, Quantity>;

/// The page of these pods.
pub(super) fn page(pods: Vec<Arc<Pod>>) -> String {
    let pods: Arc<[Arc<Pod>]> = pods.into();
    let registry = Registry::default();
    let register = |descriptor: Descriptor, total: fn(&Pod) -> Resources| {
        let pods = Arc::clone(&pods);
        registry.callback::<Gauge>(descriptor, move |out| {
            for pod in pods.iter().filter(|pod| !has_ended(pod)) {
                add(pod, &total(pod), out);
            }
        });
    };
    register(POD_REQUEST, requests);
    register(POD_LIMIT, limits);
    registry.text()
}

fn has_ended(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

fn add(pod: &Pod, resources: &Resources, out: &mut Samples<'_>) {
    let priority = pod.spec.priority.map(|priority| priority.to_string()).unwrap_or_default();
    for (name, quantity) in resources.iter().filter(|(_, quantity)| !quantity.is_zero()) {
        let (metadata, spec) = (&pod.metadata, &pod.spec);
        let labels = [
            &*metadata.namespace,
            &metadata.name,
            &spec.node_name,
            &spec.scheduler_name,
            &priority,
            name,
            unit(name),
        ];
        out.add(&labels, number(quantity));
    }
}

fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        _ if resource.starts_with("hugepages-") => "bytes",
        _ if resource.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

/// The nearest number; thousandths are exact below a large bound.
fn number(quantity: &Quantity) -> f64 {
    match quantity.milli() {
        i64::MAX | i64::MIN => quantity.whole() as f64,
        milli if milli % 1000 == 0 => (milli / 1000) as f64,
        milli => milli as f64 / 1000.0,
    }
}

/// The sum of the containers, at least the most of an init container.
fn total<'p>(
    containers: impl Iterator<Item = &'p Resources>,
    init_containers: impl Iterator<Item = &'p Resources>,
) -> Resources {
    let mut total = Resources::new();
    for resources in containers {
        add_to(&mut total, resources, |_| true);
    }
    for (name, quantity) in init_containers.flatten() {
        let most = total.entry(name.clone()).or_default();
        if *quantity > *most {
            most.clone_from(quantity);
        }
    }
    total
}

fn add_to(total: &mut Resources, more: &Resources, is_added: impl Fn(Option<&Quantity>) -> bool) {
    for (name, quantity) in more {
        if is_added(total.get(name)) {
            let sum = total.entry(name.clone()).or_default();
            *sum = sum.plus(quantity);
        }
    }
}

fn requests(pod: &Pod) -> Resources {
    let spec = &pod.spec;
    let mut total = total(
        spec.containers.iter().map(|it| &it.resources.requests),
        spec.init_containers.iter().map(|it| &it.resources.requests),
    );
    add_to(&mut total, &spec.overhead, |_| true);
    total
}

fn limits(pod: &Pod) -> Resources {
    let spec = &pod.spec;
    let mut total = total(
        spec.containers.iter().map(|it| &it.resources.limits),
        spec.init_containers.iter().map(|it| &it.resources.limits),
    );
    // the overhead counts only beside a limit
    add_to(&mut total, &spec.overhead, |sum| sum.is_some_and(|sum| !sum.is_zero()));
    total
}
