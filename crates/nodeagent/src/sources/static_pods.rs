//! Static pods: pods that a file or a URL declares.

use crate::images::reference::with_default_tag;
use api::Kinded;
use api::core::v1::{Container, Pod, Toleration};
use names::node;
use schema::yaml::{self, Limits};
use schema::{Value, decode, defaults, encode};
use std::sync::Arc;

/// The source of a static pod, as its annotation names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticSource {
    File,
    Url,
}

impl StaticSource {
    fn name(self) -> &'static str {
        match self {
            StaticSource::File => "file",
            StaticSource::Url => "http",
        }
    }
}

/// The node and the place of static pods.
#[derive(Debug, Clone)]
pub struct StaticPlace {
    pub node: String,
    pub source: StaticSource,
    /// The file or the URL.
    pub origin: String,
    /// The time of reading, in RFC 3339.
    pub seen: String,
}

/// Reads a pod, or a list of pods, in YAML or JSON.
pub fn read(text: &[u8], place: &StaticPlace) -> Result<Vec<Arc<Pod>>, String> {
    let document = yaml::parse(text, Limits::default()).map_err(|why| why.cause().to_owned())?.value;
    let items = match document.text(&["kind"]) {
        "PodList" | "List" => document.items(&["items"]).to_vec(),
        "Pod" => vec![document],
        kind => return Err(format!("no pod: kind {kind:?}")),
    };
    items.into_iter().map(|it| read_pod(it, place).map(Arc::new)).collect()
}

fn read_pod(value: Value, place: &StaticPlace) -> Result<Pod, String> {
    let kind = <Pod as Kinded>::kind();
    let mut value = decode::tree(value, &kind.root).map_err(|why| why.to_string())?.value;
    defaults::apply(&kind.root, &mut value);
    let text = encode::json(&value, &kind.root);
    let mut pod: Pod = api::from_json(&text).map_err(|why| why.to_string())?;
    if pod.metadata.name.is_empty() || pod.spec.containers.is_empty() {
        return Err("a pod needs a name and a container".to_owned());
    }
    for container in pod.spec.containers.iter_mut().chain(&mut pod.spec.init_containers) {
        complete(container);
    }
    pod.spec.enable_service_links.get_or_insert(true);
    pod.spec.security_context.get_or_insert_default();
    identify(&mut pod, &text, place);
    Ok(pod)
}

fn complete(container: &mut Container) {
    if container.image_pull_policy.is_empty() {
        let is_latest = with_default_tag(&container.image).is_ok_and(|it| it.ends_with(":latest"));
        container.image_pull_policy = if is_latest { "Always" } else { "IfNotPresent" }.to_owned();
    }
    for (name, limit) in container.resources.limits.clone() {
        container.resources.requests.entry(name).or_insert(limit);
    }
}

fn identify(pod: &mut Pod, text: &[u8], place: &StaticPlace) {
    let meta = &mut pod.metadata;
    if meta.uid.is_empty() {
        meta.uid = hash(&[place.node.as_bytes(), place.origin.as_bytes(), text]);
    }
    meta.name = format!("{}-{}", meta.name, place.node.to_lowercase());
    if meta.namespace.is_empty() {
        meta.namespace = names::DEFAULT_NAMESPACE.to_owned();
    }
    let uid = meta.uid.clone();
    for (name, value) in [
        (node::CONFIG_HASH, &*uid),
        (node::CONFIG_SOURCE, place.source.name()),
        (node::CONFIG_SEEN, &*place.seen),
    ] {
        meta.annotations.insert(name.to_owned(), value.to_owned());
    }
    pod.spec.node_name = place.node.clone();
    if place.source == StaticSource::File {
        pod.spec.tolerations.push(Toleration {
            operator: "Exists".into(),
            effect: "NoExecute".into(),
            ..Toleration::default()
        });
    }
    pod.status.phase = "Pending".to_owned();
    pod.api_version = Pod::api_version();
    pod.kind = "Pod".to_owned();
}

/// 128 bits in hexadecimal, by two rounds of FNV-1a.
fn hash(parts: &[&[u8]]) -> String {
    let round = |seed: u64| {
        parts
            .iter()
            .flat_map(|it| it.iter().chain(&[0]))
            .fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    format!("{:016x}{:016x}", round(0xcbf2_9ce4_8422_2325), round(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_a_pod_with_defaults() {
        let place = StaticPlace {
            node: "N1".into(),
            source: StaticSource::File,
            origin: "/etc/x.yaml".into(),
            seen: "2026-01-01T00:00:00Z".into(),
        };
        let text = b"apiVersion: v1\nkind: Pod\nmetadata: {name: st}\nspec:\n  containers:\n  - {name: c, image: busybox}\n";
        let pods = read(text, &place).unwrap();
        let pod = &pods[0];
        assert_eq!((&*pod.metadata.name, &*pod.metadata.namespace), ("st-n1", "default"));
        assert_eq!(pod.metadata.uid.len(), 32);
        assert_eq!(pod.metadata.annotations[node::CONFIG_HASH], pod.metadata.uid);
        assert_eq!(
            (&*pod.spec.restart_policy, pod.spec.termination_grace_period_seconds),
            ("Always", Some(30))
        );
        assert_eq!(pod.spec.enable_service_links, Some(true));
        assert_eq!(pod.spec.containers[0].image_pull_policy, "Always");
        assert_eq!(pod.spec.containers[0].termination_message_path, "/dev/termination-log");
        assert_eq!(read(text, &place).unwrap()[0].metadata.uid, pod.metadata.uid);
        assert!(read(b"not: [a pod", &place).is_err());
        let list = br#"{"kind":"PodList","items":[]}"#;
        assert_eq!(read(list, &place).unwrap().len(), 0);
    }
}
