//! What is counted about endpoint slices.
//!
//! How many there are, and should be, is found out when somebody asks.

use crate::measures::Measures;
use crate::slices::{self, Plan, Same};
use crate::{Informer, Key};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use metrics::{About, Counter, Family, Gauge, Histogram, counts};
use names::Names;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const ADDED: About = About::alpha(
    "endpoint_slice_controller_endpoints_added_per_sync",
    "Endpoints that came with a look at a service.",
)
.sizes(&counts::<15>(2, 2));
const REMOVED: About = About {
    name: "endpoint_slice_controller_endpoints_removed_per_sync",
    help: "Endpoints that went with a look at a service.",
    ..ADDED
};
const CHANGED: About = About::alpha(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "Slices that were written with a look at a service.",
)
.by(&["topology"])
.in_thousandths(&[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000]);
const CHANGES: About =
    About::alpha("endpoint_slice_controller_changes", "Writes of slices.").by(&["operation"]);
const LOOKS: About = About::alpha("endpoint_slice_controller_syncs", "Looks at services.").by(&["result"]);
const SLICES: About = About::alpha("endpoint_slice_controller_num_endpoint_slices", "Slices that there are.");
const DESIRED: About = About::alpha(
    "endpoint_slice_controller_desired_endpoint_slices",
    "Slices that there would be if all were as full as they may be.",
);
const ENDPOINTS: About =
    About::alpha("endpoint_slice_controller_endpoints_desired", "Endpoints that there are.");

pub(super) struct Measured {
    added: Histogram,
    removed: Histogram,
    changed: Family<Histogram>,
    changes: [Counter; 3],
    looks: Family<Counter>,
}

/// What a look at a service will write.
pub(super) struct Writes {
    added: usize,
    removed: usize,
    changes: [usize; 3],
}

impl Writes {
    pub fn of(plan: &Plan, existing: &[Arc<EndpointSlice>]) -> Self {
        let changes = [plan.create.len(), plan.update.len(), plan.delete.len()];
        if changes == [0, 0, 0] {
            return Writes { added: 0, removed: 0, changes };
        }
        let updated: HashSet<&str> =
            plan.update.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        let going = existing.iter().filter(|it| updated.contains(it.name_any().as_str()));
        let before = all(going.chain(&plan.delete).map(|it| &**it));
        let after = all(plan.create.iter().chain(&plan.update));
        let [added, removed] = [after.difference(&before).count(), before.difference(&after).count()];
        Writes { added, removed, changes }
    }
}

/// All endpoints of some slices.
fn all<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> HashSet<Same> {
    slices.flat_map(|it| &it.endpoints).map(slices::same).collect()
}

impl Measured {
    pub fn new(
        measures: &Measures,
        slices: &Informer<EndpointSlice>,
        (manager, names, most): (&str, &Arc<Names>, usize),
    ) -> Self {
        let registry = measures.registry();
        let ask = |about: About, value: fn(&Totals) -> usize| {
            let (slices, manager, names) = (slices.clone(), manager.to_owned(), names.clone());
            registry.ask::<Gauge>(about, move |out| {
                let totals = Totals::of(slices.all().iter().map(|it| &**it), &manager, &names, most);
                out.add(&[], value(&totals) as f64);
            });
        };
        ask(SLICES, |it| it.slices);
        ask(DESIRED, |it| it.desired);
        ask(ENDPOINTS, |it| it.endpoints);
        let changes = registry.family::<Counter>(CHANGES);
        Measured {
            added: registry.one(ADDED),
            removed: registry.one(REMOVED),
            changed: registry.family(CHANGED),
            changes: ["create", "update", "delete"].map(|operation| changes.of(&[operation])),
            looks: registry.family(LOOKS),
        }
    }

    pub fn looked(&self, writes: &Writes, hinted: bool, well: bool) {
        self.looks.of(&[if well { "success" } else { "error" }]).inc();
        if !well {
            return;
        }
        self.added.observe(writes.added as u64);
        self.removed.observe(writes.removed as u64);
        let topology = if hinted { "Auto" } else { "Disabled" };
        self.changed.of(&[topology]).observe(1000 * writes.changes.iter().sum::<usize>() as u64);
        for (counter, more) in self.changes.iter().zip(writes.changes) {
            counter.inc_by(more as u64);
        }
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
        assert_eq!((writes.added, writes.removed, writes.changes), (1, 1, [1, 1, 1]));
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
