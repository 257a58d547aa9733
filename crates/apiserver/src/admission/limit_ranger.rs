//! LimitRanger: applies the defaults and bounds of LimitRanges to pods and claims.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use kinds::limits;
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct LimitRanger;

impl SyncAdmission for LimitRanger {
    fn interest(&self, resource: &Resource) -> Interest {
        // resources of containers are immutable, so updates of pods need no check
        let claims = Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "persistentvolumeclaims"));
        claims.and(Interest::CREATE.when(is(resource, "", "pods")))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        if write.resource.kind.plural == "pods" {
            limits::fill_pod(object, &ranges(write), &write.api.names);
        }
        Ok(())
    }

    fn review(&self, write: &AdmissionAttributes<'_>, object: &Value, old: Option<&Value>) -> Verdict {
        if old.is_some_and(|old| !old.text(&["metadata", "deletionTimestamp"]).is_empty()) {
            return Ok(());
        }
        match &*write.resource.kind.plural {
            "pods" => limits::check_pod(object, &ranges(write)),
            _ => limits::check_claim(object, &ranges(write)),
        }
    }
}

fn ranges(write: &AdmissionAttributes<'_>) -> Vec<Value> {
    write.api.list_of("limitranges", Some(write.namespace))
}
