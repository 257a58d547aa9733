//! All feature gates of Kubernetes 1.26, and what stands behind those behind which something stands.
//!
//! All names are known (`gates/gates.txt`), so that a command line that works there works here.

use apiserver::Gates;
use controllers::gates as loops;

/// A gate as upstream knows it.
pub struct Gate {
    pub name: &'static str,
    /// Whether it is open where nobody decides.
    pub open: bool,
    /// `alpha`, `beta` or `ga`.
    pub stage: &'static str,
    /// Whether nobody can decide.
    pub locked: bool,
}

pub fn all() -> impl Iterator<Item = Gate> {
    include_str!("gates/gates.txt").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let (name, open, stage) = (words.next()?, words.next()? == "open", words.next()?);
        Some(Gate { name, open, stage, locked: words.next().is_some() })
    })
}

/// Gates that stand for others: the name and the stage of those.
pub const GROUPS: [(&str, &str); 2] = [("AllAlpha", "alpha"), ("AllBeta", "beta")];

/// What a gate changes, and where that is decided.
type Behind = (&'static str, &'static str, fn(&mut Gates) -> &mut bool);

/// What the server itself does or leaves, by gate.
pub const BEHIND: &[Behind] = &[
    ("APIListChunking", "lists come in chunks (`limit`, `continue`)", |gates| &mut gates.chunks),
    (
        "APIPriorityAndFairness",
        "requests wait for their turn (with `--enable-priority-and-fairness`)",
        |gates| &mut gates.turns,
    ),
    ("APIResponseCompression", "answers are compressed for those who can read that", |gates| {
        &mut gates.compression
    }),
    ("APIServerTracing", "spans of requests are sent to a collector (`--tracing-config-file`)", |gates| {
        &mut gates.tracing
    }),
    ("AdvancedAuditing", "requests are recorded (`--audit-*`)", |gates| &mut gates.record),
    (
        "AggregatedDiscoveryEndpoint",
        "discovery tells everything in one document, if asked to (`as=APIGroupDiscoveryList`)",
        |gates| &mut gates.whole_discovery,
    ),
    (
        "APIServerIdentity",
        "the server says in a lease that it is there, and removes leases of others that are not",
        |gates| &mut gates.identity,
    ),
    ("ComponentSLIs", "`/metrics/slis` is served, by the controller manager, too", |gates| &mut gates.slis),
    ("KMSv2", "key servers of the second version may encrypt what is kept (`apiVersion: v2`)", |gates| {
        &mut gates.key_servers
    }),
    (
        "LegacyServiceAccountTokenTracking",
        "secrets say in a label when their tokens were last used",
        |gates| &mut gates.tracking,
    ),
    ("OpenAPIV3", "`/openapi/v3` is served", |gates| &mut gates.openapi_v3),
    ("RemainingItemCount", "chunks of lists say how much is left", |gates| &mut gates.remaining),
    (
        "ServerSideFieldValidation",
        "unknown and repeated fields are warned of or refused (`fieldValidation`)",
        |gates| &mut gates.field_validation,
    ),
    (
        "StorageVersionAPI",
        "the server says in `storageversions`, if they are served, in which version it keeps the objects of each \
         built-in resource (with `APIServerIdentity`)",
        |gates| &mut gates.storage_versions,
    ),
    ("StorageVersionHash", "discovery says by a hash in which version objects are kept", |gates| {
        &mut gates.storage_hash
    }),
    ("ValidatingAdmissionPolicy", "admission policies are enforced, if their version is served", |gates| {
        &mut gates.policies
    }),
];

/// The same for the loops.
type BehindLoops = (&'static str, &'static str, fn(&mut loops::Gates) -> &mut bool);

/// What loops do or leave, by gate.
pub const BEHIND_LOOPS: &[BehindLoops] = &[
    ("CronJobTimeZone", "", |gates| &mut gates.time_zones),
    ("JobPodFailurePolicy", "", |gates| &mut gates.failure_policy),
    ("JobReadyPods", "jobs tell how many of their pods are ready", |gates| &mut gates.ready_pods),
    (
        "LegacyServiceAccountTokenNoAutoGeneration",
        "tokens are kept in secrets for those only who ask for one; closed, every service account gets one",
        |gates| &mut gates.asked_tokens,
    ),
    (
        "LogarithmicScaleDown",
        "of pods that are too many, ages are compared by their order of magnitude",
        |gates| &mut gates.magnitudes,
    ),
    ("MaxUnavailableStatefulSet", "", |gates| &mut gates.max_unavailable),
    (
        "NodeOutOfServiceVolumeDetach",
        "pods of nodes that are said to be out of service are removed, and volumes detached from them",
        |gates| &mut gates.out_of_service,
    ),
    ("PodDeletionCost", "replica sets look at what their pods say it costs to delete them", |gates| {
        &mut gates.deletion_cost
    }),
    ("PodDisruptionConditions", "", |gates| &mut gates.disruption_conditions),
    (
        "RetroactiveDefaultStorageClass",
        "claims without a class get the default one when there comes to be one",
        |gates| &mut gates.late_default_class,
    ),
    ("StatefulSetAutoDeletePVC", "", |gates| &mut gates.claim_retention),
    ("StatefulSetStartOrdinal", "", |gates| &mut gates.ordinals),
    ("StorageVersionAPI", "", |gates| &mut gates.storage_versions),
    ("TopologyAwareHints", "", |gates| &mut gates.hints),
];

/// The gate of logs that are not plain text.
pub const LOGS: &str = "LoggingBetaOptions";

/// Gates of what is done elsewhere: by whom, and which.
const ELSEWHERE: &[(&str, &[&str])] = &[
    (
        "the agents of nodes",
        &[
            "CPUManagerPolicyAlphaOptions",
            "CPUManagerPolicyBetaOptions",
            "CPUManagerPolicyOptions",
            "CSIVolumeHealth",
            "ConsistentHTTPGetHandlers",
            "ContainerCheckpoint",
            "CustomCPUCFSQuotaPeriod",
            "DisableKubeletCloudCredentialProviders",
            "EventedPLEG",
            "ExecProbeTimeout",
            "ExperimentalHostUserNamespaceDefaulting",
            "GracefulNodeShutdown",
            "GracefulNodeShutdownBasedOnPodPriority",
            "KubeletInUserNamespace",
            "KubeletPodResources",
            "KubeletPodResourcesGetAllocatable",
            "KubeletTracing",
            "LocalStorageCapacityIsolationFSQuotaMonitoring",
            "MemoryManager",
            "MemoryQoS",
            "NodeSwap",
            "PodAndContainerStatsFromCRI",
            "PodHasNetworkCondition",
            "QOSReserved",
            "RotateKubeletServerCertificate",
            "SeccompDefault",
            "SizeMemoryBackedVolumes",
            "TopologyManager",
            "TopologyManagerPolicyAlphaOptions",
            "TopologyManagerPolicyBetaOptions",
            "TopologyManagerPolicyOptions",
            "WindowsHostNetwork",
        ],
    ),
    (
        "the proxies of nodes",
        &[
            "IPTablesOwnershipCleanup",
            "MinimizeIPTablesRestore",
            "ProxyTerminatingEndpoints",
            "WinDSR",
            "WinOverlay",
        ],
    ),
    ("the scheduler", &["VolumeCapacityPriority"]),
    ("how upstream's code hands on its log", &["ContextualLogging"]),
    ("options of the log that have no effect here (`--log-json-*`)", &["LoggingAlphaOptions"]),
    ("volumes that a controller manager makes itself, and this one makes none", &["HonorPVReclaimPolicy"]),
    ("ranges for nodes from `clustercidrs`, which no loop hands out yet", &["MultiCIDRRangeAllocator"]),
    (
        "code for particular clouds",
        &[
            "CSIMigrationAzureFile",
            "CSIMigrationPortworx",
            "CSIMigrationRBD",
            "CSIMigrationvSphere",
            "DisableCloudProviders",
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

/// Whose business a gate is, where it is nobody's here.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(_, gates)| gates.contains(&name)).map(|(whose, _)| *whose)
}

/// Whether a kind is served, or is as it is, only where a gate is open.
pub fn guards_kinds(name: &str) -> bool {
    kinds::tables::KINDS.iter().any(|kind| kind.gate == name) || of_kinds(name).is_some()
}

fn of_kinds(name: &str) -> Option<&'static str> {
    kinds::gates::OF_KINDS.iter().find(|gate| gate.name == name).map(|gate| gate.changes)
}

/// What a gate changes, if anything.
pub fn behind(name: &str) -> Option<&'static str> {
    if GROUPS.iter().any(|(group, _)| *group == name) {
        return Some("all gates of this stage that are not named");
    }
    if name == LOGS {
        return Some("the log may be written as JSON (`--logging-format`)");
    }
    let kinds = of_kinds(name)
        .or_else(|| guards_kinds(name).then_some("kinds that need it are served, if their version is"));
    let server = || BEHIND.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what);
    let loops = || BEHIND_LOOPS.iter().find(|(gate, ..)| *gate == name).map(|(_, what, _)| *what);
    kinds.or_else(server).or_else(loops)
}
