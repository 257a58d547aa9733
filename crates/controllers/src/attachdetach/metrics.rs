//! How many volumes are wanted and attached, and how long attaching and detaching takes.
//!
//! A driver elsewhere does that. What it was asked to do begins with the write that asks, and ends when its attachment
//! says so.

use super::decide::NodeVolumes;
use super::indexes::is_own;
use crate::Context;
use crate::volumes::pending_operations::{BOUNDS, PendingOperations, Work};
use client::metrics::Metrics;
use client::{Change, Informer};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeError};
use kube::ResourceExt;
use metrics::{About, Counter, Family, Gauge, Histogram};
use names::Names;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

const FORCED: About = About::alpha(
    "attachdetach_controller_forced_detaches",
    "Volumes that were detached although their node may have used them.",
);
const TOTAL: About = About::alpha(
    "attachdetach_controller_total_volumes",
    "Volumes that are wanted somewhere, and that are attached somewhere.",
)
.by(&["plugin_name", "state"]);
const IN_USE: About =
    About::alpha("storage_count_attachable_volumes_in_use", "Volumes that pods of a node want.")
        .by(&["node", "volume_plugin"]);
const TOOK: About = About::alpha(
    "storage_operation_duration_seconds",
    "How long it took to attach and detach volumes, or to find out that it does not work.",
)
.by(&["migrated", "operation_name", "status", "volume_plugin"])
.seconds(BOUNDS);

const ATTACH: &str = "volume_attach";
const DETACH: &str = "volume_detach";

/// The number of volumes of each driver that the pods of a node use.
type DesiredCounts = Arc<Mutex<HashMap<String, BTreeMap<String, u32>>>>;

pub struct AttachMetrics {
    wanted: DesiredCounts,
    forced: Counter,
    operations: Arc<Operations>,
}

impl AttachMetrics {
    pub fn new(context: &Context, attachments: &Informer<VolumeAttachment>) -> Self {
        let (metrics, names) = (&context.metrics, &context.names);
        let wanted = DesiredCounts::default();
        let plugin = names.well_known("csi");
        let called = move |driver: &str| format!("{plugin}:{driver}");
        let (counted, all, named) = (wanted.clone(), attachments.clone(), called.clone());
        metrics.registry().ask::<Gauge>(TOTAL, move |out| {
            let (mut asked, mut actual) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
            for (driver, number) in counted.lock().values().flatten() {
                *asked.entry(driver.clone()).or_default() += number;
            }
            for attachment in all.all().iter().filter(|it| is_own(it)) {
                *actual.entry(attachment.spec.attacher.clone()).or_default() += 1;
            }
            for (state, counts) in [("desired_state_of_world", asked), ("actual_state_of_world", actual)] {
                counts
                    .iter()
                    .for_each(|(driver, number)| out.add(&[&named(driver), state], (*number).into()));
            }
        });
        let counted = wanted.clone();
        metrics.registry().ask::<Gauge>(IN_USE, move |out| {
            for (node, counts) in &*counted.lock() {
                counts
                    .iter()
                    .for_each(|(driver, number)| out.add(&[node, &called(driver)], (*number).into()));
            }
        });
        let operations = Arc::new(Operations::new(metrics, names));
        let (follows, world) = (operations.clone(), context.world.clone());
        attachments.listen(move |change| follows.saw(change, world.elapsed()));
        AttachMetrics { wanted, forced: metrics.registry().one(FORCED), operations }
    }

    pub fn forced(&self) {
        self.forced.inc();
    }

    /// A driver is about to be asked to attach or to detach something.
    pub fn asked(&self, attachment: &str, driver: &str, operation: Operation, now: Duration) {
        self.operations.asked(attachment, driver, operation, now);
    }

    /// It could not be asked.
    pub fn not_asked(&self, attachment: &str, now: Duration) {
        self.operations.not_asked(attachment, now);
    }

    /// What the pods of a node want now.
    pub fn wanted(&self, node: &str, seen: &NodeVolumes) {
        let mut counts = BTreeMap::<String, u32>::new();
        for wanted in seen.wanted.values() {
            *counts.entry(wanted.volume.driver.clone()).or_default() += 1;
        }
        let mut all = self.wanted.lock();
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

/// What drivers were asked to do, by attachment, and how long it took.
struct Operations {
    underway: PendingOperations<String>,
    took: Family<Histogram>,
    plugin: String,
}

impl Operations {
    fn new(metrics: &Metrics, names: &Names) -> Self {
        let took = metrics.registry().family(TOOK);
        Operations { underway: PendingOperations::default(), took, plugin: names.well_known("csi") }
    }

    fn asked(&self, attachment: &str, driver: &str, operation: Operation, now: Duration) {
        let operation = if operation == Operation::Attach { ATTACH } else { DETACH };
        let by = format!("{}:{driver}", self.plugin);
        self.underway.begin(attachment.to_owned(), Work { operation, by, since: now });
    }

    fn not_asked(&self, attachment: &str, now: Duration) {
        self.underway.end(&attachment.to_owned()).iter().for_each(|work| self.count(work, false, now));
    }

    fn count(&self, work: &Work, well: bool, now: Duration) {
        let status = if well { "success" } else { "fail-unknown" };
        // volumes of old plugins are not attached here
        let labels = ["false", work.operation, status, &work.by];
        self.took.of(&labels).took(now.saturating_sub(work.since));
    }

    fn saw(&self, change: &Change<'_, VolumeAttachment>, now: Duration) {
        let attachment = change.object();
        let name = attachment.name_any();
        let Some(work) = self.underway.get(&name) else { return };
        let is_attaching = work.operation == ATTACH;
        let status = attachment.status.as_ref();
        if change.is_deletion() {
            self.underway.end(&name);
            // one that goes before it was attached has not come to any end
            if !is_attaching {
                self.count(&work, true, now);
            }
        } else if is_attaching && status.is_some_and(|it| it.attached) {
            self.underway.end(&name);
            self.count(&work, true, now);
        } else if let Change::Updated { old, new } = change
            && let Some(now_wrong) = wrong(new, is_attaching)
            && wrong(old, is_attaching) != Some(now_wrong)
        {
            self.underway.again(&name, now);
            self.count(&work, false, now);
        }
    }
}

/// What its driver says about what did not work.
fn wrong(attachment: &VolumeAttachment, attaching: bool) -> Option<&VolumeError> {
    let status = attachment.status.as_ref()?;
    if attaching { status.attach_error.as_ref() } else { status.detach_error.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn attachment(status: Value) -> Arc<VolumeAttachment> {
        let source = json!({"persistentVolumeName": "v"});
        let spec = json!({"attacher": "d", "nodeName": "n", "source": source});
        let whole = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    #[test]
    fn what_drivers_do_is_timed_from_when_they_are_asked() {
        let metrics = Metrics::default();
        let operations = Operations::new(&metrics, &Names::kubernetes());
        let at = Duration::from_secs;
        let new = attachment(json!({"attached": false}));
        let failed = attachment(json!({"attached": false, "attachError": {"message": "busy"}}));
        let attached = attachment(json!({"attached": true}));
        // nobody asked for this one
        operations.saw(&Change::Added(&attached), at(1));
        operations.asked("a", "d", Operation::Attach, at(1));
        operations.saw(&Change::Added(&new), at(1));
        operations.saw(&Change::Updated { old: &new, new: &failed }, at(2));
        operations.saw(&Change::Updated { old: &failed, new: &failed }, at(3));
        operations.saw(&Change::Updated { old: &failed, new: &attached }, at(6));
        operations.saw(&Change::Updated { old: &attached, new: &attached }, at(7));
        operations.asked("a", "d", Operation::Detach, at(10));
        let stuck = attachment(json!({"attached": true, "detachError": {"message": "busy"}}));
        operations.saw(&Change::Updated { old: &attached, new: &stuck }, at(11));
        operations.saw(&Change::Deleted(&stuck), at(31));
        operations.asked("b", "d", Operation::Detach, at(40));
        operations.not_asked("b", at(40));
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
        line(DETACH, "fail-unknown", "count", "", 2);
        line(DETACH, "success", "sum", "", 20);
        assert_eq!(operations.underway.get(&"a".to_owned()), None);
    }
}
