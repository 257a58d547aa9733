//! DenyServiceExternalIPs: rejects new external IPs of Services.

use super::sync_plugin::{SyncAdmission, Verdict, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;
use std::collections::HashSet;

pub struct DenyServiceExternalIps;

impl SyncAdmission for DenyServiceExternalIps {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "services"))
    }

    fn review(&self, _: &AdmissionAttributes<'_>, object: &Value, old: Option<&Value>) -> Verdict {
        const FIELD: &[&str] = &["spec", "externalIPs"];
        let had: HashSet<&str> =
            old.map_or(&[][..], |old| old.items(FIELD)).iter().filter_map(Value::as_str).collect();
        if object.items(FIELD).iter().all(|ip| ip.as_str().is_some_and(|ip| had.contains(ip))) {
            return Ok(());
        }
        Err("Use of external IPs is denied by admission control".to_owned())
    }
}
