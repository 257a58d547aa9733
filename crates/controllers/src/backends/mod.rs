//! The backends of services: the pods that a service selects, their addresses and ports.
//!
//! Invariant: the lookup of the services of a pod, or of the pods of a service, goes through indexes, not through all
//! objects of the namespace.

mod trigger;

pub use trigger::Triggers;

use crate::Context;
use crate::pods::state;
use api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use api::{IntOrString, Resource};
use client::{Change, Informer, Key, Queue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The index by single labels.
pub const BY_LABEL: &str = "label";
/// The index by the first label of a service's selector.
const BY_SELECTOR: &str = "selector";

fn index_key(namespace: &str, name: &str, value: &str) -> String {
    format!("{namespace}/{name}={value}")
}

/// The index keys of an object's labels.
pub fn by_label<K: Resource>(object: &K) -> Vec<String> {
    let labels = object.metadata().labels.iter();
    labels.map(|(name, value)| index_key(object.namespace(), name, value)).collect()
}

/// The objects in a namespace that have a label.
pub fn with_label<K: Resource>(
    informer: &Informer<K>,
    namespace: &str,
    name: &str,
    value: &str,
) -> Vec<Arc<K>> {
    informer.by(BY_LABEL, &index_key(namespace, name, value))
}

/// The selector of a service; `None` if its endpoints have another writer.
fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = &service.spec;
    (!spec.selector.is_empty() && spec.type_ != "ExternalName").then_some(&spec.selector)
}

/// Whether a service selects pods.
pub fn selects(service: &Service) -> bool {
    selector(service).is_some()
}

fn matches(service: &Service, pod: &Pod) -> bool {
    let labels = &pod.metadata.labels;
    selector(service).is_some_and(|it| it.iter().all(|(name, value)| labels.get(name) == Some(value)))
}

/// Informers of services and pods, with the indexes that relate them.
#[derive(Clone)]
pub struct Backends {
    pub services: Informer<Service>,
    pub pods: Informer<Pod>,
}

impl Backends {
    /// Queues a service when it or a relevant field of its pods changes. Changes of pods are batched for a while.
    pub fn watch(context: &Context, queue: &Queue<Key>, batch: Duration) -> Self {
        let (services, pods) = (context.informer::<Service>(), context.informer::<Pod>());
        services.index(BY_SELECTOR, |service| {
            let first = selector(service).and_then(|it| it.first_key_value());
            first.map(|(name, value)| index_key(service.namespace(), name, value)).into_iter().collect()
        });
        pods.index(BY_LABEL, by_label);
        let changed = queue.clone();
        services.listen(move |change| changed.add(change.key()));
        let (changed, all_services) = (queue.clone(), services.clone());
        pods.listen(move |change| {
            let mut affected: BTreeSet<Key> = BTreeSet::new();
            if let Change::Updated { old, new } = change {
                if old.metadata.labels == new.metadata.labels && relevant(old) == relevant(new) {
                    return;
                }
                affected.extend(services_of(&all_services, old));
            }
            affected.extend(services_of(&all_services, change.object()));
            affected.into_iter().for_each(|key| changed.add_after(key, batch));
        });
        Backends { services, pods }
    }

    pub async fn synced(&self) {
        self.services.synced().await;
        self.pods.synced().await;
    }

    /// The pods that a service selects, by name.
    pub fn pods_of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let first = selector(service).and_then(|it| it.first_key_value());
        let Some((name, value)) = first else { return Vec::new() };
        let mut pods = with_label(&self.pods, service.namespace(), name, value);
        pods.retain(|pod| matches(service, pod));
        pods.sort_by(|a, b| a.name().cmp(b.name()));
        pods
    }
}

fn services_of(services: &Informer<Service>, pod: &Pod) -> Vec<Key> {
    let labels = pod.metadata.labels.iter();
    let candidates =
        labels.flat_map(|(name, value)| services.by(BY_SELECTOR, &index_key(pod.namespace(), name, value)));
    candidates.filter(|service| matches(service, pod)).map(|service| Key::of(&*service)).collect()
}

/// The fields of a pod that endpoints depend on.
fn relevant(pod: &Pod) -> impl PartialEq + '_ {
    (
        &pod.metadata.uid,
        pod.metadata.deletion_timestamp.is_some(),
        state::is_ready(pod),
        state::is_finished(pod),
        addresses(pod),
        &pod.spec.node_name,
        &pod.spec.hostname,
    )
}

/// Whether a pod can be a backend: it has an address, has not ended and is not terminating, if that matters.
pub fn is_reachable(pod: &Pod, even_terminating: bool) -> bool {
    !state::is_finished(pod)
        && !addresses(pod).is_empty()
        && (even_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// The addresses of a pod.
pub fn addresses(pod: &Pod) -> Vec<&str> {
    let status = &pod.status;
    let all: Vec<&str> = match status.pod_ips.is_empty() {
        true => vec![&status.pod_ip],
        false => status.pod_ips.iter().map(|it| &*it.ip).collect(),
    };
    all.into_iter().filter(|it| !it.is_empty()).collect()
}

pub fn is_v6(address: &str) -> bool {
    address.contains(':')
}

/// The port of a pod that a service port leads to.
pub fn port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match &port.target_port {
        IntOrString::Int(0) => Some(port.port),
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = pod.spec.containers.iter().flat_map(|it| &it.ports);
            let found =
                ports.find(|it| it.name == *name && protocol(&it.protocol) == protocol(&port.protocol));
            found.map(|it| it.container_port)
        }
    }
}

/// A protocol, with its default.
pub fn protocol(protocol: &str) -> &str {
    if protocol.is_empty() { "TCP" } else { protocol }
}

/// The host name of a pod below a service, if it has one.
pub fn hostname<'p>(pod: &'p Pod, service: &Service) -> Option<&'p str> {
    let spec = &pod.spec;
    (spec.subdomain == service.metadata.name && !spec.hostname.is_empty()).then_some(&*spec.hostname)
}

/// Whether a service has no address of its own.
pub fn is_headless(service: &Service) -> bool {
    matches!(&*service.spec.cluster_ip, "" | "None")
}

pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: "Pod".to_owned(),
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::json;

    #[test]
    fn named_ports_have_the_same_protocol() {
        let pod: Pod = object(json!({"spec": {"containers": [
            {"name": "a", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
            {"name": "b", "ports": [{"name": "dns", "containerPort": 54}, {"name": "web", "containerPort": 80}]},
        ]}}));
        for (service_port, expected) in [
            (json!({"port": 1, "targetPort": "dns"}), Some(54)),
            (json!({"port": 1, "targetPort": "dns", "protocol": "UDP"}), Some(53)),
            (json!({"port": 1, "targetPort": "none"}), None),
            (json!({"port": 1, "targetPort": 8080}), Some(8080)),
            (json!({"port": 1}), Some(1)),
        ] {
            assert_eq!(port(&pod, &object(service_port)), expected);
        }
    }

    #[test]
    fn pods_are_reachable_while_they_have_an_address_and_run() {
        let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"podIP": "10.0.0.1"}});
        for (pod, usually, even_terminating) in [
            (json!({"status": {"podIP": "10.0.0.1"}}), true, true),
            (json!({"status": {"podIPs": [{"ip": "fd00::1"}]}}), true, true),
            (json!({"status": {}}), false, false),
            (json!({"status": {"podIP": "10.0.0.1", "phase": "Failed"}}), false, false),
            (terminating, false, true),
        ] {
            let pod: Pod = object(pod);
            assert_eq!((is_reachable(&pod, false), is_reachable(&pod, true)), (usually, even_terminating));
        }
    }

    #[test]
    fn hostnames_count_below_their_own_service() {
        let service: Service = object(json!({"metadata": {"name": "s"}}));
        let with = |subdomain: &str| {
            object::<Pod>(json!({"spec": {"hostname": "h", "subdomain": subdomain, "containers": []}}))
        };
        assert_eq!(hostname(&with("s"), &service), Some("h"));
        assert_eq!(hostname(&with("t"), &service), None);
    }
}
