//! TaintNodesByCondition: taints new nodes as not ready.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct TaintNodesByCondition;

impl SyncAdmission for TaintNodesByCondition {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "nodes"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        kinds::core::node::taint_new(object, &write.api.names);
        Ok(())
    }
}
