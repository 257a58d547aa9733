//! States of the runtime, of sandboxes, containers and images.

use super::config::{LinuxResources, Mount, NamespaceOptions};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`, `cri-o`, ...
    pub name: String,
    pub version: String,
    pub api_version: String,
}

/// Conditions `RuntimeReady` and `NetworkReady` at least.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    pub conditions: Vec<RuntimeCondition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeCondition {
    pub kind: String,
    pub is_true: bool,
    pub reason: String,
    pub message: String,
}

/// A sandbox in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxInfo {
    pub id: String,
    pub name: String,
    pub uid: String,
    pub namespace: String,
    pub attempt: u32,
    pub is_ready: bool,
    pub created_at: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub handler: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxStatus {
    pub info: SandboxInfo,
    /// Addresses of the pod, the primary one first; none on the node's network.
    pub ips: Vec<String>,
    pub namespaces: NamespaceOptions,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    #[default]
    Unknown,
}

/// A container in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerInfo {
    pub id: String,
    pub sandbox_id: String,
    pub name: String,
    pub attempt: u32,
    pub image: String,
    pub image_ref: String,
    pub state: ContainerState,
    pub created_at: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerStatus {
    pub id: String,
    pub name: String,
    pub attempt: u32,
    pub state: ContainerState,
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    pub image: String,
    pub image_ref: String,
    pub reason: String,
    pub message: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub mounts: Vec<Mount>,
    pub log_path: String,
    pub resources: Option<LinuxResources>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageInfo {
    pub id: String,
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    pub size: u64,
    /// The user of the image, by number or by name.
    pub uid: Option<i64>,
    pub username: String,
    pub is_pinned: bool,
}

/// A step in the life of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerChange {
    Created,
    Started,
    Stopped,
    Deleted,
}

/// An object of the runtime that has details for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetailsSubject<'a> {
    Runtime,
    Sandbox(&'a str),
    Container(&'a str),
    Image(&'a str),
}

/// A container was created, started, stopped or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    pub container_id: String,
    /// The sandbox of the container, if the runtime names it.
    pub sandbox_id: String,
    /// The pod, if the runtime names it.
    pub pod_uid: String,
    pub change: ContainerChange,
}
