//! Metrics of the controller: numbers of desired and attached volumes, and durations of attaching and detaching.
//!
//! An operation begins when the attachment is created or deleted, and ends when the driver reports success.

use super::decide::NodeVolumes;
use super::flex::FlexAttachments;
use super::indexes::is_managed;
use crate::Context;
use crate::volumes::pending_operations::{BOUNDS, PendingOperation, PendingOperations};
use api::Resource;
use api::storage::v1::{VolumeAttachment, VolumeError};
use client::metrics::Metrics;
use client::{Change, Informer};
use metrics::{Counter, Descriptor, Family, Gauge, Histogram};
use names::Names;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

const FORCED: Descriptor = Descriptor::alpha(
    "attachdetach_controller_forced_detaches",
    "Volumes that were detached although their node may have used them.",
);
const TOTAL: Descriptor = Descriptor::alpha(
    "attachdetach_controller_total_volumes",
    "Volumes that pods use, and volumes that are attached.",
)
.by(&["plugin_name", "state"]);
const IN_USE: Descriptor =
    Descriptor::alpha("storage_count_attachable_volumes_in_use", "Volumes that the pods of a node use.")
        .by(&["node", "volume_plugin"]);
const TOOK: Descriptor = Descriptor::alpha(
    "storage_operation_duration_seconds",
    "Time to attach or detach a volume, or until that failed.",
)
.by(&["migrated", "operation_name", "status", "volume_plugin"])
.seconds(BOUNDS);

const ATTACH: &str = "volume_attach";
const DETACH: &str = "volume_detach";

/// The number of volumes of each plugin that the pods of a node use.
type DesiredCounts = Arc<Mutex<HashMap<String, BTreeMap<String, u32>>>>;

pub struct AttachMetrics {
    desired: DesiredCounts,
    forced: Counter,
    operations: Arc<Operations>,
    names: Arc<Names>,
}

/// The key of the operation of a program.
fn flex_key(node: &str, volume: &str) -> String {
    format!("{node} {volume}")
}

impl AttachMetrics {
    pub fn new(
        context: &Context,
        attachments: &Informer<VolumeAttachment>,
        flex: &Arc<FlexAttachments>,
    ) -> Self {
        let (metrics, names) = (&context.metrics, &context.names);
        let desired = DesiredCounts::default();
        let plugin = names.well_known("csi");
        let plugin_name = move |driver: &str| format!("{plugin}:{driver}");
        let (counts, all, programs) = (desired.clone(), attachments.clone(), flex.clone());
        metrics.registry().callback::<Gauge>(TOTAL, move |out| {
            let (mut desired, mut actual) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
            for (plugin, number) in counts.lock().values().flatten() {
                *desired.entry(plugin.clone()).or_default() += number;
            }
            for attachment in all.all().iter().filter(|it| is_managed(it)) {
                *actual.entry(plugin_name(&attachment.spec.attacher)).or_default() += 1;
            }
            actual.extend(programs.counts());
            for (state, counts) in [("desired_state_of_world", desired), ("actual_state_of_world", actual)] {
                counts.iter().for_each(|(plugin, number)| out.add(&[plugin, state], (*number).into()));
            }
        });
        let counts = desired.clone();
        metrics.registry().callback::<Gauge>(IN_USE, move |out| {
            for (node, by_plugin) in &*counts.lock() {
                by_plugin.iter().for_each(|(plugin, number)| out.add(&[node, plugin], (*number).into()));
            }
        });
        let operations = Arc::new(Operations::new(metrics, names));
        let (observer, world) = (operations.clone(), context.world.clone());
        attachments.listen(move |change| observer.observe(change, world.elapsed()));
        let (ended, world) = (operations.clone(), context.world.clone());
        flex.on_finish(move |node, volume, succeeded| {
            ended.end(&flex_key(node, volume), succeeded, world.elapsed())
        });
        let forced = metrics.registry().one(FORCED);
        AttachMetrics { desired, forced, operations, names: names.clone() }
    }

    /// Counts a detachment from a node that may use the volume.
    pub fn count_forced(&self) {
        self.forced.inc();
    }

    /// Begins an operation, before the write that requests it.
    pub fn begin(&self, attachment: &str, volume: OperationVolume<'_>, operation: Operation, now: Duration) {
        self.operations.begin(attachment, volume, operation, now);
    }

    /// Begins an operation of a program.
    pub fn begin_flex(&self, node: &str, volume: &str, driver: &str, operation: Operation, now: Duration) {
        self.operations.begin_as(&flex_key(node, volume), driver.to_owned(), false, operation, now);
    }

    /// Ends an operation whose write failed.
    pub fn fail(&self, attachment: &str, now: Duration) {
        self.operations.end(attachment, false, now);
    }

    /// Sets the volumes that the pods of a node use.
    pub fn set_desired(&self, node: &str, volumes: &NodeVolumes) {
        let mut counts = BTreeMap::<String, u32>::new();
        for desired in volumes.desired.values() {
            *counts.entry(desired.volume.plugin(&self.names)).or_default() += 1;
        }
        let mut all = self.desired.lock();
        match counts.is_empty() {
            true => drop(all.remove(node)),
            false => drop(all.insert(node.to_owned(), counts)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Attach,
    Detach,
}

/// The volume of an operation.
#[derive(Debug, Clone, Copy)]
pub struct OperationVolume<'a> {
    pub driver: &'a str,
    /// Whether it is of an in-tree plugin that the driver replaced.
    pub is_migrated: bool,
}

/// The operations of drivers, by attachment.
struct Operations {
    pending: PendingOperations<String>,
    took: Family<Histogram>,
    plugin: String,
}

impl Operations {
    fn new(metrics: &Metrics, names: &Names) -> Self {
        let took = metrics.registry().family(TOOK);
        Operations { pending: PendingOperations::default(), took, plugin: names.well_known("csi") }
    }

    fn begin(&self, attachment: &str, volume: OperationVolume<'_>, operation: Operation, now: Duration) {
        let plugin = format!("{}:{}", self.plugin, volume.driver);
        self.begin_as(attachment, plugin, volume.is_migrated, operation, now);
    }

    fn begin_as(&self, key: &str, driver: String, is_migrated: bool, operation: Operation, now: Duration) {
        let name = if operation == Operation::Attach { ATTACH } else { DETACH };
        self.pending.begin(key.to_owned(), PendingOperation { name, driver, since: now, is_migrated });
    }

    fn end(&self, key: &str, succeeded: bool, now: Duration) {
        self.pending.end(&key.to_owned()).iter().for_each(|it| self.count(it, succeeded, now));
    }

    fn count(&self, operation: &PendingOperation, succeeded: bool, now: Duration) {
        let status = if succeeded { "success" } else { "fail-unknown" };
        let migrated = if operation.is_migrated { "true" } else { "false" };
        let labels = [migrated, operation.name, status, &operation.driver];
        self.took.of(&labels).took(now.saturating_sub(operation.since));
    }

    fn observe(&self, change: &Change<'_, VolumeAttachment>, now: Duration) {
        let attachment = change.object();
        let name = attachment.name().to_owned();
        let Some(operation) = self.pending.get(&name) else { return };
        let is_attaching = operation.name == ATTACH;
        if change.is_deletion() {
            self.pending.end(&name);
            // an attachment that is deleted before it succeeds is not counted
            if !is_attaching {
                self.count(&operation, true, now);
            }
        } else if is_attaching && attachment.status.attached {
            self.pending.end(&name);
            self.count(&operation, true, now);
        } else if let Change::Updated { old, new } = change
            && let Some(error) = error(new, is_attaching)
            && self::error(old, is_attaching) != Some(error)
        {
            self.pending.restart(&name, now);
            self.count(&operation, false, now);
        }
    }
}

/// The error that the driver reports.
fn error(attachment: &VolumeAttachment, is_attaching: bool) -> Option<&VolumeError> {
    let status = &attachment.status;
    if is_attaching { status.attach_error.as_deref() } else { status.detach_error.as_deref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn attachment(status: Value) -> Arc<VolumeAttachment> {
        let source = json!({"persistentVolumeName": "v"});
        let spec = json!({"attacher": "d", "nodeName": "n", "source": source});
        Arc::new(object(json!({"metadata": {"name": "a"}, "spec": spec, "status": status})))
    }

    #[test]
    fn operations_are_timed_until_the_driver_reports() {
        let metrics = Metrics::default();
        let operations = Operations::new(&metrics, &Names::kubernetes());
        let at = Duration::from_secs;
        let volume = OperationVolume { driver: "d", is_migrated: false };
        let migrated = OperationVolume { is_migrated: true, ..volume };
        let new = attachment(json!({"attached": false}));
        let failed = attachment(json!({"attached": false, "attachError": {"message": "busy"}}));
        let attached = attachment(json!({"attached": true}));
        // not begun here
        operations.observe(&Change::Added(&attached), at(1));
        operations.begin("a", volume, Operation::Attach, at(1));
        operations.observe(&Change::Added(&new), at(1));
        operations.observe(&Change::Updated { old: &new, new: &failed }, at(2));
        operations.observe(&Change::Updated { old: &failed, new: &failed }, at(3));
        operations.observe(&Change::Updated { old: &failed, new: &attached }, at(6));
        operations.observe(&Change::Updated { old: &attached, new: &attached }, at(7));
        operations.begin("a", volume, Operation::Detach, at(10));
        let stuck = attachment(json!({"attached": true, "detachError": {"message": "busy"}}));
        operations.observe(&Change::Updated { old: &attached, new: &stuck }, at(11));
        operations.observe(&Change::Deleted(&stuck), at(31));
        operations.begin("b", migrated, Operation::Detach, at(40));
        operations.end("b", false, at(40));
        let text = metrics.text();
        let line = |operation: &str, status: &str, what: &str, more: &str, value: u32| {
            let labels = format!("migrated=\"false\",operation_name=\"{operation}\",status=\"{status}\"");
            let line =
                format!("seconds_{what}{{{labels},volume_plugin=\"kubernetes.io/csi:d\"{more}}} {value}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        };
        line(ATTACH, "fail-unknown", "count", "", 1);
        line(ATTACH, "success", "sum", "", 4);
        line(ATTACH, "success", "bucket", ",le=\"2.5\"", 0);
        line(ATTACH, "success", "bucket", ",le=\"5\"", 1);
        line(DETACH, "fail-unknown", "count", "", 1);
        assert!(
            text.contains(&format!("migrated=\"true\",operation_name=\"{DETACH}\",status=\"fail-unknown\""))
        );
        line(DETACH, "success", "sum", "", 20);
        assert_eq!(operations.pending.get(&"a".to_owned()), None);
    }
}
