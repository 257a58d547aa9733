//! The page `/metrics/resources`: requests and limits of each pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;
use api::core::v1::Pod;
use metrics::{Descriptor, Gauge, Registry, Samples};

use super::descriptors::{POD_LIMIT, POD_REQUEST};

type Resources = BTreeMap<String, Quantity>;

/// A pod as the page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodResources {
    pub namespace: String,
    pub name: String,
    pub node: Arc<str>,
    pub totals: Arc<PodTotals>,
}

/// The requests and limits of a pod: equal for pods of one template, and never changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodTotals {
    scheduler: String,
    priority: Option<i32>,
    requests: Vec<(String, Amount)>,
    limits: Vec<(String, Amount)>,
}

impl PodTotals {
    pub fn new(pod: &Pod) -> Self {
        PodTotals {
            scheduler: pod.spec.scheduler_name.clone(),
            priority: pod.spec.priority,
            requests: amounts(requests(pod)),
            limits: amounts(limits(pod)),
        }
    }
}

fn amounts(resources: Resources) -> Vec<(String, Amount)> {
    let non_zero = resources.into_iter().filter(|(_, quantity)| !quantity.is_zero());
    non_zero.map(|(name, quantity)| (name, Amount::new(&quantity))).collect()
}

/// A quantity as a number that can be compared; thousandths are exact below a large bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Amount {
    Milli(i64),
    Whole(i64),
}

impl Amount {
    fn new(quantity: &Quantity) -> Self {
        match quantity.milli() {
            i64::MAX | i64::MIN => Amount::Whole(quantity.whole()),
            milli if milli % 1000 == 0 => Amount::Whole(milli / 1000),
            milli => Amount::Milli(milli),
        }
    }

    fn number(self) -> f64 {
        match self {
            Amount::Milli(milli) => milli as f64 / 1000.0,
            Amount::Whole(whole) => whole as f64,
        }
    }
}

/// The page of these pods.
pub(super) fn page(pods: Vec<PodResources>) -> String {
    let pods: Arc<[PodResources]> = pods.into();
    let registry = Registry::default();
    let register = |descriptor: Descriptor, total: fn(&PodTotals) -> &[(String, Amount)]| {
        let pods = Arc::clone(&pods);
        registry.callback::<Gauge>(descriptor, move |out| {
            pods.iter().for_each(|pod| add(pod, total(&pod.totals), out));
        });
    };
    register(POD_REQUEST, |totals| &totals.requests);
    register(POD_LIMIT, |totals| &totals.limits);
    registry.text()
}

fn add(pod: &PodResources, amounts: &[(String, Amount)], out: &mut Samples<'_>) {
    let priority = pod.totals.priority.map(|priority| priority.to_string()).unwrap_or_default();
    for (name, amount) in amounts {
        let labels =
            [&*pod.namespace, &pod.name, &pod.node, &pod.totals.scheduler, &priority, name, unit(name)];
        out.add(&labels, amount.number());
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
