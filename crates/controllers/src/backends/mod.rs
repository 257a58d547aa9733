//! Which pods stand behind a service, and what of a pod matters to those who want to reach it.
//!
//! What always holds: finding the services of a pod, or the pods of a service, costs no more for what is beside them.

mod trigger;

pub use trigger::Triggers;

use crate::Context;
use crate::pods::state;
use client::{Change, Informer, Key, Queue};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The index by single labels.
pub const BY_LABEL: &str = "label";
/// The index by one of the labels that a service wants.
const BY_SELECTOR: &str = "selector";

fn labelled(namespace: &str, name: &str, value: &str) -> String {
    format!("{namespace}/{name}={value}")
}

/// Each label of an object, within its namespace.
pub fn by_label<K: Resource>(object: &K) -> Vec<String> {
    let namespace = object.namespace().unwrap_or_default();
    object.labels().iter().map(|(name, value)| labelled(&namespace, name, value)).collect()
}

/// The objects in a namespace that have a label.
pub fn with_label<K: client::informer::Watchable>(
    informer: &Informer<K>,
    namespace: &str,
    name: &str,
    value: &str,
) -> Vec<Arc<K>> {
    informer.by(BY_LABEL, &labelled(namespace, name, value))
}

/// What a service wants of its pods; nothing where somebody else says who stands behind it.
fn selector(service: &Service) -> Option<impl Iterator<Item = (&String, &String)> + Clone> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|it| !it.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then(|| selector.iter())
}

/// Whether this loop says who stands behind a service.
pub fn selects(service: &Service) -> bool {
    selector(service).is_some()
}

fn wants(service: &Service, pod: &Pod) -> bool {
    selector(service).is_some_and(|mut it| it.all(|(name, value)| pod.labels().get(name) == Some(value)))
}

/// Services and pods as they are.
#[derive(Clone)]
pub struct Backends {
    pub services: Informer<Service>,
    pub pods: Informer<Pod>,
}

impl Backends {
    /// Services are queued when they, or what matters of their pods, change; for pods a while is waited, so that the
    /// changes of many are looked at together.
    pub fn watch(context: &Context, queue: &Queue<Key>, batch: Duration) -> Self {
        let (services, pods) = (context.informer::<Service>(), context.informer::<Pod>());
        services.index(BY_SELECTOR, |service| {
            let namespace = service.namespace().unwrap_or_default();
            let first = selector(service).and_then(|mut it| it.next());
            first.map(|(name, value)| labelled(&namespace, name, value)).into_iter().collect()
        });
        pods.index(BY_LABEL, by_label);
        let news = queue.clone();
        services.listen(move |change| news.add(change.key()));
        let (news, of) = (queue.clone(), services.clone());
        pods.listen(move |change| {
            let mut concerned: BTreeSet<Key> = BTreeSet::new();
            if let Change::Updated { old, new } = change {
                if old.labels() == new.labels() && matters(old) == matters(new) {
                    return;
                }
                concerned.extend(services_of(&of, old));
            }
            concerned.extend(services_of(&of, change.object()));
            concerned.into_iter().for_each(|key| news.add_after(key, batch));
        });
        Backends { services, pods }
    }

    pub async fn synced(&self) {
        self.services.synced().await;
        self.pods.synced().await;
    }

    /// The pods that a service wants, in the order of their names.
    pub fn pods_of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let namespace = service.namespace().unwrap_or_default();
        let Some((name, value)) = selector(service).and_then(|mut it| it.next()) else { return Vec::new() };
        let mut pods = with_label(&self.pods, &namespace, name, value);
        pods.retain(|pod| wants(service, pod));
        pods.sort_by_key(|pod| pod.name_any());
        pods
    }
}

fn services_of(services: &Informer<Service>, pod: &Pod) -> Vec<Key> {
    let namespace = pod.namespace().unwrap_or_default();
    let candidates = pod
        .labels()
        .iter()
        .flat_map(|(name, value)| services.by(BY_SELECTOR, &labelled(&namespace, name, value)));
    candidates.filter(|service| wants(service, pod)).map(|service| Key::of(&*service)).collect()
}

/// Everything of a pod that who wants to reach it could see.
fn matters(pod: &Pod) -> impl PartialEq {
    let spec = pod.spec.as_ref();
    (
        pod.metadata.uid.clone(),
        pod.metadata.deletion_timestamp.is_some(),
        state::is_ready(pod),
        state::is_finished(pod),
        addresses(pod).iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(),
        spec.and_then(|it| it.node_name.clone()),
        spec.and_then(|it| it.hostname.clone()),
    )
}

/// Whether a pod can stand behind a service at all.
pub fn is_reachable(pod: &Pod, even_terminating: bool) -> bool {
    !state::is_finished(pod)
        && !addresses(pod).is_empty()
        && (even_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// All addresses of a pod.
pub fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all: Vec<&str> = status.pod_ips.iter().flatten().map(|it| it.ip.as_str()).collect();
    let all = if all.is_empty() { status.pod_ip.as_deref().into_iter().collect() } else { all };
    all.into_iter().filter(|it| !it.is_empty()).collect()
}

pub fn is_v6(address: &str) -> bool {
    address.contains(':')
}

/// The port of a pod that a port of a service means.
pub fn port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|it| &it.containers);
            let mut ports = containers.flat_map(|it| it.ports.iter().flatten());
            let wanted = protocol(port.protocol.as_deref());
            let found = ports.find(|it| {
                it.name.as_deref() == Some(name.as_str()) && protocol(it.protocol.as_deref()) == wanted
            });
            found.map(|it| it.container_port)
        }
    }
}

pub fn protocol(said: Option<&str>) -> &str {
    said.unwrap_or("TCP")
}

/// The name by which a pod is found below a service, if it has one.
pub fn hostname<'p>(pod: &'p Pod, service: &Service) -> Option<&'p String> {
    let spec = pod.spec.as_ref()?;
    let below = spec.subdomain.as_deref() == service.metadata.name.as_deref();
    spec.hostname.as_ref().filter(|it| below && !it.is_empty())
}

/// A service without an address of its own.
pub fn is_headless(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|it| it.cluster_ip.as_deref());
    matches!(address, None | Some("" | "None"))
}

pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn named_ports_are_those_of_the_same_protocol() {
        let pod = pod(json!({"spec": {"containers": [
            {"name": "a", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
            {"name": "b", "ports": [{"name": "dns", "containerPort": 54}, {"name": "web", "containerPort": 80}]},
        ]}}));
        for (asked, expected) in [
            (json!({"port": 1, "targetPort": "dns"}), Some(54)),
            (json!({"port": 1, "targetPort": "dns", "protocol": "UDP"}), Some(53)),
            (json!({"port": 1, "targetPort": "none"}), None),
            (json!({"port": 1, "targetPort": 8080}), Some(8080)),
            (json!({"port": 1}), Some(1)),
        ] {
            let asked: ServicePort = serde_json::from_value(asked).unwrap();
            assert_eq!(port(&pod, &asked), expected);
        }
    }

    #[test]
    fn pods_are_reachable_while_they_have_an_address_and_run() {
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"podIP": "10.0.0.1"}});
        for (pod, usually, even_terminating) in [
            (pod(json!({"status": {"podIP": "10.0.0.1"}})), true, true),
            (pod(json!({"status": {"podIPs": [{"ip": "fd00::1"}]}})), true, true),
            (pod(json!({"status": {}})), false, false),
            (pod(json!({"status": {"podIP": "10.0.0.1", "phase": "Failed"}})), false, false),
            (pod(going), false, true),
        ] {
            assert_eq!((is_reachable(&pod, false), is_reachable(&pod, true)), (usually, even_terminating));
        }
    }

    #[test]
    fn hostnames_count_below_their_own_service() {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        let with = |subdomain: &str| {
            pod(json!({"spec": {"hostname": "h", "subdomain": subdomain, "containers": []}}))
        };
        assert_eq!(hostname(&with("s"), &service).map(String::as_str), Some("h"));
        assert_eq!(hostname(&with("t"), &service), None);
    }
}
