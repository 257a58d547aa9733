//! Names of simulated nodes.

/// Begins the annotations that say how pods and nodes behave.
pub const PREFIX: &str = "simulation.pintle.io/";
/// The label of a simulated node.
pub const NODE: &str = "simulation.pintle.io/node";
/// The version and the kind of profiles.
pub const API_VERSION: &str = "simulation.pintle.io/v1alpha1";
pub const PROFILE: &str = "SimulationProfile";
/// Ends the version of a simulated node's agent.
pub const VERSION_SUFFIX: &str = "-simulated";
/// The zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The annotation of nodes that kwok simulates, and its value.
pub const KWOK_NODE: &str = "kwok.x-k8s.io/node";
pub const KWOK_FAKE: &str = "fake";
/// Annotations of kwok for the usage of a pod's containers.
pub const KWOK_USAGE_CPU: &str = "kwok.x-k8s.io/usage-cpu";
pub const KWOK_USAGE_MEMORY: &str = "kwok.x-k8s.io/usage-memory";
/// The version and the kind of kwok's stages.
pub const KWOK_API_VERSION: &str = "kwok.x-k8s.io/v1alpha1";
pub const KWOK_STAGE: &str = "Stage";
/// The kind of faults that the API server makes on request.
pub const FAULTS: &str = "SimulationFaults";
