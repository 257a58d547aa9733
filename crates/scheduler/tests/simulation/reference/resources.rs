//! Amounts of resources that pods request and nodes have.

use std::collections::BTreeMap;

use api::Quantity;
use api::core::v1::{Container, Node, Pod};

/// Amounts by resource; CPU in thousandths.
pub type Amounts = BTreeMap<String, i64>;

fn amount(name: &str, quantity: &Quantity) -> i64 {
    if name == "cpu" { quantity.milli() } else { quantity.whole() }
}

pub fn amounts(list: &BTreeMap<String, Quantity>) -> Amounts {
    list.iter().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

pub fn allocatable(node: &Node) -> Amounts {
    amounts(&node.status.allocatable)
}

/// The sum of the containers or the largest init container, plus the overhead. `defaults` fill in containers that
/// request no CPU or memory.
fn sum(pod: &Pod, defaults: &Amounts) -> Amounts {
    let of = |container: &Container| {
        let mut requests = defaults.clone();
        requests.extend(amounts(&container.resources.requests));
        requests
    };
    let mut all = Amounts::new();
    for container in &pod.spec.containers {
        for (name, amount) in of(container) {
            *all.entry(name).or_default() += amount;
        }
    }
    for container in &pod.spec.init_containers {
        for (name, amount) in of(container) {
            let most = all.entry(name).or_default();
            *most = amount.max(*most);
        }
    }
    for (name, amount) in amounts(&pod.spec.overhead) {
        *all.entry(name).or_default() += amount;
    }
    all
}

/// What the filter counts.
pub fn requests(pod: &Pod) -> Amounts {
    sum(pod, &Amounts::new())
}

/// What the score of free resources counts.
pub fn non_zero_requests(pod: &Pod) -> Amounts {
    sum(pod, &Amounts::from([("cpu".to_owned(), 100), ("memory".to_owned(), 200 << 20)]))
}

/// The sum of what pods request of one resource.
pub fn requested<'p>(
    pods: impl Iterator<Item = &'p std::sync::Arc<Pod>>,
    of: fn(&Pod) -> Amounts,
    name: &str,
) -> i64 {
    pods.map(|pod| of(pod).get(name).copied().unwrap_or(0)).sum()
}
