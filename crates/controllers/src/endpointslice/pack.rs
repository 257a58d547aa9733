//! Packs endpoints into slices with few writes: existing slices keep their endpoints.

use crate::slices::{self, EndpointIdentity, Plan};
use api::discovery::v1::{Endpoint, EndpointSlice};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The plan for slices with equal ports, and the slices that do not change.
pub fn pack(
    existing: &[Arc<EndpointSlice>],
    desired: BTreeMap<EndpointIdentity, Endpoint>,
    template: &slices::Template,
    most: usize,
) -> (Plan, Vec<Arc<EndpointSlice>>) {
    let mut plan = Plan::default();
    let mut left = desired;
    let mut kept: Vec<Arc<EndpointSlice>> = Vec::new();
    for slice in existing {
        let mut changed = false;
        let mut endpoints = Vec::with_capacity(slice.endpoints.len());
        for endpoint in &slice.endpoints {
            let Some(mut new) = left.remove(&slices::identity(endpoint)) else { continue };
            changed |= !slices::unchanged(&new, endpoint);
            new.hints = endpoint.hints.clone();
            endpoints.push(new);
        }
        changed |= endpoints.len() != slice.endpoints.len();
        if changed && endpoints.is_empty() {
            plan.delete.push(slice.clone());
        } else if changed || slice.metadata.labels != template.labels {
            let mut next = (**slice).clone();
            next.endpoints = endpoints;
            next.metadata.labels = template.labels.clone();
            plan.update.push(next);
        } else {
            kept.push(slice.clone());
        }
    }
    let mut left: VecDeque<Endpoint> = left.into_values().collect();
    // slices that are written anyway are filled, the fullest first
    plan.update.sort_by_key(|it| std::cmp::Reverse(it.endpoints.len()));
    for slice in &mut plan.update {
        fill(slice, &mut left, most);
    }
    while !left.is_empty() {
        // one more update is better than one more slice, if all endpoints fit
        let room = |it: &&Arc<EndpointSlice>| it.endpoints.len() + left.len() <= most;
        let fullest = kept.iter().filter(room).max_by_key(|it| it.endpoints.len()).cloned();
        match fullest {
            Some(slice) => {
                kept.retain(|it| !Arc::ptr_eq(it, &slice));
                let mut next = (*slice).clone();
                fill(&mut next, &mut left, most);
                plan.update.push(next);
            }
            None => {
                let mut new = template.slice();
                fill(&mut new, &mut left, most);
                plan.create.push(new);
            }
        }
    }
    (plan, kept)
}

fn fill(slice: &mut EndpointSlice, left: &mut VecDeque<Endpoint>, most: usize) {
    let room = most.saturating_sub(slice.endpoints.len()).min(left.len());
    slice.endpoints.extend(left.drain(..room));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::meta::v1::OwnerReference;
    use serde_json::json;

    fn template() -> slices::Template {
        slices::Template {
            namespace: "ns".to_owned(),
            prefix: "s".to_owned(),
            owner: OwnerReference::default(),
            labels: BTreeMap::from([("l".to_owned(), "v".to_owned())]),
            annotations: BTreeMap::new(),
            address_type: "IPv4".to_owned(),
            ports: Vec::new(),
        }
    }

    fn endpoint(number: usize, ready: bool) -> Endpoint {
        object(json!({"addresses": [format!("10.0.0.{number}")], "conditions": {"ready": ready}}))
    }

    fn slice(name: &str, numbers: std::ops::Range<usize>) -> Arc<EndpointSlice> {
        let mut slice = template().slice();
        slice.metadata.name = name.to_owned();
        slice.endpoints = numbers.map(|it| endpoint(it, true)).collect();
        Arc::new(slice)
    }

    fn desired(all: impl IntoIterator<Item = (usize, bool)>) -> BTreeMap<EndpointIdentity, Endpoint> {
        all.into_iter()
            .map(|(number, ready)| endpoint(number, ready))
            .map(|it| (slices::identity(&it), it))
            .collect()
    }

    /// Name and number of endpoints of each slice that is created, updated, deleted and unchanged.
    fn packed(
        existing: &[Arc<EndpointSlice>],
        desired: BTreeMap<EndpointIdentity, Endpoint>,
    ) -> [Vec<String>; 4] {
        let (plan, kept) = pack(existing, desired, &template(), 10);
        let formatted = |it: &EndpointSlice| format!("{}{}", it.metadata.name, it.endpoints.len());
        [
            plan.create.iter().map(formatted).collect(),
            plan.update.iter().map(formatted).collect(),
            plan.delete.iter().map(|it| formatted(it)).collect(),
            kept.iter().map(|it| formatted(it)).collect(),
        ]
    }

    fn check(
        existing: &[Arc<EndpointSlice>],
        desired: BTreeMap<EndpointIdentity, Endpoint>,
        expected: [&[&str]; 4],
    ) {
        assert_eq!(
            packed(existing, desired),
            expected.map(|all| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
        );
    }

    #[test]
    fn slices_are_filled_and_few_are_written() {
        let ready = |numbers: std::ops::Range<usize>| numbers.map(|it| (it, true));
        check(&[], desired(ready(0..25)), [&["10", "10", "5"], &[], &[], &[]]);
        let two = [slice("a", 0..8), slice("b", 8..12)];
        // no change
        check(&two, desired(ready(0..12)), [&[], &[], &[], &["a8", "b4"]]);
        // a few more are added to the fullest slice that has room for all
        check(&two, desired(ready(0..14)), [&[], &["a10"], &[], &["b4"]]);
        check(&two, desired(ready(0..15)), [&[], &["b7"], &[], &["a8"]]);
        // no slice has room for all: a new one
        check(&two, desired(ready(0..20)), [&["8"], &[], &[], &["a8", "b4"]]);
        // a slice that is written anyway takes them
        check(&two, desired(ready(1..14)), [&[], &["a9"], &[], &["b4"]]);
        check(&two, desired(ready(0..8)), [&[], &[], &["b4"], &["a8"]]);
        // one changes
        let changed = desired((0..12).map(|it| (it, it != 9)));
        check(&two, changed, [&[], &["b4"], &[], &["a8"]]);
    }

    #[test]
    fn labels_that_differ_are_written() {
        let mut other = (*slice("a", 0..2)).clone();
        other.metadata.labels.clear();
        check(&[Arc::new(other)], desired([(0, true), (1, true)]), [&[], &["a2"], &[], &[]]);
    }

    #[test]
    fn each_desired_endpoint_is_in_one_slice() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut dice = move |sides: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % sides
            };
            let mut existing: Vec<Arc<EndpointSlice>> = Vec::new();
            for round in 0..8 {
                let desired = desired((0..dice(60)).map(|_| (dice(80), dice(4) > 0)));
                let (plan, kept) = pack(&existing, desired.clone(), &template(), 10);
                let mut next = kept;
                next.extend(plan.update.into_iter().map(Arc::new));
                next.extend(plan.create.into_iter().enumerate().map(|(at, mut it)| {
                    it.metadata.name = format!("{round}-{at}");
                    Arc::new(it)
                }));
                let all: Vec<&Endpoint> = next.iter().flat_map(|it| &it.endpoints).collect();
                let found: BTreeMap<EndpointIdentity, Endpoint> =
                    all.iter().map(|it| (slices::identity(it), (*it).clone())).collect();
                assert_eq!((all.len(), &found), (desired.len(), &desired), "with seed {seed}");
                assert!(next.iter().all(|it| (1..=10).contains(&it.endpoints.len())), "with seed {seed}");
                existing = next;
            }
        }
    }
}
