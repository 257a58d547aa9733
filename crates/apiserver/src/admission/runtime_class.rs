//! RuntimeClass: adds the overhead and the scheduling constraints of the runtime class to pods.

use super::sync_plugin::{SyncAdmission, Verdict, is, with_context};
use kinds::core::pod::admit;
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct RuntimeClass;

impl SyncAdmission for RuntimeClass {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "pods"))
    }

    fn failure(&self, object: &Value) -> Option<String> {
        admit::runtime_class_error(object)
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        with_context(write, |context| admit::use_runtime(object, context))
    }

    fn review(&self, write: &AdmissionAttributes<'_>, object: &Value, _: Option<&Value>) -> Verdict {
        with_context(write, |context| admit::check_runtime(object, context))
    }
}
