//! StorageObjectInUseProtection: adds the finalizer that protects volumes and claims in use.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct StorageObjectInUseProtection;

impl SyncAdmission for StorageObjectInUseProtection {
    fn interest(&self, resource: &Resource) -> Interest {
        let storage = is(resource, "", "persistentvolumes") || is(resource, "", "persistentvolumeclaims");
        Interest::CREATE.when(storage)
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        match &*write.resource.kind.plural {
            "persistentvolumes" => kinds::core::persistentvolume::protect(object, &write.api.names),
            _ => kinds::core::persistentvolumeclaim::protect(object, &write.api.names),
        }
        Ok(())
    }
}
