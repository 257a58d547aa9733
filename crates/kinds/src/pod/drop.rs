//! Takes away fields of features that this version knows but has switched off.
//!
//! An object that has such a field keeps it, so that switching a feature off breaks nothing that exists.

use crate::{gates, read};
use rest::hooks::Context;
use schema::Value;

pub(super) fn disabled(next: &mut Value, old: Option<&Value>, context: &Context<'_>) {
    for (field, gate) in [
        ("schedulingGates", gates::SCHEDULING),
        ("hostUsers", gates::USER_NAMESPACES),
        ("resourceClaims", gates::RESOURCE_CLAIMS),
    ] {
        if !context.opens(gate) && !old.is_some_and(|old| read::has(old, &["spec", field])) {
            next.unset(&["spec", field]);
        }
    }
    let uses = |list: &str, path: &[&str]| {
        old.is_some_and(|old| old.items(&["spec", list]).iter().any(|it| read::has(it, path)))
    };
    for (field, gate) in [("minDomains", gates::MIN_DOMAINS), ("matchLabelKeys", gates::MATCH_LABEL_KEYS)] {
        if !context.opens(gate) && !uses("topologySpreadConstraints", &[field]) {
            read::each_mut(next, &["spec", "topologySpreadConstraints"], |one| {
                one.unset(&[field]);
            });
        }
    }
    if context.closes(gates::INCLUSION) {
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if !uses("topologySpreadConstraints", &[field]) {
                read::each_mut(next, &["spec", "topologySpreadConstraints"], |one| {
                    one.unset(&[field]);
                });
            }
        }
    }
    const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];
    const CONTAINERS: &[&str] = &["containers", "initContainers", "ephemeralContainers"];
    let claims = context.opens(gates::RESOURCE_CLAIMS)
        || CONTAINERS.iter().any(|list| uses(list, &["resources", "claims"]));
    let probed = |path: &[&str]| {
        PROBES.iter().any(|probe| {
            let path: Vec<&str> = std::iter::once(*probe).chain(path.iter().copied()).collect();
            CONTAINERS.iter().any(|list| uses(list, &path))
        })
    };
    let no_grpc = context.closes(gates::GRPC_PROBES) && !probed(&["grpc"]);
    let no_grace = context.closes(gates::PROBE_GRACE) && !probed(&["terminationGracePeriodSeconds"]);
    let masks = context.opens(gates::PROC_MOUNT)
        || CONTAINERS.iter().any(|list| {
            let unmasked = |it: &Value| !matches!(it.text(&["securityContext", "procMount"]), "" | "Default");
            old.is_some_and(|old| old.items(&["spec", list]).iter().any(unmasked))
        });
    for list in CONTAINERS {
        read::each_mut(next, &["spec", list], |one| {
            if !claims {
                one.unset(&["resources", "claims"]);
            }
            for probe in PROBES {
                if no_grpc {
                    one.unset(&[probe, "grpc"]);
                }
                if no_grace {
                    one.unset(&[probe, "terminationGracePeriodSeconds"]);
                }
            }
            if !masks && read::has(one, &["securityContext", "procMount"]) {
                one.set(&["securityContext", "procMount"], "Default");
            }
        });
    }
    read::each_mut(next, &["spec", "volumes"], |volume| {
        if let Some(spec) = volume.at_mut(&["ephemeral", "volumeClaimTemplate", "spec"]) {
            spec.unset(&["resources", "claims"]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{context, json};

    #[test]
    fn disabled_fields_go_unless_they_were_there() {
        let new = r#"{"spec":{"hostUsers":false,"containers":[{"resources":{"claims":[{"name":"a"}]}}]}}"#;
        let mut object = json(new);
        disabled(&mut object, None, &context());
        assert_eq!(object, json(r#"{"spec":{"containers":[{"resources":{}}]}}"#));
        let mut object = json(new);
        disabled(&mut object, Some(&json(new)), &context());
        assert_eq!(object, json(new));
        // or unless the features are switched on
        let opened = [gates::USER_NAMESPACES.to_owned(), gates::RESOURCE_CLAIMS.to_owned()];
        let mut object = json(new);
        disabled(&mut object, None, &Context { opened: &opened, ..context() });
        assert_eq!(object, json(new));
    }
}
