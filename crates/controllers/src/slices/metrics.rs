//! What is counted about endpoint slices, whoever keeps them.
//!
//! How many there are, and should be, is found out when somebody asks.

use super::{EndpointIdentity, Plan};
use crate::slices;
use client::metrics::Metrics;
use client::{Informer, Key};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use metrics::{About, Counter, Gauge};
use names::Names;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// What a look at an owner will write.
pub struct Writes {
    pub added: usize,
    pub updated: usize,
    pub removed: usize,
    /// Slices that are made, updated and deleted.
    pub changes: [usize; 3],
}

impl Writes {
    pub fn of(plan: &Plan, existing: &[Arc<EndpointSlice>]) -> Self {
        let changes = [plan.create.len(), plan.update.len(), plan.delete.len()];
        if changes == [0, 0, 0] {
            return Writes { added: 0, updated: 0, removed: 0, changes };
        }
        let rewritten: HashSet<&str> =
            plan.update.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        let going = existing.iter().filter(|it| rewritten.contains(it.name_any().as_str()));
        let before = all(going.chain(&plan.delete).map(|it| &**it));
        let after = all(plan.create.iter().chain(&plan.update));
        let changed = |(same, now): &(&EndpointIdentity, &&Endpoint)| {
            before.get(*same).is_some_and(|then| !slices::unchanged(then, now))
        };
        Writes {
            added: after.keys().filter(|it| !before.contains_key(*it)).count(),
            updated: after.iter().filter(changed).count(),
            removed: before.keys().filter(|it| !after.contains_key(*it)).count(),
            changes,
        }
    }
}

/// How many slices were made, updated and deleted.
pub struct Changes([Counter; 3]);

impl Changes {
    /// Counted under this name, which has them by operation.
    pub fn new(metrics: &Metrics, about: About) -> Self {
        let family = metrics.registry().family::<Counter>(about);
        Changes(["create", "update", "delete"].map(|operation| family.of(&[operation])))
    }

    pub fn count(&self, writes: &Writes) {
        for (counter, more) in self.0.iter().zip(writes.changes) {
            counter.inc_by(more as u64);
        }
    }
}

/// All endpoints of some slices.
fn all<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> HashMap<EndpointIdentity, &'a Endpoint> {
    slices.flat_map(|it| &it.endpoints).map(|it| (slices::identity(it), it)).collect()
}

/// How many slices there are, how many there would be if all were as full as they may be, and how many endpoints: shown
/// under these names. `whose` says who keeps them, and how full they may be.
pub fn show(
    metrics: &Metrics,
    abouts: [About; 3],
    slices: &Informer<EndpointSlice>,
    whose: (&str, &Arc<Names>, usize),
) {
    let values: [fn(&Totals) -> usize; 3] = [|it| it.slices, |it| it.desired, |it| it.endpoints];
    for (about, value) in abouts.into_iter().zip(values) {
        let (slices, manager, names, most) = (slices.clone(), whose.0.to_owned(), whose.1.clone(), whose.2);
        metrics.registry().ask::<Gauge>(about, move |out| {
            let totals = Totals::of(slices.all().iter().map(|it| &**it), &manager, &names, most);
            out.add(&[], value(&totals) as f64);
        });
    }
}

#[derive(Debug, Default, PartialEq)]
struct Totals {
    slices: usize,
    desired: usize,
    endpoints: usize,
}

impl Totals {
    fn of<'a>(
        slices: impl Iterator<Item = &'a EndpointSlice>,
        manager: &str,
        names: &Names,
        most: usize,
    ) -> Self {
        let mut totals = Totals::default();
        let mut together: BTreeMap<(Key, &str, slices::Ports), usize> = BTreeMap::new();
        for slice in slices {
            let Some(service) = slices::service_of(slice, manager, names) else { continue };
            totals.slices += 1;
            totals.endpoints += slice.endpoints.len();
            let ports = slices::ports(slice.ports.as_deref().unwrap_or_default());
            *together.entry((service, &slice.address_type, ports)).or_default() += slice.endpoints.len();
        }
        totals.desired = together.values().map(|endpoints| endpoints.div_ceil(most).max(1)).sum();
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(name: &str, addresses: &[&str]) -> Arc<EndpointSlice> {
        let endpoints: Vec<_> = addresses.iter().map(|it| json!({"addresses": [it]})).collect();
        let labels =
            json!({"kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": "m"});
        let slice = json!({"metadata": {"name": name, "namespace": "n", "labels": labels},
            "addressType": "IPv4", "endpoints": endpoints, "ports": []});
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    #[test]
    fn what_comes_and_goes_is_told_from_what_moves() {
        let existing =
            [slice("a", &["1.1.1.1", "1.1.1.2"]), slice("b", &["1.1.1.3"]), slice("c", &["1.1.1.4"])];
        let plan = Plan {
            create: vec![(*slice("d", &["1.1.1.5"])).clone()],
            // one goes, one comes from the slice that is removed
            update: vec![(*slice("a", &["1.1.1.2", "1.1.1.3"])).clone()],
            delete: vec![existing[1].clone()],
        };
        let writes = Writes::of(&plan, &existing);
        assert_eq!((writes.added, writes.updated, writes.removed), (1, 0, 1));
        assert_eq!(writes.changes, [1, 1, 1]);
        // one that is not ready any more
        let mut next = (*existing[0]).clone();
        next.endpoints[0].conditions.get_or_insert_default().ready = Some(false);
        let plan = Plan { update: vec![next], ..Plan::default() };
        let writes = Writes::of(&plan, &existing);
        assert_eq!((writes.added, writes.updated, writes.removed), (0, 1, 0));
    }

    #[test]
    fn slices_are_as_few_as_their_endpoints_allow() {
        let all = [slice("a", &["1.1.1.1", "1.1.1.2"]), slice("b", &["1.1.1.3"]), slice("c", &["1.1.1.4"])];
        let totals = Totals::of(all.iter().map(|it| &**it), "m", &Names::kubernetes(), 2);
        assert_eq!(totals, Totals { slices: 3, desired: 2, endpoints: 4 });
        let none = Totals::of(all.iter().map(|it| &**it), "other", &Names::kubernetes(), 2);
        assert_eq!(none, Totals::default());
    }
}
