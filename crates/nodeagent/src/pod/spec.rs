//! Containers of a pod's spec, of all kinds.

use crate::pod_facts::as_container;
use api::core::v1::{Container, Pod};
use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    Init,
    App,
    Ephemeral,
}

impl ContainerKind {
    /// The path of a container in its pod, as events name it.
    pub fn field_path(self, name: &str) -> String {
        let list = match self {
            ContainerKind::Init => "initContainers",
            ContainerKind::App => "containers",
            ContainerKind::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{name}}}")
    }
}

/// A container of a pod, with its kind.
#[derive(Debug, Clone)]
pub struct ContainerSpec<'a> {
    pub kind: ContainerKind,
    pub container: Cow<'a, Container>,
    /// The container whose processes an ephemeral container sees, or empty.
    pub target: &'a str,
}

/// All containers: init, app, ephemeral ones.
pub fn containers(pod: &Pod) -> impl Iterator<Item = ContainerSpec<'_>> {
    let plain = |kind, container| ContainerSpec { kind, container: Cow::Borrowed(container), target: "" };
    let init = pod.spec.init_containers.iter().map(move |it| plain(ContainerKind::Init, it));
    let app = pod.spec.containers.iter().map(move |it| plain(ContainerKind::App, it));
    let ephemeral = pod.spec.ephemeral_containers.iter().map(|it| ContainerSpec {
        kind: ContainerKind::Ephemeral,
        container: Cow::Owned(as_container(it)),
        target: &it.target_container_name,
    });
    init.chain(app).chain(ephemeral)
}

pub fn find<'a>(pod: &'a Pod, name: &str) -> Option<ContainerSpec<'a>> {
    containers(pod).find(|it| it.container.name == name)
}

/// The hash of a container's definition (FNV-1a): a running container with another one is restarted.
pub fn container_hash(container: &Container) -> u64 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in api::to_json(container) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash.into()
}

pub fn is_never_restarted(pod: &Pod) -> bool {
    pod.spec.restart_policy == "Never"
}

/// The phases of a pod that has ended.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Failed" | "Succeeded")
}
