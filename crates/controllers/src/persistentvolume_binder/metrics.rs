//! Metrics of the binder: numbers of claims and volumes, counted at scrape time, and durations of provisioning and
//! deletion by external drivers.

use crate::volumes::pending_operations::{BOUNDS, PendingOperation, PendingOperations};
use crate::volumes::{AnnotationKeys, migrated};
use api::Resource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::storage::v1::StorageClass;
use client::metrics::Metrics;
use client::{Informer, Key};
use metrics::{Counter, Descriptor, Family, Gauge, Histogram};
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const CLASS: &[&str] = &["storage_class"];
const NAMESPACE: &[&str] = &["namespace"];
const BOUND_VOLUMES: Descriptor =
    Descriptor::alpha("pv_collector_bound_pv_count", "Volumes that are bound to a claim.").by(CLASS);
const UNBOUND_VOLUMES: Descriptor =
    Descriptor::alpha("pv_collector_unbound_pv_count", "Volumes that are not bound to a claim.").by(CLASS);
const BOUND_CLAIMS: Descriptor =
    Descriptor::alpha("pv_collector_bound_pvc_count", "Claims that are bound to a volume.").by(NAMESPACE);
const UNBOUND_CLAIMS: Descriptor =
    Descriptor::alpha("pv_collector_unbound_pvc_count", "Claims that are not bound to a volume.")
        .by(NAMESPACE);
const ALL_VOLUMES: Descriptor =
    Descriptor::alpha("pv_collector_total_pv_count", "Volumes, by plugin and mode.")
        .by(&["plugin_name", "volume_mode"]);

const LATE: Descriptor = Descriptor::alpha(
    "retroactive_storageclass_total",
    "Claims that got the default class after their creation.",
);
const LATE_FAILED: Descriptor = Descriptor::alpha(
    "retroactive_storageclass_errors_total",
    "Claims whose default class could not be written after their creation.",
);

const TOOK: Descriptor = Descriptor::alpha(
    "volume_operation_total_seconds",
    "Time from a request for a volume to its binding, and from a volume's release to its deletion.",
)
.by(&["operation_name", "plugin_name"])
.seconds(BOUNDS);
const FAILED: Descriptor =
    Descriptor::alpha("volume_operation_total_errors", "Failed attempts to provision or delete a volume.")
        .by(&["operation_name", "plugin_name"]);

/// The plugin of a volume.
fn plugin(volume: &PersistentVolume, names: &Names) -> String {
    let spec = &volume.spec;
    if let Some(csi) = &spec.csi {
        return format!("{}:{}", names.well_known("csi"), csi.driver);
    }
    let sources = [
        (spec.aws_elastic_block_store.is_some(), "aws-ebs"),
        (spec.azure_disk.is_some(), "azure-disk"),
        (spec.azure_file.is_some(), "azure-file"),
        (spec.flex_volume.is_some(), "flexvolume"),
        (spec.gce_persistent_disk.is_some(), "gce-pd"),
        (spec.host_path.is_some(), "host-path"),
        (spec.local.is_some(), "local-volume"),
        (spec.photon_persistent_disk.is_some(), "photon-pd"),
        (spec.portworx_volume.is_some(), "portworx-volume"),
        (spec.scale_io.is_some(), "scaleio"),
        (spec.vsphere_volume.is_some(), "vsphere-volume"),
        (spec.cephfs.is_some(), "cephfs"),
        (spec.cinder.is_some(), "cinder"),
        (spec.fc.is_some(), "fc"),
        (spec.flocker.is_some(), "flocker"),
        (spec.glusterfs.is_some(), "glusterfs"),
        (spec.iscsi.is_some(), "iscsi"),
        (spec.nfs.is_some(), "nfs"),
        (spec.quobyte.is_some(), "quobyte"),
        (spec.rbd.is_some(), "rbd"),
        (spec.storageos.is_some(), "storageos"),
    ];
    let source = sources.into_iter().find(|(is_set, _)| *is_set);
    source.map_or("N/A".to_owned(), |(_, name)| names.well_known(name))
}

/// Durations of operations of external drivers: provisioning by claim, and deletion by volume.
pub struct OperationMetrics {
    pending: PendingOperations<Key>,
    took: Family<Histogram>,
    failed: Family<Counter>,
}

impl OperationMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let registry = metrics.registry();
        OperationMetrics {
            pending: PendingOperations::default(),
            took: registry.family(TOOK),
            failed: registry.family(FAILED),
        }
    }

    pub fn provision(&self, claim: &Key, driver: &str, now: Duration) {
        let operation =
            PendingOperation { name: "provision", driver: driver.to_owned(), since: now, is_migrated: false };
        self.pending.begin(claim.clone(), operation);
    }

    pub fn delete(&self, volume: &Key, driver: &str, now: Duration) {
        let operation =
            PendingOperation { name: "delete", driver: driver.to_owned(), since: now, is_migrated: false };
        self.pending.begin(volume.clone(), operation);
    }

    /// Counts a failure; the operation stays pending.
    pub fn failed(&self, key: &Key) {
        let operation = self.pending.get(key);
        operation.iter().for_each(|it| self.failed.of(&[it.name, &it.driver]).inc());
    }

    /// Ends an operation and observes its duration.
    pub fn done(&self, key: &Key, now: Duration) {
        if let Some(it) = self.pending.end(key) {
            self.took.of(&[it.name, &it.driver]).took(now.saturating_sub(it.since));
        }
    }

    /// Drops an operation that is not waited for any more.
    pub fn forget(&self, key: &Key) {
        self.pending.end(key);
    }
}

/// The driver that deletes the volumes of a class.
pub fn deleter(class: Option<&StorageClass>, names: &Names) -> String {
    let provisioner = class.map_or("N/A", |it| &*it.provisioner);
    migrated::driver(provisioner, names).unwrap_or(provisioner).to_owned()
}

/// Counts a claim that gets the default class after its creation.
pub fn count_late_class(metrics: &Metrics, is_written: bool) {
    metrics.registry().one::<Counter>(if is_written { LATE } else { LATE_FAILED }).inc();
}

/// Registers the numbers of claims and volumes.
pub fn register(
    metrics: &Metrics,
    claims: &Informer<PersistentVolumeClaim>,
    volumes: &Informer<PersistentVolume>,
    keys: &AnnotationKeys,
    names: &Arc<Names>,
) {
    let (all, names) = (volumes.clone(), names.clone());
    metrics.registry().callback::<Gauge>(ALL_VOLUMES, move |out| {
        let mode = |it: &PersistentVolume| it.spec.volume_mode.clone().unwrap_or_default();
        let labels = all.all().into_iter().map(|it| (plugin(&it, &names), mode(&it)));
        count(labels).iter().for_each(|((plugin, mode), number)| out.add(&[plugin, mode], *number));
    });
    for (about, bound) in [(BOUND_VOLUMES, true), (UNBOUND_VOLUMES, false)] {
        let (volumes, keys) = (volumes.clone(), keys.clone());
        metrics.registry().callback::<Gauge>(about, move |out| {
            let all = volumes.all();
            let counted = all.iter().filter(|it| (it.status.phase == "Bound") == bound);
            count(counted.map(|it| keys.class_of_volume(it).to_owned()))
                .iter()
                .for_each(|(class, number)| out.add(&[class], *number));
        });
    }
    for (about, bound) in [(BOUND_CLAIMS, true), (UNBOUND_CLAIMS, false)] {
        let claims = claims.clone();
        metrics.registry().callback::<Gauge>(about, move |out| {
            let all = claims.all();
            let counted = all.iter().filter(|it| (it.status.phase == "Bound") == bound);
            count(counted.map(|it| it.namespace()))
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
    use crate::testing::object;
    use serde_json::{Value, json};

    #[test]
    fn claims_and_volumes_are_counted() {
        let (metrics, names) = (Metrics::default(), Arc::new(Names::kubernetes()));
        let (claims, volumes) =
            (Informer::<PersistentVolumeClaim>::default(), Informer::<PersistentVolume>::default());
        register(&metrics, &claims, &volumes, &AnnotationKeys::new(&names), &names);
        let volume = |name: &str, phase: &str, source: Value| {
            let mut spec = json!({"storageClassName": "a", "volumeMode": "Block"});
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            volumes
                .apply(object(json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})));
        };
        volume("v", "Bound", json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
        volume("w", "Available", json!({"hostPath": {"path": "/x"}}));
        volume("x", "Released", json!({"nfs": {"path": "/x", "server": "s"}}));
        for (name, phase) in [("c", "Bound"), ("d", "Bound"), ("e", "Lost")] {
            let metadata = json!({"name": name, "namespace": "ns"});
            claims.apply(object(json!({"metadata": metadata, "status": {"phase": phase}})));
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
    fn operations_are_timed_until_they_end() {
        let metrics = Metrics::default();
        let operations = OperationMetrics::new(&metrics);
        let (claim, volume, at) = (Key::new("ns", "c"), Key::new("", "v"), Duration::from_secs);
        // not started
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
    fn the_class_names_the_deleter() {
        let names = Names::kubernetes();
        let class =
            |provisioner: &str| StorageClass { provisioner: provisioner.to_owned(), ..Default::default() };
        assert_eq!(deleter(Some(&class("example.com/p")), &names), "example.com/p");
        assert_eq!(deleter(Some(&class("kubernetes.io/gce-pd")), &names), "pd.csi.storage.gke.io");
        assert_eq!(deleter(None, &names), "N/A");
    }
}
