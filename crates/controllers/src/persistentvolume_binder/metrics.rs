//! How many claims and volumes there are, counted when somebody asks, and how long it takes until a claim has the volume
//! that was asked for and until a volume is gone that nobody wants.

use crate::volumes::pending_operations::{BOUNDS, PendingOperations, Work};
use crate::volumes::{self, AnnotationKeys, migrated};
use client::metrics::Metrics;
use client::{Informer, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use metrics::{About, Counter, Family, Gauge, Histogram};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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
const ALL_VOLUMES: About = About::alpha("pv_collector_total_pv_count", "Volumes, by what they are made of.")
    .by(&["plugin_name", "volume_mode"]);

const LATE: About = About::alpha(
    "retroactive_storageclass_total",
    "Claims that got the default class when there came to be one.",
);
const LATE_FAILED: About =
    About::alpha("retroactive_storageclass_errors_total", "Those that could not get it.");

const TOOK: About = About::alpha(
    "volume_operation_total_seconds",
    "How long it took until a volume that was asked for was bound, and until one that was given up was gone.",
)
.by(&["operation_name", "plugin_name"])
.seconds(BOUNDS);
const FAILED: About = About::alpha("volume_operation_total_errors", "How often that did not go on.")
    .by(&["operation_name", "plugin_name"]);

/// What plugins are called below the well-known domain, where that is not the name of the field in small letters.
const PLUGINS: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "aws-ebs"),
    ("azureDisk", "azure-disk"),
    ("azureFile", "azure-file"),
    ("flexVolume", "flexvolume"),
    ("gcePersistentDisk", "gce-pd"),
    ("hostPath", "host-path"),
    ("local", "local-volume"),
    ("photonPersistentDisk", "photon-pd"),
    ("portworxVolume", "portworx-volume"),
    ("scaleIO", "scaleio"),
    ("vsphereVolume", "vsphere-volume"),
];
/// Fields of a volume that are as simple.
const SIMPLE: &[&str] =
    &["cephfs", "cinder", "fc", "flocker", "glusterfs", "iscsi", "nfs", "quobyte", "rbd", "storageos"];

/// What a volume is made of.
fn plugin(volume: &PersistentVolume, names: &Names) -> String {
    let Some(spec) = &volume.spec else { return "N/A".to_owned() };
    if let Some(csi) = &spec.csi {
        return format!("{}:{}", names.well_known("csi"), csi.driver);
    }
    // the fields of a type cannot be walked, those of its JSON can
    let fields = serde_json::to_value(spec).unwrap_or_default();
    let named = PLUGINS.iter().copied().chain(SIMPLE.iter().map(|it| (*it, *it)));
    let found = named.into_iter().find(|(field, _)| fields.get(field).is_some());
    found.map_or("N/A".to_owned(), |(_, name)| names.well_known(name))
}

/// Durations of operations of external drivers: provisioning by claim, and deletion by volume.
pub struct OperationMetrics {
    underway: PendingOperations<Key>,
    took: Family<Histogram>,
    failed: Family<Counter>,
}

impl OperationMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let registry = metrics.registry();
        OperationMetrics {
            underway: PendingOperations::default(),
            took: registry.family(TOOK),
            failed: registry.family(FAILED),
        }
    }

    pub fn provision(&self, claim: &Key, by: &str, now: Duration) {
        let work = Work { operation: "provision", by: by.to_owned(), since: now };
        self.underway.begin(claim.clone(), work);
    }

    pub fn delete(&self, volume: &Key, by: &str, now: Duration) {
        let work = Work { operation: "delete", by: by.to_owned(), since: now };
        self.underway.begin(volume.clone(), work);
    }

    /// It did not go on; whoever was asked is still waited for.
    pub fn failed(&self, key: &Key) {
        let work = self.underway.get(key);
        work.iter().for_each(|work| self.failed.of(&[work.operation, &work.by]).inc());
    }

    /// It has come to its end.
    pub fn done(&self, key: &Key, now: Duration) {
        if let Some(work) = self.underway.end(key) {
            self.took.of(&[work.operation, &work.by]).took(now.saturating_sub(work.since));
        }
    }

    /// Nobody waits for it any longer.
    pub fn forget(&self, key: &Key) {
        self.underway.end(key);
    }
}

/// Who removes the volumes of a class.
pub fn remover(class: Option<&StorageClass>, names: &Names) -> String {
    let maker = class.map_or("N/A", |it| &*it.provisioner);
    migrated::driver(maker, names).unwrap_or(maker).to_owned()
}

/// A claim was to get the default class late.
pub fn gave_class(metrics: &Metrics, well: bool) {
    metrics.registry().one::<Counter>(if well { LATE } else { LATE_FAILED }).inc();
}

pub fn show(
    metrics: &Metrics,
    claims: &Informer<PersistentVolumeClaim>,
    volumes: &Informer<PersistentVolume>,
    marks: &AnnotationKeys,
    names: &Arc<Names>,
) {
    let (all, spelled) = (volumes.clone(), names.clone());
    metrics.registry().ask::<Gauge>(ALL_VOLUMES, move |out| {
        let mode = |it: &PersistentVolume| it.spec.as_ref().and_then(|it| it.volume_mode.clone());
        let of = all.all().into_iter().map(|it| (plugin(&it, &spelled), mode(&it).unwrap_or_default()));
        count(of).iter().for_each(|((plugin, mode), number)| out.add(&[plugin, mode], *number));
    });
    for (about, bound) in [(BOUND_VOLUMES, true), (UNBOUND_VOLUMES, false)] {
        let (volumes, marks) = (volumes.clone(), marks.clone());
        metrics.registry().ask::<Gauge>(about, move |out| {
            let all = volumes.all();
            let counted = all.iter().filter(|it| (volumes::volume_phase(it) == "Bound") == bound);
            count(counted.map(|it| marks.class_of_volume(it).to_owned()))
                .iter()
                .for_each(|(class, number)| out.add(&[class], *number));
        });
    }
    for (about, bound) in [(BOUND_CLAIMS, true), (UNBOUND_CLAIMS, false)] {
        let claims = claims.clone();
        metrics.registry().ask::<Gauge>(about, move |out| {
            let all = claims.all();
            let counted = all.iter().filter(|it| (volumes::claim_phase(it) == "Bound") == bound);
            count(counted.map(|it| it.namespace().unwrap_or_default()))
                .iter()
                .for_each(|(namespace, number)| out.add(&[namespace], *number));
        });
    }
}

fn count<T: Ord>(of: impl Iterator<Item = T>) -> BTreeMap<T, f64> {
    of.fold(BTreeMap::new(), |mut counts, what| {
        *counts.entry(what).or_default() += 1.0;
        counts
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn claims_and_volumes_are_counted() {
        let (metrics, names) = (Metrics::default(), Arc::new(Names::kubernetes()));
        let (claims, volumes) =
            (Informer::<PersistentVolumeClaim>::default(), Informer::<PersistentVolume>::default());
        show(&metrics, &claims, &volumes, &AnnotationKeys::new(&names), &names);
        let volume = |name: &str, phase: &str, source: Value| {
            let mut spec = json!({"storageClassName": "a", "volumeMode": "Block"});
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            let json = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}});
            volumes.apply(serde_json::from_value(json).unwrap());
        };
        volume("v", "Bound", json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
        volume("w", "Available", json!({"hostPath": {"path": "/x"}}));
        volume("x", "Released", json!({"nfs": {"path": "/x", "server": "s"}}));
        for (name, phase) in [("c", "Bound"), ("d", "Bound"), ("e", "Lost")] {
            let json = json!({"metadata": {"name": name, "namespace": "ns"}, "status": {"phase": phase}});
            claims.apply(serde_json::from_value(json).unwrap());
        }
        let text = metrics.text();
        for part in [
            "pv_collector_bound_pv_count{storage_class=\"a\"} 1\n",
            "pv_collector_unbound_pv_count{storage_class=\"a\"} 2\n",
            "pv_collector_bound_pvc_count{namespace=\"ns\"} 2\n",
            "pv_collector_unbound_pvc_count{namespace=\"ns\"} 1\n",
            "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/csi:d\",volume_mode=\"Block\"} 1\n",
            "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/host-path\",volume_mode=\"Block\"} 1\n",
            "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/nfs\",volume_mode=\"Block\"} 1\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn what_others_do_is_timed_until_it_is_there() {
        let metrics = Metrics::default();
        let operations = OperationMetrics::new(&metrics);
        let (claim, volume, at) = (Key::new("ns", "c"), Key::new("", "v"), Duration::from_secs);
        // nobody was asked
        operations.done(&claim, at(1));
        operations.failed(&claim);
        operations.provision(&claim, "d", at(1));
        operations.provision(&claim, "d", at(2));
        operations.failed(&claim);
        operations.done(&claim, at(4));
        operations.delete(&volume, "d", at(5));
        operations.done(&volume, at(10));
        operations.provision(&claim, "e", at(11));
        operations.forget(&claim);
        operations.done(&claim, at(12));
        let text = metrics.text();
        for part in [
            "seconds_sum{operation_name=\"provision\",plugin_name=\"d\"} 3\n",
            "seconds_sum{operation_name=\"delete\",plugin_name=\"d\"} 5\n",
            "total_errors{operation_name=\"provision\",plugin_name=\"d\"} 1\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("plugin_name=\"e\""), "{text}");
    }

    #[test]
    fn removers_are_told_by_class() {
        let names = Names::kubernetes();
        let class =
            |provisioner: &str| StorageClass { provisioner: provisioner.to_owned(), ..Default::default() };
        assert_eq!(remover(Some(&class("example.com/p")), &names), "example.com/p");
        assert_eq!(remover(Some(&class("kubernetes.io/gce-pd")), &names), "pd.csi.storage.gke.io");
        assert_eq!(remover(None, &names), "N/A");
    }
}
