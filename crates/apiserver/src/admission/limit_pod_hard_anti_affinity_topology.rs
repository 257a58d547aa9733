//! LimitPodHardAntiAffinityTopology: denies required anti-affinity by any topology but the node.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct LimitPodHardAntiAffinityTopology;

impl SyncAdmission for LimitPodHardAntiAffinityTopology {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn review(&self, write: &AdmissionAttributes<'_>, object: &Value, _: Option<&Value>) -> Verdict {
        let host = write.api.names.well_known("hostname");
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = object.items(&["spec", "affinity", "podAntiAffinity", REQUIRED]).iter();
        match terms.map(|term| term.text(&["topologyKey"])).find(|key| *key != host) {
            None => Ok(()),
            Some(key) => Err(format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {host} is allowed"
            )),
        }
    }
}
