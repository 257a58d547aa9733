//! Names of volumes that are folders of a node.

/// The provisioner of their storage classes, and the driver of their capacities.
pub const PROVISIONER: &str = "local.pintle.io";
/// The storage class that every cluster has at first.
pub const CLASS: &str = "local";
/// On a node whose agent makes folders: the bytes that are available for them.
pub const AVAILABLE: &str = "local.pintle.io/available";
/// On a volume: the node that has its folder.
pub const NODE: &str = "local.pintle.io/node";
/// Keeps a volume until its folder is removed.
pub const FINALIZER: &str = "local.pintle.io/folder";
/// On an object about a node's capacity, as drivers label theirs: the driver.
pub const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";
/// The path of the agent's API at which folders are made and removed; the name of the volume follows.
pub const AGENT_PATH: &str = "/localVolumes";
