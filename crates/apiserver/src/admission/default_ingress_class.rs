//! DefaultIngressClass: sets the default class on ingresses without one.

use super::sync_plugin::{SyncAdmission, Verdict, is, with_context};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct DefaultIngressClass;

impl SyncAdmission for DefaultIngressClass {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "networking", "ingresses"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        with_context(write, |context| kinds::networking::ingress::give_class(object, context));
        Ok(())
    }
}
