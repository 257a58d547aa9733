//! How many volumes are wanted and attached.

use super::decide::Seen;
use super::look::is_own;
use crate::Informer;
use crate::measures::Measures;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use metrics::{About, Counter, Gauge};
use names::Names;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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

/// How many volumes of each driver the pods of a node want.
type Wanted = Arc<Mutex<HashMap<String, BTreeMap<String, u32>>>>;

pub struct Numbers {
    wanted: Wanted,
    forced: Counter,
}

impl Numbers {
    pub fn new(measures: &Measures, attachments: &Informer<VolumeAttachment>, names: &Names) -> Self {
        let wanted = Wanted::default();
        let plugin = names.well_known("csi");
        let called = move |driver: &str| format!("{plugin}:{driver}");
        let (counted, all, named) = (wanted.clone(), attachments.clone(), called.clone());
        measures.registry().ask::<Gauge>(TOTAL, move |out| {
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
        measures.registry().ask::<Gauge>(IN_USE, move |out| {
            for (node, counts) in &*counted.lock() {
                counts
                    .iter()
                    .for_each(|(driver, number)| out.add(&[node, &called(driver)], (*number).into()));
            }
        });
        Numbers { wanted, forced: measures.registry().one(FORCED) }
    }

    pub fn forced(&self) {
        self.forced.inc();
    }

    /// What the pods of a node want now.
    pub fn wanted(&self, node: &str, seen: &Seen) {
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
