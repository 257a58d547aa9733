//! Pods choose neither their user nor their groups nor their labels for the kernel.

use super::plain::{Decide, Verdict, containers, is};
use rest::{AdmissionAttributes, Interest, Resource};
use schema::Value;

pub struct SecurityContextDeny;

/// What is denied to pods, and what they are told.
const OF_PODS: &[(&str, &str)] = &[
    ("supplementalGroups", "SupplementalGroups"),
    ("seLinuxOptions", "SELinuxOptions"),
    ("runAsUser", "RunAsUser"),
    ("fsGroup", "FSGroup"),
];
/// What is denied to containers.
const OF_CONTAINERS: &[(&str, &str)] = &[("seLinuxOptions", "SELinuxOptions"), ("runAsUser", "RunAsUser")];

impl Decide for SecurityContextDeny {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.and(Interest::UPDATE).when(is(resource, "", "pods"))
    }

    fn review(&self, _: &AdmissionAttributes<'_>, object: &Value, _: Option<&Value>) -> Verdict {
        let has = |value: &Value, path: &[&str]| value.at(path).is_some_and(|it| !it.is_null());
        if let Some((_, told)) = OF_PODS.iter().find(|(it, _)| has(object, &["spec", "securityContext", it]))
        {
            return Err(format!("pod.Spec.SecurityContext.{told} is forbidden"));
        }
        // those that join later are looked at by nobody, as upstream has it
        for (_, _, container) in containers(object).filter(|(list, ..)| *list != "ephemeralContainers") {
            let denied = OF_CONTAINERS.iter().find(|(it, _)| has(container, &["securityContext", it]));
            if let Some((_, told)) = denied {
                return Err(format!("SecurityContext.{told} is forbidden"));
            }
        }
        Ok(())
    }
}
