//! Containers of a pod's spec, of all kinds.

use crate::pod_facts::as_container;
use api::core::v1::{Container, Pod};
use schema::encode::escape_html;
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

/// The hash of a container's definition: a running container with another one is restarted.
///
/// It is upstream's of 1.26, so that the containers of a node that upstream ran go on: FNV-1a of Go's text of the
/// definition's JSON as a slice of bytes, `([]uint8)[123 34 ...]`.
pub fn container_hash(container: &Container) -> u64 {
    let mut hash = Fnv1a::default();
    hash.add(b"([]uint8)[");
    let json = api::to_json(container);
    let json = String::from_utf8_lossy(&json);
    for (index, byte) in escape_html(&json).bytes().enumerate() {
        if index > 0 {
            hash.add(b" ");
        }
        hash.add_decimal(byte);
    }
    hash.add(b"]");
    hash.0.into()
}

struct Fnv1a(u32);

impl Default for Fnv1a {
    fn default() -> Self {
        Fnv1a(0x811c_9dc5)
    }
}

impl Fnv1a {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn add_decimal(&mut self, number: u8) {
        let digits = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit);
        let zeros = match number {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        self.add(&digits[zeros..]);
    }
}

pub fn is_never_restarted(pod: &Pod) -> bool {
    pod.spec.restart_policy == "Never"
}

/// The phases of a pod that has ended.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Failed" | "Succeeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_upstreams() {
        let hash = |json: &str| container_hash(&api::from_json(json.as_bytes()).unwrap());
        let container = r#"{"name":"test_container","image":"foo/image:v1","args":["/bin/sh","-c","echo abc"],
            "ports":[{"containerPort":8001}]}"#;
        assert_eq!(hash(container), 0x3c42_280f);
        assert_ne!(hash(r#"{"name":"a"}"#), hash(r#"{"name":"b"}"#));
    }
}
