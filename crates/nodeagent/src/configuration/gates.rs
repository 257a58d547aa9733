//! Feature gates of the agent.

use super::error::StartError;
use std::collections::BTreeMap;

/// A gate that exists.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    pub name: &'static str,
    pub is_open: bool,
    /// `alpha`, `beta` or `ga`.
    pub stage: &'static str,
    pub is_locked: bool,
}

const MIGRATED: &str = "the CSINode lists the in-tree plugin among those whose volumes CSI drivers serve";

/// The gates that the agent reads, and what each changes.
pub const AGENT_GATES: &[(&str, &str)] = &[
    (
        "CPUManagerPolicyAlphaOptions",
        "alpha options of the static CPU policy are allowed (`cpuManagerPolicyOptions`)",
    ),
    ("CPUManagerPolicyBetaOptions", "beta options of the static CPU policy are allowed"),
    ("CPUManagerPolicyOptions", "the static CPU policy may have options (`cpuManagerPolicyOptions`)"),
    ("CSIMigrationAWS", MIGRATED),
    ("CSIMigrationAzureDisk", MIGRATED),
    ("CSIMigrationAzureFile", MIGRATED),
    ("CSIMigrationGCE", MIGRATED),
    ("CSIMigrationPortworx", MIGRATED),
    ("CSIMigrationRBD", MIGRATED),
    ("CSIMigrationvSphere", MIGRATED),
    ("CSINodeExpandSecret", "CSI drivers get a secret when a volume grows on the node"),
    ("ContainerCheckpoint", "`/checkpoint` of the node agent is served"),
    ("CustomCPUCFSQuotaPeriod", "the period of CPU quotas may be set (`cpuCFSQuotaPeriod`)"),
    ("DisableCloudProviders", "the node agent takes no `--cloud-provider` but `external`"),
    ("GracefulNodeShutdown", "pods end before the machine shuts down (`shutdownGracePeriod`)"),
    (
        "GracefulNodeShutdownBasedOnPodPriority",
        "pods end by priority before the machine shuts down (`shutdownGracePeriodByPodPriority`)",
    ),
    ("KubeletPodResources", "the pod resources API is served"),
    ("KubeletPodResourcesGetAllocatable", "the pod resources API has `GetAllocatableResources`"),
    ("KubeletTracing", "the node agent exports spans (`tracing` of its configuration)"),
    ("LoggingAlphaOptions", "the node agent's configuration may have options of JSON logs"),
    ("LoggingBetaOptions", "JSON logs are allowed (`logging.format`)"),
    ("MemoryManager", "memory is assigned by NUMA node (`memoryManagerPolicy`)"),
    ("MemoryQoS", "requests of memory are protected and use above them is throttled, on cgroup v2"),
    ("NodeSwap", "containers may use swap (`memorySwap`)"),
    ("PodDisruptionConditions", "pods that the node agent evicts have the condition `DisruptionTarget`"),
    ("QOSReserved", "memory that pods request is kept from lower QoS classes (`qosReserved`)"),
    ("ReadWriteOncePod", "a volume for one pod is not mounted for a second one"),
    (
        "RotateKubeletServerCertificate",
        "the API server signs the certificate of the node agent's port (`serverTLSBootstrap`)",
    ),
    ("SeccompDefault", "containers may get the runtime's seccomp profile by default (`seccompDefault`)"),
    ("TopologyManager", "CPUs, memory and devices are aligned by NUMA node (`topologyManagerPolicy`)"),
    (
        "TopologyManagerPolicyAlphaOptions",
        "alpha options of topology policies are allowed (`topologyManagerPolicyOptions`)",
    ),
    ("TopologyManagerPolicyBetaOptions", "beta options of topology policies are allowed; there are none"),
    ("TopologyManagerPolicyOptions", "topology policies may have options (`topologyManagerPolicyOptions`)"),
];

/// The values of all gates.
#[derive(Debug, Clone, Default)]
pub struct Gates(BTreeMap<String, bool>);

const CONTEXT: &str = "failed to set feature gates from initial flags-based config";

impl Gates {
    /// Sets gates by name; `AllAlpha` and `AllBeta` set the others of that stage.
    pub fn new(known: &[Gate], settings: &[(String, bool)]) -> Result<Self, StartError> {
        let mut values: BTreeMap<String, bool> =
            known.iter().map(|gate| (gate.name.to_owned(), gate.is_open)).collect();
        for (group, stage) in [("AllAlpha", "alpha"), ("AllBeta", "beta")] {
            let Some((_, is_open)) = settings.iter().find(|(name, _)| name == group) else { continue };
            for gate in known.iter().filter(|gate| gate.stage == stage && !gate.is_locked) {
                values.insert(gate.name.to_owned(), *is_open);
            }
        }
        for (name, is_open) in settings {
            if matches!(name.as_str(), "AllAlpha" | "AllBeta") {
                continue;
            }
            let Some(gate) = known.iter().find(|gate| gate.name == names::feature_gate(name)) else {
                return Err(StartError::new(format!("{CONTEXT}: unrecognized feature gate: {name}")));
            };
            if gate.is_locked && gate.is_open != *is_open {
                let locked = gate.is_open;
                return Err(StartError::new(format!(
                    "{CONTEXT}: cannot set feature gate {name} to {is_open}, feature is locked to {locked}"
                )));
            }
            values.insert(gate.name.to_owned(), *is_open);
        }
        Ok(Gates(values))
    }

    /// Whether a gate of the agent is open.
    pub fn is_open(&self, name: &str) -> bool {
        debug_assert!(AGENT_GATES.iter().any(|(gate, _)| *gate == name), "{name} is not declared");
        self.value(name)
    }

    /// The value of any gate.
    pub fn value(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }
}
