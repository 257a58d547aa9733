//! Ingresses that name no class get the default one.

use super::plain::{Decide, Verdict, is, looking};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct DefaultIngressClass;

impl Decide for DefaultIngressClass {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "networking", "ingresses"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        looking(write, |context| kinds::networking::ingress::give_class(object, context));
        Ok(())
    }
}
