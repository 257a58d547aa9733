//! All 1.26 feature gates, and the option that each implemented one sets.
//!
//! All names are accepted (`gates/gates.txt`), so that upstream command lines work.

use apiserver::Gates;
use controllers::gates as loops;
use nodeagent::configuration::AGENT_GATES;
use scheduler::framework::Features;

/// A feature gate of upstream.
pub struct Gate {
    pub name: &'static str,
    /// The default value.
    pub open: bool,
    /// `alpha`, `beta` or `ga`.
    pub stage: &'static str,
    /// Whether the value is fixed.
    pub locked: bool,
}

pub fn all() -> impl Iterator<Item = Gate> {
    include_str!("gates.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let (name, open, stage) = (words.next()?, words.next()? == "open", words.next()?);
        Some(Gate { name, open, stage, locked: words.next().is_some() })
    })
}

/// Gates that set others: name and stage.
pub const GROUPS: [(&str, &str); 2] = [("AllAlpha", "alpha"), ("AllBeta", "beta")];

/// Name, effect and option of a gate of the API server.
type ServerGate = (&'static str, &'static str, fn(&mut Gates) -> &mut bool);

/// The gates of the API server.
pub const SERVER_GATES: &[ServerGate] = &[
    ("APIListChunking", "lists are paginated (`limit`, `continue`)", |gates| &mut gates.list_chunking),
    (
        "APIPriorityAndFairness",
        "requests are queued by priority level (with `--enable-priority-and-fairness`)",
        |gates| &mut gates.priority_and_fairness,
    ),
    ("APIResponseCompression", "responses are compressed for clients that accept gzip", |gates| {
        &mut gates.compression
    }),
    ("APIServerTracing", "spans of requests are sent to a collector (`--tracing-config-file`)", |gates| {
        &mut gates.tracing
    }),
    ("AdvancedAuditing", "audit events are recorded (`--audit-*`)", |gates| &mut gates.auditing),
    ("AggregatedDiscoveryEndpoint", "aggregated discovery is served (`as=APIGroupDiscoveryList`)", |gates| {
        &mut gates.aggregated_discovery
    }),
    (
        "APIServerIdentity",
        "the server holds an identity lease and removes expired leases of other servers",
        |gates| &mut gates.apiserver_identity,
    ),
    ("ComponentSLIs", "`/metrics/slis` is served, also by the controller manager", |gates| &mut gates.slis),
    ("KMSv2", "KMS v2 plugins are allowed for encryption at rest (`apiVersion: v2`)", |gates| {
        &mut gates.kms_v2
    }),
    ("LegacyServiceAccountTokenTracking", "secrets have a label with the last use of their token", |gates| {
        &mut gates.legacy_token_tracking
    }),
    ("OpenAPIV3", "`/openapi/v3` is served", |gates| &mut gates.openapi_v3),
    ("RemainingItemCount", "paginated lists have `remainingItemCount`", |gates| {
        &mut gates.remaining_item_count
    }),
    (
        "ServerSideFieldValidation",
        "unknown and duplicate fields cause warnings or errors (`fieldValidation`)",
        |gates| &mut gates.field_validation,
    ),
    (
        "StorageVersionAPI",
        "the server says in `storageversions`, if they are served, in which version it keeps the objects of each \
         built-in resource (with `APIServerIdentity`)",
        |gates| &mut gates.storage_versions,
    ),
    ("StorageVersionHash", "discovery has `storageVersionHash`", |gates| &mut gates.storage_hash),
    (
        "ValidatingAdmissionPolicy",
        "validating admission policies are enforced, if their version is served",
        |gates| &mut gates.validating_admission_policy,
    ),
];

/// Name and option of a gate of the scheduler.
type SchedulerGate = (&'static str, fn(&mut Features) -> &mut bool);

/// The gates of the scheduler; the fields that they stand for are the server's.
pub const SCHEDULER_GATES: &[SchedulerGate] = &[
    ("CSIMigrationPortworx", |it| &mut it.csi_migration_portworx),
    ("CSIMigrationRBD", |it| &mut it.csi_migration_rbd),
    ("DynamicResourceAllocation", |it| &mut it.dynamic_resource_allocation),
    ("MatchLabelKeysInPodTopologySpread", |it| &mut it.match_label_keys_in_pod_topology_spread),
    ("MinDomainsInPodTopologySpread", |it| &mut it.min_domains_in_pod_topology_spread),
    ("NodeInclusionPolicyInPodTopologySpread", |it| &mut it.node_inclusion_policy_in_pod_topology_spread),
    ("ReadWriteOncePod", |it| &mut it.read_write_once_pod),
];

/// Name, effect and option of a gate of the scheduler's configuration.
type SchedulerConfigGate = (&'static str, &'static str, fn(&mut scheduler::config::Gates) -> &mut bool);

/// The gates of plugins and arguments that a scheduler's configuration may name.
pub const SCHEDULER_CONFIG_GATES: &[SchedulerConfigGate] = &[
    ("DynamicResourceAllocation", "the plugin DynamicResources", |it| &mut it.dynamic_resource_allocation),
    ("PodSchedulingReadiness", "the plugin SchedulingGates", |it| &mut it.pod_scheduling_readiness),
    (
        "VolumeCapacityPriority",
        "the plugin VolumeBinding scores nodes by the capacity of their volumes",
        |it| &mut it.volume_capacity_priority,
    ),
];

/// Name, effect and option of a gate of the control loops.
type ControllerGate = (&'static str, &'static str, fn(&mut loops::Gates) -> &mut bool);

/// The gates of the control loops.
pub const CONTROLLER_GATES: &[ControllerGate] = &[
    ("CronJobTimeZone", "", |gates| &mut gates.time_zones),
    ("JobPodFailurePolicy", "", |gates| &mut gates.failure_policy),
    ("JobReadyPods", "jobs have `status.ready`", |gates| &mut gates.ready_pods),
    (
        "LegacyServiceAccountTokenNoAutoGeneration",
        "service accounts get a token secret only on request; disabled, every service account gets one",
        |gates| &mut gates.no_token_auto_generation,
    ),
    ("LogarithmicScaleDown", "on scale-down, pod ages are compared by order of magnitude", |gates| {
        &mut gates.magnitudes
    }),
    ("MaxUnavailableStatefulSet", "", |gates| &mut gates.max_unavailable),
    (
        "NodeOutOfServiceVolumeDetach",
        "pods of nodes with the out-of-service taint are deleted, and their volumes detached",
        |gates| &mut gates.out_of_service,
    ),
    ("PodDeletionCost", "replica sets respect the deletion cost of pods", |gates| &mut gates.deletion_cost),
    ("PodDisruptionConditions", "", |gates| &mut gates.disruption_conditions),
    (
        "RetroactiveDefaultStorageClass",
        "claims without a class get a default class that is created later",
        |gates| &mut gates.late_default_class,
    ),
    ("StatefulSetAutoDeletePVC", "", |gates| &mut gates.claim_retention),
    ("StatefulSetStartOrdinal", "", |gates| &mut gates.ordinals),
    ("StorageVersionAPI", "", |gates| &mut gates.storage_versions),
    ("TopologyAwareHints", "", |gates| &mut gates.hints),
];

/// The gate of JSON logs.
pub const LOGGING_GATE: &str = "LoggingBetaOptions";
/// The gate of the streams of JSON logs.
pub const STREAMS_GATE: &str = "LoggingAlphaOptions";

/// Gates without effect, by the reason.
const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    (
        "the node agent always has the feature",
        &["ConsistentHTTPGetHandlers", "EventedPLEG", "ExecProbeTimeout", "SizeMemoryBackedVolumes"],
    ),
    (
        "the node agent does not have the feature",
        &[
            "CSIVolumeHealth",
            "ExperimentalHostUserNamespaceDefaulting",
            "KubeletInUserNamespace",
            "LocalStorageCapacityIsolationFSQuotaMonitoring",
            "PodAndContainerStatsFromCRI",
            "PodHasNetworkCondition",
        ],
    ),
    (
        "it concerns kube-proxy",
        &[
            "IPTablesOwnershipCleanup",
            "MinimizeIPTablesRestore",
            "ProxyTerminatingEndpoints",
            "WinDSR",
            "WinOverlay",
        ],
    ),
    ("it concerns nodes with Windows", &["WindowsHostNetwork"]),
    ("it concerns upstream's logging internals", &["ContextualLogging"]),
    ("it concerns in-tree volume plugins", &["HonorPVReclaimPolicy"]),
    (
        "it concerns node CIDRs from `clustercidrs`, which no controller allocates yet",
        &["MultiCIDRRangeAllocator"],
    ),
    (
        "it concerns cloud provider code",
        &[
            "DisableKubeletCloudCredentialProviders",
            "InTreePluginAWSUnregister",
            "InTreePluginAzureDiskUnregister",
            "InTreePluginAzureFileUnregister",
            "InTreePluginGCEUnregister",
            "InTreePluginOpenStackUnregister",
            "InTreePluginPortworxUnregister",
            "InTreePluginRBDUnregister",
            "InTreePluginvSphereUnregister",
        ],
    ),
];

/// Why a gate has no effect.
pub fn why_without_effect(name: &str) -> Option<&'static str> {
    WITHOUT_EFFECT.iter().find(|(_, gates)| gates.contains(&name)).map(|(why, _)| *why)
}

/// Whether a gate enables kinds or fields.
pub fn guards_kinds(name: &str) -> bool {
    kinds::tables::KINDS.iter().any(|kind| kind.gate == name) || kind_effect(name).is_some()
}

fn kind_effect(name: &str) -> Option<&'static str> {
    kinds::gates::OF_KINDS.iter().find(|gate| gate.name == name).map(|gate| gate.changes)
}

/// The effect of a gate, if it has one.
pub fn effect(name: &str) -> Option<&'static str> {
    if GROUPS.iter().any(|(group, _)| *group == name) {
        return Some("all gates of this stage that are not named");
    }
    if name == LOGGING_GATE {
        return Some("JSON logs are allowed (`--logging-format`)");
    }
    if name == STREAMS_GATE {
        return Some(
            "JSON logs may have two streams (`--log-json-split-stream`, `--log-json-info-buffer-size`)",
        );
    }
    let kinds = kind_effect(name)
        .or_else(|| guards_kinds(name).then_some("kinds of this feature are served, if their version is"));
    let server = || SERVER_GATES.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what);
    let loops = || CONTROLLER_GATES.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what);
    let scheduler =
        || SCHEDULER_CONFIG_GATES.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what);
    let agent = || AGENT_GATES.iter().find(|(gate, _)| *gate == name).map(|(_, what)| *what);
    kinds.or_else(server).or_else(loops).or_else(scheduler).or_else(agent)
}
