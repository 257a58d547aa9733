//! What the slices of a service should say.

use crate::backends;
use crate::pods::state;
use crate::slices::{self, EndpointIdentity, Ports};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use kube::ResourceExt;
use names::Names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Endpoints that have the same ports.
#[derive(Debug, Default)]
pub struct Group {
    pub ports: Vec<EndpointPort>,
    pub endpoints: BTreeMap<EndpointIdentity, Endpoint>,
}

/// The address families of a service.
pub fn families(service: &Service) -> Vec<&'static str> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let named = spec.ip_families.iter().flatten();
    let named: Vec<_> = named.map(|it| if it == "IPv6" { "IPv6" } else { "IPv4" }).collect();
    match spec.cluster_ip.as_deref() {
        _ if !named.is_empty() => named,
        Some(own) if !backends::is_headless(service) => {
            vec![if backends::is_v6(own) { "IPv6" } else { "IPv4" }]
        }
        // nobody said: whatever the pods have
        _ => vec!["IPv4", "IPv6"],
    }
}

/// The ports of a pod that a service leads to.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|it| it.ports.iter().flatten());
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(backends::port(pod, port)?),
            protocol: Some(backends::protocol(port.protocol.as_deref()).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

fn endpoint(service: &Service, pod: &Pod, node: Option<&Node>, family: &str, names: &Names) -> Endpoint {
    let publishes = service.spec.as_ref().and_then(|it| it.publish_not_ready_addresses).unwrap_or(false);
    let (serving, terminating) = (state::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let of_family =
        backends::addresses(pod).into_iter().filter(|it| backends::is_v6(it) == (family == "IPv6"));
    let zone = node.and_then(|it| it.labels().get(&names.well_known_under("topology", "zone")));
    Endpoint {
        addresses: of_family.map(str::to_owned).collect(),
        conditions: Some(EndpointConditions {
            // one that is going is not ready, unless even those that are not should be told
            ready: Some(publishes || serving && !terminating),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: backends::hostname(pod, service).cloned(),
        node_name: pod.spec.as_ref().and_then(|it| it.node_name.clone()).filter(|it| !it.is_empty()),
        target_ref: Some(backends::reference(pod)),
        zone: zone.filter(|it| !it.is_empty()).cloned(),
        ..Endpoint::default()
    }
}

/// Who stands behind a service in a family, by their ports, and the pods whose node nobody knows: these are left out
/// unless even what is not ready should be told.
pub fn groups(
    service: &Service,
    pods: &[Arc<Pod>],
    node: impl Fn(&str) -> Option<Arc<Node>>,
    family: &str,
    names: &Names,
) -> (BTreeMap<Ports, Group>, Vec<String>) {
    let publishes = service.spec.as_ref().and_then(|it| it.publish_not_ready_addresses).unwrap_or(false);
    let mut groups: BTreeMap<Ports, Group> = BTreeMap::new();
    let mut lost = Vec::new();
    for pod in pods.iter().filter(|it| backends::is_reachable(it, true)) {
        let offered = ports(service, pod);
        let key = slices::ports(&offered);
        let group = groups.entry(key).or_insert_with(|| Group { ports: offered, ..Group::default() });
        let name = pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).unwrap_or_default();
        let node = node(name);
        if node.is_none() && !publishes {
            lost.push(format!(
                "skipping Pod {} for Service {}: Node {name} Not Found",
                pod.name_any(),
                client::Key::of(service)
            ));
            continue;
        }
        let endpoint = endpoint(service, pod, node.as_deref(), family, names);
        if !endpoint.addresses.is_empty() {
            group.endpoints.insert(slices::identity(&endpoint), endpoint);
        }
    }
    (groups, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, ready: bool, going: bool, port: u16) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let gone = going.then_some("2026-01-01T00:00:00Z");
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "deletionTimestamp": gone},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": spec})).unwrap()
    }

    fn node(name: &str) -> Option<Arc<Node>> {
        let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
        (name == "n").then(|| Arc::new(serde_json::from_value(node).unwrap()))
    }

    #[test]
    fn endpoints_say_how_their_pods_are() {
        let names = Names::kubernetes();
        let web = json!([{"name": "w", "port": 80, "targetPort": "web"}]);
        for (ready, going, publishes, expected) in [
            (true, false, false, [true, true, false]),
            (false, false, false, [false, false, false]),
            (true, true, false, [false, true, true]),
            (false, true, true, [true, false, true]),
        ] {
            let service = service(json!({"ports": web, "publishNotReadyAddresses": publishes}));
            let (groups, lost) = groups(&service, &[pod("p", ready, going, 80)], node, "IPv6", &names);
            let group = groups.into_values().next().unwrap();
            let endpoint = group.endpoints.into_values().next().unwrap();
            let told = endpoint.conditions.unwrap();
            assert_eq!([told.ready, told.serving, told.terminating], expected.map(Some));
            assert_eq!(
                (endpoint.addresses, endpoint.zone.as_deref()),
                (vec!["fd00::1".to_owned()], Some("z"))
            );
            assert_eq!((group.ports[0].port, lost.len()), (Some(80), 0));
        }
    }

    #[test]
    fn pods_with_other_ports_stand_apart_and_those_of_lost_nodes_wait() {
        let names = Names::kubernetes();
        let service = service(json!({"ports": [{"name": "w", "port": 80, "targetPort": "web"}]}));
        let pods = [pod("a", true, false, 80), pod("b", true, false, 81), pod("c", true, false, 80)];
        let (all, _) = groups(&service, &pods, node, "IPv4", &names);
        assert_eq!(all.values().map(|it| it.endpoints.len()).collect::<Vec<_>>(), [2, 1]);
        let (all, lost) = groups(&service, &pods, |_| None, "IPv4", &names);
        assert_eq!((all.values().map(|it| it.endpoints.len()).sum::<usize>(), lost.len()), (0, 3));
        assert_eq!(lost[0], "skipping Pod a for Service ns/s: Node n Not Found");
    }

    #[test]
    fn families_are_named_or_follow_the_address() {
        for (spec, expected) in [
            (json!({"ipFamilies": ["IPv6", "IPv4"]}), vec!["IPv6", "IPv4"]),
            (json!({"clusterIP": "fd00::1"}), vec!["IPv6"]),
            (json!({"clusterIP": "10.0.0.1"}), vec!["IPv4"]),
            (json!({"clusterIP": "None"}), vec!["IPv4", "IPv6"]),
        ] {
            assert_eq!(families(&service(spec)), expected);
        }
    }
}
