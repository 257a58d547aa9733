//! Metrics of endpoint slices, for all their managers.
//!
//! The gauges of existing and desired slices are computed at each scrape.

use super::{EndpointIdentity, Plan};
use crate::slices;
use api::Resource;
use api::discovery::v1::{Endpoint, EndpointSlice};
use client::metrics::Metrics;
use client::{Informer, Key};
use metrics::{Counter, Descriptor, Gauge};
use names::Names;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The writes of one reconciliation.
pub struct Writes {
    pub added: usize,
    pub updated: usize,
    pub removed: usize,
    /// The number of slices that are created, updated and deleted.
    pub changes: [usize; 3],
}

impl Writes {
    pub fn of(plan: &Plan, existing: &[Arc<EndpointSlice>]) -> Self {
        let changes = [plan.create.len(), plan.update.len(), plan.delete.len()];
        if changes == [0, 0, 0] {
            return Writes { added: 0, updated: 0, removed: 0, changes };
        }
        let updated: HashSet<&str> = plan.update.iter().map(|it| it.name()).collect();
        let replaced = existing.iter().filter(|it| updated.contains(it.name()));
        let before = all(replaced.chain(&plan.delete).map(|it| &**it));
        let after = all(plan.create.iter().chain(&plan.update));
        let changed = |(identity, new): &(&EndpointIdentity, &&Endpoint)| {
            before.get(*identity).is_some_and(|old| !slices::unchanged(old, new))
        };
        Writes {
            added: after.keys().filter(|it| !before.contains_key(*it)).count(),
            updated: after.iter().filter(changed).count(),
            removed: before.keys().filter(|it| !after.contains_key(*it)).count(),
            changes,
        }
    }
}

/// Counters of slices that were created, updated and deleted.
pub struct Changes([Counter; 3]);

impl Changes {
    /// The family has the label `operation`.
    pub fn new(metrics: &Metrics, about: Descriptor) -> Self {
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

/// Registers the gauges of slices, of slices if all were full, and of endpoints. `owner` is the manager of the
/// slices, and the limit of endpoints of a slice.
pub fn show(
    metrics: &Metrics,
    abouts: [Descriptor; 3],
    slices: &Informer<EndpointSlice>,
    owner: (&str, &Arc<Names>, usize),
) {
    let values: [fn(&Totals) -> usize; 3] = [|it| it.slices, |it| it.desired, |it| it.endpoints];
    for (about, value) in abouts.into_iter().zip(values) {
        let (slices, manager, names, most) = (slices.clone(), owner.0.to_owned(), owner.1.clone(), owner.2);
        metrics.registry().callback::<Gauge>(about, move |out| {
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
        let mut by_ports: BTreeMap<(Key, &str, slices::Ports), usize> = BTreeMap::new();
        for slice in slices {
            let Some(service) = slices::service_of(slice, manager, names) else { continue };
            totals.slices += 1;
            totals.endpoints += slice.endpoints.len();
            let ports = slices::ports(&slice.ports);
            *by_ports.entry((service, &slice.address_type, ports)).or_default() += slice.endpoints.len();
        }
        totals.desired = by_ports.values().map(|endpoints| endpoints.div_ceil(most).max(1)).sum();
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    fn slice(name: &str, addresses: &[&str]) -> Arc<EndpointSlice> {
        let endpoints: Vec<_> = addresses.iter().map(|it| json!({"addresses": [it]})).collect();
        let labels =
            json!({"kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": "m"});
        Arc::new(object(json!({"metadata": {"name": name, "namespace": "n", "labels": labels},
            "addressType": "IPv4", "endpoints": endpoints, "ports": []})))
    }

    #[test]
    fn endpoints_that_move_are_neither_added_nor_removed() {
        let existing =
            [slice("a", &["1.1.1.1", "1.1.1.2"]), slice("b", &["1.1.1.3"]), slice("c", &["1.1.1.4"])];
        let plan = Plan {
            create: vec![(*slice("d", &["1.1.1.5"])).clone()],
            // one is removed, one moves from the deleted slice
            update: vec![(*slice("a", &["1.1.1.2", "1.1.1.3"])).clone()],
            delete: vec![existing[1].clone()],
        };
        let writes = Writes::of(&plan, &existing);
        assert_eq!((writes.added, writes.updated, writes.removed), (1, 0, 1));
        assert_eq!(writes.changes, [1, 1, 1]);
        // one becomes not ready
        let mut next = (*existing[0]).clone();
        next.endpoints[0].conditions.ready = Some(false);
        let plan = Plan { update: vec![next], ..Plan::default() };
        let writes = Writes::of(&plan, &existing);
        assert_eq!((writes.added, writes.updated, writes.removed), (0, 1, 0));
    }

    #[test]
    fn desired_slices_are_full() {
        let all = [slice("a", &["1.1.1.1", "1.1.1.2"]), slice("b", &["1.1.1.3"]), slice("c", &["1.1.1.4"])];
        let totals = Totals::of(all.iter().map(|it| &**it), "m", &Names::kubernetes(), 2);
        assert_eq!(totals, Totals { slices: 3, desired: 2, endpoints: 4 });
        let none = Totals::of(all.iter().map(|it| &**it), "other", &Names::kubernetes(), 2);
        assert_eq!(none, Totals::default());
    }
}
