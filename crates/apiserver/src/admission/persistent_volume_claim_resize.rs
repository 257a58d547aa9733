//! PersistentVolumeClaimResize: lets a claim grow where its StorageClass allows expansion.

use super::sync_plugin::{SyncAdmission, Verdict, is, with_context};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct PersistentVolumeClaimResize;

impl SyncAdmission for PersistentVolumeClaimResize {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::UPDATE.when(is(resource, "", "persistentvolumeclaims"))
    }

    fn review(&self, write: &AdmissionAttributes<'_>, object: &Value, old: Option<&Value>) -> Verdict {
        let Some(old) = old else { return Ok(()) };
        with_context(write, |context| kinds::core::persistentvolumeclaim::check_growth(object, old, context))
    }
}
