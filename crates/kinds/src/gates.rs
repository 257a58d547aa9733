//! Feature gates of fields: what is taken out of objects unless it is switched on, or because it is switched off.
//!
//! What always holds: an object that has such a field keeps it, so that switching a feature off breaks nothing that
//! exists.

pub(crate) const CLAIM_RETENTION: &str = "StatefulSetAutoDeletePVC";
pub(crate) const CONDITIONS_OF_DISRUPTION: &str = "PodDisruptionConditions";
pub(crate) const CONTAINER_METRICS: &str = "HPAContainerMetrics";
pub(crate) const CROSS_NAMESPACE_SOURCES: &str = "CrossNamespaceVolumeDataSource";
pub(crate) const FAILURE_POLICY: &str = "JobPodFailurePolicy";
pub(crate) const GRPC_PROBES: &str = "GRPCContainerProbe";
pub(crate) const INCLUSION: &str = "NodeInclusionPolicyInPodTopologySpread";
pub(crate) const MATCH_LABEL_KEYS: &str = "MatchLabelKeysInPodTopologySpread";
pub(crate) const MAX_UNAVAILABLE: &str = "MaxUnavailableStatefulSet";
pub(crate) const MIN_DOMAINS: &str = "MinDomainsInPodTopologySpread";
pub(crate) const NODE_EXPAND_SECRET: &str = "CSINodeExpandSecret";
pub(crate) const ORDINALS: &str = "StatefulSetStartOrdinal";
pub(crate) const PROBE_GRACE: &str = "ProbeTerminationGracePeriod";
pub(crate) const PROC_MOUNT: &str = "ProcMountType";
pub(crate) const RESOURCE_CLAIMS: &str = "DynamicResourceAllocation";
pub(crate) const SCHEDULING: &str = "PodSchedulingReadiness";
pub(crate) const TIME_ZONE: &str = "CronJobTimeZone";
pub(crate) const UNHEALTHY: &str = "PDBUnhealthyPodEvictionPolicy";
pub(crate) const USER_NAMESPACES: &str = "UserNamespacesStatelessPodsSupport";

/// The gates, and the fields behind them.
pub const OF_FIELDS: &[(&str, &str)] = &[
    (CLAIM_RETENTION, "stateful sets keep `persistentVolumeClaimRetentionPolicy`, and follow it"),
    (CONDITIONS_OF_DISRUPTION, "evicted pods say why in a condition"),
    (CONTAINER_METRICS, "autoscalers keep metrics of single containers"),
    (CROSS_NAMESPACE_SOURCES, "claims keep a `dataSourceRef` with a namespace"),
    (FAILURE_POLICY, "jobs keep `podFailurePolicy`"),
    (GRPC_PROBES, "probes keep `grpc`"),
    (INCLUSION, "spread constraints keep `nodeAffinityPolicy` and `nodeTaintsPolicy`"),
    (MATCH_LABEL_KEYS, "pods keep `matchLabelKeys` of spread constraints"),
    (MAX_UNAVAILABLE, "stateful sets keep `maxUnavailable` of rolling updates, and follow it"),
    (MIN_DOMAINS, "pods keep `minDomains` of spread constraints"),
    (NODE_EXPAND_SECRET, "volumes keep `nodeExpandSecretRef`"),
    (ORDINALS, "stateful sets keep `ordinals`, and follow them"),
    (PROBE_GRACE, "probes keep `terminationGracePeriodSeconds`"),
    (PROC_MOUNT, "containers keep `procMount`"),
    (RESOURCE_CLAIMS, "pods keep `resourceClaims`, containers `claims`"),
    (SCHEDULING, "pods keep `schedulingGates`"),
    (TIME_ZONE, "cron jobs keep `timeZone`"),
    (UNHEALTHY, "disruption budgets keep `unhealthyPodEvictionPolicy`, and evictions follow it"),
    (USER_NAMESPACES, "pods keep `hostUsers`"),
];
