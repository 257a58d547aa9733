//! How many claims and volumes there are, counted when somebody asks.

use crate::Informer;
use crate::measures::Measures;
use crate::volumes::{self, Marks};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use metrics::{About, Gauge};
use std::collections::BTreeMap;

const CLASS: &[&str] = &["storage_class"];
const NAMESPACE: &[&str] = &["namespace"];
const BOUND_VOLUMES: About =
    About::alpha("pv_collector_bound_pv_count", "Volumes that are bound to a claim.").by(CLASS);
const UNBOUND_VOLUMES: About =
    About::alpha("pv_collector_unbound_pv_count", "Volumes that are not bound to a claim.").by(CLASS);
const BOUND_CLAIMS: About =
    About::alpha("pv_collector_bound_pvc_count", "Claims that are bound to a volume.").by(NAMESPACE);
const UNBOUND_CLAIMS: About =
    About::alpha("pv_collector_unbound_pvc_count", "Claims that are not bound to a volume.").by(NAMESPACE);

pub fn show(
    measures: &Measures,
    claims: &Informer<PersistentVolumeClaim>,
    volumes: &Informer<PersistentVolume>,
    marks: &Marks,
) {
    for (about, bound) in [(BOUND_VOLUMES, true), (UNBOUND_VOLUMES, false)] {
        let (volumes, marks) = (volumes.clone(), marks.clone());
        measures.registry().ask::<Gauge>(about, move |out| {
            let all = volumes.all();
            let counted = all.iter().filter(|it| (volumes::volume_phase(it) == "Bound") == bound);
            count(counted.map(|it| marks.class_of_volume(it).to_owned()))
                .iter()
                .for_each(|(class, number)| out.add(&[class], *number));
        });
    }
    for (about, bound) in [(BOUND_CLAIMS, true), (UNBOUND_CLAIMS, false)] {
        let claims = claims.clone();
        measures.registry().ask::<Gauge>(about, move |out| {
            let all = claims.all();
            let counted = all.iter().filter(|it| (volumes::claim_phase(it) == "Bound") == bound);
            count(counted.map(|it| it.namespace().unwrap_or_default()))
                .iter()
                .for_each(|(namespace, number)| out.add(&[namespace], *number));
        });
    }
}

fn count(of: impl Iterator<Item = String>) -> BTreeMap<String, f64> {
    of.fold(BTreeMap::new(), |mut counts, what| {
        *counts.entry(what).or_default() += 1.0;
        counts
    })
}
