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

/// The hash of a container's definition: a running container with another one is restarted.
///
/// It is upstream's of 1.26, so that the containers of a node that upstream ran go on: FNV-1a of Go's text of the
/// definition's JSON as a slice of bytes, `([]uint8)[123 34 ...]`.
pub fn container_hash(container: &Container) -> u64 {
    let mut hash = Fnv1a::default();
    hash.add(b"([]uint8)[");
    let json = api::to_json(container);
    for (index, &byte) in escape_html(&json).iter().enumerate() {
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

/// Go's JSON has escapes for characters that are special in HTML and JavaScript.
fn escape_html(json: &[u8]) -> Cow<'_, [u8]> {
    // the first byte of U+2028 and U+2029
    const SEPARATOR: u8 = 0xe2;
    if !json.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&' | &SEPARATOR)) {
        return Cow::Borrowed(json);
    }
    let mut out = Vec::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        let (escape, length): (&[u8], usize) = match (byte, after) {
            (b'<', _) => (b"\\u003c", 1),
            (b'>', _) => (b"\\u003e", 1),
            (b'&', _) => (b"\\u0026", 1),
            (SEPARATOR, [0x80, 0xa8, ..]) => (b"\\u2028", 3),
            (SEPARATOR, [0x80, 0xa9, ..]) => (b"\\u2029", 3),
            _ => (std::slice::from_ref(&rest[0]), 1),
        };
        out.extend_from_slice(escape);
        rest = &rest[length..];
    }
    Cow::Owned(out)
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

    #[test]
    fn json_is_escaped_as_go_does() {
        let escaped = escape_html("\"<a>&\u{2028}\u{2029}\u{2030}\"".as_bytes()).into_owned();
        let expected = "\"\\u003ca\\u003e\\u0026\\u2028\\u2029\u{2030}\"";
        assert_eq!(String::from_utf8(escaped).unwrap(), expected);
    }
}
