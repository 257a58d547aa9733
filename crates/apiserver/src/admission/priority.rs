//! Priority: resolves the priority class of a pod; at most one class is the global default.

use super::sync_plugin::{SyncAdmission, Verdict, is, with_context};
use kinds::{core::pod, scheduling::priorityclass};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct Priority;

impl SyncAdmission for Priority {
    fn interest(&self, resource: &Resource) -> Interest {
        let concerned = is(resource, "", "pods") || is(resource, "scheduling", "priorityclasses");
        Interest::CREATE.and(Interest::UPDATE).when(concerned)
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, old: Option<&Value>) -> Verdict {
        match old {
            _ if write.resource.kind.plural != "pods" => {}
            Some(old) => pod::admit::keep_priority(object, old),
            None => with_context(write, |context| pod::admit::give_priority(object, context))?,
        }
        Ok(())
    }

    fn review(&self, write: &AdmissionAttributes<'_>, object: &Value, old: Option<&Value>) -> Verdict {
        if write.resource.kind.plural == "pods" {
            return Ok(());
        }
        with_context(write, |context| priorityclass::check_default(object, old, context))
    }
}
