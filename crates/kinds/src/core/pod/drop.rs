//! Removal of fields whose feature gate is off.
//!
//! An object that already has such a field keeps it, so that turning a feature off does not break existing objects.

use super::spec::app_armor_prefix;
use crate::gates::{self, GatedField};
use crate::read;
use rest::hooks::Context;
use schema::Value;

const CONTAINERS: &str = "containers|initContainers|ephemeralContainers";
const PROBES: &str = "livenessProbe|readinessProbe|startupProbe";
const CONSTRAINTS: &str = "topologySpreadConstraints";

const GUARDED: &[GatedField] = &[
    (gates::SCHEDULING, &["spec", "schedulingGates"]),
    (gates::USER_NAMESPACES, &["spec", "hostUsers"]),
    (gates::RESOURCE_CLAIMS, &["spec", "resourceClaims"]),
    (gates::RESOURCE_CLAIMS, &["spec", CONTAINERS, "*", "resources", "claims"]),
    (gates::MIN_DOMAINS, &["spec", CONSTRAINTS, "*", "minDomains"]),
    (gates::MATCH_LABEL_KEYS, &["spec", CONSTRAINTS, "*", "matchLabelKeys"]),
    (gates::INCLUSION, &["spec", CONSTRAINTS, "*", "nodeAffinityPolicy"]),
    (gates::INCLUSION, &["spec", CONSTRAINTS, "*", "nodeTaintsPolicy"]),
    (gates::GRPC_PROBES, &["spec", CONTAINERS, "*", PROBES, "grpc"]),
    (gates::PROBE_GRACE, &["spec", CONTAINERS, "*", PROBES, "terminationGracePeriodSeconds"]),
];

/// `next` is a pod or a template of pods.
pub(super) fn disabled(next: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    gates::drop_disabled(next, old, GUARDED, context);
    mask(next, old, context);
    profiles(next, old, context);
    read::each_mut(next, &["spec", "volumes"], |volume| {
        if let Some(spec) = volume.at_mut(&["ephemeral", "volumeClaimTemplate", "spec"]) {
            spec.unset(&["resources", "claims"]);
        }
    });
}

/// A mount of `/proc` that is switched off is the usual one.
fn mask(next: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    let unmasked = |it: &Value| !matches!(it.text(&["securityContext", "procMount"]), "" | "Default");
    let used =
        |old: &Value| CONTAINERS.split('|').any(|list| old.items(&["spec", list]).iter().any(unmasked));
    if gates::PROC_MOUNT.is_open(context) || old.is_some_and(used) {
        return;
    }
    for list in CONTAINERS.split('|') {
        read::each_mut(next, &["spec", list], |one| {
            if read::has(one, &["securityContext", "procMount"]) {
                one.set(&["securityContext", "procMount"], "Default");
            }
        });
    }
}

/// Profiles are named in annotations.
fn profiles(next: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    if gates::APP_ARMOR.is_open(context) {
        return;
    }
    const ANNOTATIONS: &[&str] = &["metadata", "annotations"];
    let prefix = app_armor_prefix(context.names);
    let used = |old: &Value| read::map(old, ANNOTATIONS).keys().any(|key| key.starts_with(&prefix));
    if old.is_some_and(used) {
        return;
    }
    if let Some(annotations) = next.at_mut(ANNOTATIONS).and_then(Value::as_map_mut) {
        annotations.retain(|key, _| !key.starts_with(&prefix));
        if annotations.is_empty() {
            next.unset(ANNOTATIONS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json};

    #[test]
    fn disabled_fields_are_dropped_unless_in_use() {
        let new = r#"{"spec":{"hostUsers":false,"containers":[{"resources":{"claims":[{"name":"a"}]}}]}}"#;
        let mut object = json(new);
        disabled(&mut object, None, &context());
        assert_eq!(object, json(r#"{"spec":{"containers":[{"resources":{}}]}}"#));
        let mut object = json(new);
        disabled(&mut object, Some(&json(new)), &context());
        assert_eq!(object, json(new));
        // or unless the features are switched on
        let opened = [gates::USER_NAMESPACES.name.to_owned(), gates::RESOURCE_CLAIMS.name.to_owned()];
        let mut object = json(new);
        disabled(&mut object, None, &Context { opened: &opened, ..context() });
        assert_eq!(object, json(new));
    }

    #[test]
    fn profiles_are_dropped_if_disabled() {
        const NEW: &str = r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}}}"#;
        let closed = [gates::APP_ARMOR.name.to_owned()];
        for (closed, old, kept) in [(&[][..], None, true), (&closed, None, false), (&closed, Some(NEW), true)]
        {
            let mut object = json(NEW);
            let old = old.map(json);
            disabled(&mut object, old.as_ref(), &Context { closed, ..context() });
            assert_eq!(read::has(&object, &["metadata", "annotations"]), kept);
        }
    }
}
