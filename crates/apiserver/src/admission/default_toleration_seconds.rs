//! DefaultTolerationSeconds: adds tolerations for not-ready and unreachable nodes.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use kinds::core::pod::admit::{TolerationSeconds, tolerate_lost_nodes};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct DefaultTolerationSeconds(pub TolerationSeconds);

impl SyncAdmission for DefaultTolerationSeconds {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn change(&self, write: &AdmissionAttributes<'_>, object: &mut Value, _: Option<&Value>) -> Verdict {
        tolerate_lost_nodes(object, self.0, &write.api.names);
        Ok(())
    }
}
