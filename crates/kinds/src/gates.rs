//! Feature gates of kinds: the fields that a gate removes or forbids.
//!
//! Invariant: an object that already has such a field keeps it, so that turning a feature off does not break existing
//! objects.

use rest::hooks::Context;
use schema::Value;

/// A feature gate and its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    /// Whether it is open by default.
    pub open: bool,
    /// The effect of an open gate on objects.
    pub changes: &'static str,
}

const fn open(name: &'static str, changes: &'static str) -> Gate {
    Gate { name, open: true, changes }
}

const fn closed(name: &'static str, changes: &'static str) -> Gate {
    Gate { name, open: false, changes }
}

impl Gate {
    pub(crate) fn is_open(&self, context: &Context<'_>) -> bool {
        self.is_open_in(context.opened, context.closed)
    }

    /// Whether it is open where an operator opened and closed these.
    pub fn is_open_in(&self, opened: &[String], closed: &[String]) -> bool {
        let decided = if self.open { closed } else { opened };
        self.open != decided.iter().any(|name| name == self.name)
    }
}

pub(crate) const ANY_SOURCE: Gate =
    open("AnyVolumeDataSource", "claims keep `dataSourceRef`, of any kind of source");
pub(crate) const APP_ARMOR: Gate = open("AppArmor", "pods keep annotations that name AppArmor profiles");
pub(crate) const CLAIM_RETENTION: Gate = closed(
    "StatefulSetAutoDeletePVC",
    "stateful sets keep `persistentVolumeClaimRetentionPolicy`, and follow it",
);
pub(crate) const CONDITIONS_OF_DISRUPTION: Gate =
    open("PodDisruptionConditions", "evicted pods say why in a condition");
pub(crate) const CONTAINER_METRICS: Gate =
    closed("HPAContainerMetrics", "autoscalers keep metrics of single containers");
pub(crate) const CROSS_NAMESPACE_SOURCES: Gate =
    closed("CrossNamespaceVolumeDataSource", "claims keep a `dataSourceRef` with a namespace");
pub const ENUMS: Gate =
    open("OpenAPIEnums", "OpenAPI documents tell which values fields of built-in kinds may have");
pub(crate) const EXPRESSIONS: Gate =
    open("CustomResourceValidationExpressions", "definitions keep rules as expressions");
pub(crate) const FAILURE_POLICY: Gate = open("JobPodFailurePolicy", "jobs keep `podFailurePolicy`");
pub(crate) const GRPC_PROBES: Gate = open("GRPCContainerProbe", "probes keep `grpc`");
pub(crate) const HINTS: Gate =
    open("TopologyAwareHints", "endpoint slices keep `hints`, and get them from the loop that makes them");
pub(crate) const HUGE_PAGES: Gate =
    open("DownwardAPIHugePages", "containers may be shown their limits and requests of huge pages");
pub(crate) const INCLUSION: Gate = open(
    "NodeInclusionPolicyInPodTopologySpread",
    "spread constraints keep `nodeAffinityPolicy` and `nodeTaintsPolicy`",
);
pub(crate) const LONG_SEARCHES: Gate = open(
    "ExpandedDNSConfig",
    "pods may have 32 search paths for names of 2048 characters, and not just 6 of 256",
);
pub(crate) const MATCH_LABEL_KEYS: Gate =
    closed("MatchLabelKeysInPodTopologySpread", "pods keep `matchLabelKeys` of spread constraints");
pub(crate) const MAX_UNAVAILABLE: Gate = closed(
    "MaxUnavailableStatefulSet",
    "stateful sets keep `maxUnavailable` of rolling updates, and follow it",
);
pub(crate) const MIN_DOMAINS: Gate =
    closed("MinDomainsInPodTopologySpread", "pods keep `minDomains` of spread constraints");
pub(crate) const NODE_EXPAND_SECRET: Gate =
    closed("CSINodeExpandSecret", "volumes keep `nodeExpandSecretRef`");
pub(crate) const ONE_POD: Gate =
    closed("ReadWriteOncePod", "claims and volumes may be for one pod alone (`ReadWriteOncePod`)");
pub(crate) const ORDINALS: Gate =
    closed("StatefulSetStartOrdinal", "stateful sets keep `ordinals`, and follow them");
pub(crate) const POLICY_STATUS: Gate = closed("NetworkPolicyStatus", "network policies have a `status`");
pub(crate) const PROBE_GRACE: Gate =
    open("ProbeTerminationGracePeriod", "probes keep `terminationGracePeriodSeconds`");
pub(crate) const PROC_MOUNT: Gate = closed("ProcMountType", "containers keep `procMount`");
pub(crate) const RECOVERY: Gate = closed(
    "RecoverVolumeExpansionFailure",
    "claims that did not grow may ask for less, and keep how far they came in their `status`",
);
pub(crate) const RESOURCE_CLAIMS: Gate =
    closed("DynamicResourceAllocation", "pods keep `resourceClaims`, containers `claims`");
pub(crate) const SCALE_TO_ZERO: Gate =
    closed("HPAScaleToZero", "autoscalers may have no replicas at the least");
pub(crate) const SCHEDULING: Gate = closed("PodSchedulingReadiness", "pods keep `schedulingGates`");
pub(crate) const SELINUX_MOUNT: Gate =
    closed("SELinuxMountReadWriteOncePod", "CSI drivers keep `seLinuxMount`");
pub(crate) const TIME_ZONE: Gate = open("CronJobTimeZone", "cron jobs keep `timeZone`, and follow it");
pub(crate) const UNHEALTHY: Gate = closed(
    "PDBUnhealthyPodEvictionPolicy",
    "disruption budgets keep `unhealthyPodEvictionPolicy`, and evictions follow it",
);
pub(crate) const UNSTARTED: Gate = open(
    "JobMutableNodeSchedulingDirectives",
    "suspended jobs that never started may change where their pods go",
);
pub(crate) const USER_NAMESPACES: Gate =
    closed("UserNamespacesStatelessPodsSupport", "pods keep `hostUsers`");

/// All of them.
pub const OF_KINDS: &[Gate] = &[
    ANY_SOURCE,
    APP_ARMOR,
    CLAIM_RETENTION,
    CONDITIONS_OF_DISRUPTION,
    CONTAINER_METRICS,
    CROSS_NAMESPACE_SOURCES,
    ENUMS,
    EXPRESSIONS,
    FAILURE_POLICY,
    GRPC_PROBES,
    HINTS,
    HUGE_PAGES,
    INCLUSION,
    LONG_SEARCHES,
    MATCH_LABEL_KEYS,
    MAX_UNAVAILABLE,
    MIN_DOMAINS,
    NODE_EXPAND_SECRET,
    ONE_POD,
    ORDINALS,
    POLICY_STATUS,
    PROBE_GRACE,
    PROC_MOUNT,
    RECOVERY,
    RESOURCE_CLAIMS,
    SCALE_TO_ZERO,
    SCHEDULING,
    SELINUX_MOUNT,
    TIME_ZONE,
    UNHEALTHY,
    UNSTARTED,
    USER_NAMESPACES,
];

/// A field that is kept only where a gate is open. In its path `*` is every item of a list, and `a|b` is a field of
/// either name.
pub(crate) type GatedField = (Gate, &'static [&'static str]);

/// Removes the fields of closed gates, unless the old object uses them at any place.
pub(crate) fn drop_disabled(
    next: &mut Value,
    old: Option<&Value>,
    guarded: &[GatedField],
    context: &Context<'_>,
) {
    for (gate, path) in guarded {
        if !gate.is_open(context) && !old.is_some_and(|old| uses(old, path)) {
            unset(next, path);
        }
    }
}

fn uses(value: &Value, path: &[&str]) -> bool {
    match (value, path) {
        (value, []) => !value.is_null(),
        (Value::List(items), ["*", rest @ ..]) => items.iter().any(|it| uses(it, rest)),
        (Value::Map(map), [names, rest @ ..]) => {
            names.split('|').any(|name| map.get(name).is_some_and(|it| uses(it, rest)))
        }
        _ => false,
    }
}

fn unset(value: &mut Value, path: &[&str]) {
    match (value, path) {
        (Value::List(items), ["*", rest @ ..]) => items.iter_mut().for_each(|it| unset(it, rest)),
        (Value::Map(map), [names, rest @ ..]) => {
            for name in names.split('|') {
                match map.get_mut(name) {
                    Some(_) if rest.is_empty() => drop(map.remove(name)),
                    Some(value) => unset(value, rest),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{context, json};

    const GUARDED: &[GatedField] = &[(SCHEDULING, &["a|b", "*", "c"]), (TIME_ZONE, &["zone"])];

    fn check(closed: &[String], old: Option<&str>, given: &str, expected: &str) {
        let mut object = json(given);
        let old = old.map(json);
        drop_disabled(&mut object, old.as_ref(), GUARDED, &Context { closed, ..context() });
        assert_eq!(object, json(expected), "{given}");
    }

    #[test]
    fn fields_of_closed_gates_go() {
        const ALL: &str = r#"{"a":[{"c":1,"d":2},{"d":3}],"b":[{"c":4},7],"zone":"x"}"#;
        check(&[], None, ALL, r#"{"a":[{"d":2},{"d":3}],"b":[{},7],"zone":"x"}"#);
        check(&[], Some(r#"{"a":[{"c":null}]}"#), ALL, r#"{"a":[{"d":2},{"d":3}],"b":[{},7],"zone":"x"}"#);
        check(&[TIME_ZONE.name.to_owned()], None, r#"{"a":5,"zone":"x"}"#, r#"{"a":5}"#);
    }

    #[test]
    fn fields_in_use_anywhere_are_allowed_everywhere() {
        const BOTH: &str = r#"{"a":[{"c":1}],"b":[{"c":2}]}"#;
        check(&[], Some(r#"{"b":[{},{"c":0}]}"#), BOTH, BOTH);
        let closed = [TIME_ZONE.name.to_owned()];
        check(&closed, Some(r#"{"zone":"y"}"#), r#"{"zone":"x"}"#, r#"{"zone":"x"}"#);
    }
}
