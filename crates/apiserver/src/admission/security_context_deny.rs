//! SecurityContextDeny: denies users, groups and SELinux options in pods.

use super::sync_plugin::{SyncAdmission, Verdict, containers, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct SecurityContextDeny;

/// Denied fields of pods, and their names in messages.
const OF_PODS: &[(&str, &str)] = &[
    ("supplementalGroups", "SupplementalGroups"),
    ("seLinuxOptions", "SELinuxOptions"),
    ("runAsUser", "RunAsUser"),
    ("fsGroup", "FSGroup"),
];
/// Denied fields of containers.
const OF_CONTAINERS: &[(&str, &str)] = &[("seLinuxOptions", "SELinuxOptions"), ("runAsUser", "RunAsUser")];

impl SyncAdmission for SecurityContextDeny {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn review(&self, _: &AdmissionAttributes<'_>, object: &Value, _: Option<&Value>) -> Verdict {
        let has = |value: &Value, path: &[&str]| value.at(path).is_some_and(|it| !it.is_null());
        if let Some((_, field)) = OF_PODS.iter().find(|(it, _)| has(object, &["spec", "securityContext", it]))
        {
            return Err(format!("pod.Spec.SecurityContext.{field} is forbidden"));
        }
        // ephemeral containers are not checked, as upstream does
        for (_, _, container) in containers(object).filter(|(list, ..)| *list != "ephemeralContainers") {
            let denied = OF_CONTAINERS.iter().find(|(it, _)| has(container, &["securityContext", it]));
            if let Some((_, field)) = denied {
                return Err(format!("SecurityContext.{field} is forbidden"));
            }
        }
        Ok(())
    }
}
