//! DefaultStorageClass: sets the default class on claims without one.

use super::sync_plugin::{SyncAdmission, Verdict, is, with_context};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct DefaultStorageClass;

impl SyncAdmission for DefaultStorageClass {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "persistentvolumeclaims"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        with_context(write, |context| kinds::core::persistentvolumeclaim::give_class(object, context));
        Ok(())
    }
}
