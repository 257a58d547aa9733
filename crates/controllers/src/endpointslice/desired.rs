//! The desired endpoints of a service, in groups of equal ports.

use crate::backends;
use crate::pods::state;
use crate::slices::{self, EndpointIdentity, Ports};
use api::Resource;
use api::core::v1::{Node, Pod, Service};
use api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
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
    let spec = &service.spec;
    let family = |is_v6: bool| if is_v6 { "IPv6" } else { "IPv4" };
    if !spec.ip_families.is_empty() {
        return spec.ip_families.iter().map(|it| family(it == "IPv6")).collect();
    }
    match backends::is_headless(service) {
        false => vec![family(backends::is_v6(&spec.cluster_ip))],
        // all families of the pods
        true => vec!["IPv4", "IPv6"],
    }
}

/// The ports of a pod that the ports of a service lead to.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone()),
            port: Some(backends::port(pod, port)?),
            protocol: Some(backends::protocol(&port.protocol).to_owned()),
            app_protocol: port.app_protocol.clone(),
            ..EndpointPort::default()
        })
    });
    ports.collect()
}

fn endpoint(service: &Service, pod: &Pod, node: Option<&Node>, family: &str, names: &Names) -> Endpoint {
    let publishes = service.spec.publish_not_ready_addresses;
    let (serving, terminating) = (state::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let of_family =
        backends::addresses(pod).into_iter().filter(|it| backends::is_v6(it) == (family == "IPv6"));
    let zone = node.and_then(|it| it.metadata.labels.get(&names.well_known_under("topology", "zone")));
    Endpoint {
        addresses: of_family.map(str::to_owned).collect(),
        conditions: EndpointConditions {
            // a terminating pod is not ready, unless the service publishes pods that are not ready
            ready: Some(publishes || serving && !terminating),
            serving: Some(serving),
            terminating: Some(terminating),
            ..EndpointConditions::default()
        },
        hostname: backends::hostname(pod, service).map(str::to_owned),
        node_name: Some(pod.spec.node_name.clone()).filter(|it| !it.is_empty()),
        target_ref: Some(Box::new(backends::reference(pod))),
        zone: zone.filter(|it| !it.is_empty()).cloned(),
        ..Endpoint::default()
    }
}

/// The endpoints of a service in a family, by their ports, and errors about pods whose node is not known. Such pods are
/// skipped, unless the service publishes pods that are not ready.
pub fn groups(
    service: &Service,
    pods: &[Arc<Pod>],
    node: impl Fn(&str) -> Option<Arc<Node>>,
    family: &str,
    names: &Names,
) -> (BTreeMap<Ports, Group>, Vec<String>) {
    let publishes = service.spec.publish_not_ready_addresses;
    let mut groups: BTreeMap<Ports, Group> = BTreeMap::new();
    let mut skipped = Vec::new();
    for pod in pods.iter().filter(|it| backends::is_reachable(it, true)) {
        let ports = ports(service, pod);
        let key = slices::ports(&ports);
        let group = groups.entry(key).or_insert_with(|| Group { ports, ..Group::default() });
        let name = &pod.spec.node_name;
        let node = node(name);
        if node.is_none() && !publishes {
            skipped.push(format!(
                "skipping Pod {} for Service {}: Node {name} Not Found",
                pod.name(),
                client::Key::of(service)
            ));
            continue;
        }
        let endpoint = endpoint(service, pod, node.as_deref(), family, names);
        if !endpoint.addresses.is_empty() {
            group.endpoints.insert(slices::identity(&endpoint), endpoint);
        }
    }
    (groups, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use serde_json::{Value, json};

    fn pod(name: &str, ready: bool, terminating: bool, port: u16) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let deleted = terminating.then_some("2026-01-01T00:00:00Z");
        Arc::new(object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "deletionTimestamp": deleted},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "conditions": [{"type": "Ready", "status": ready}]},
        })))
    }

    fn service(spec: Value) -> Service {
        object(json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": spec}))
    }

    fn node(name: &str) -> Option<Arc<Node>> {
        let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
        (name == "n").then(|| Arc::new(object(node)))
    }

    #[test]
    fn conditions_follow_the_pod() {
        let names = Names::kubernetes();
        let web = json!([{"name": "w", "port": 80, "targetPort": "web"}]);
        for (ready, terminating, publishes, expected) in [
            (true, false, false, [true, true, false]),
            (false, false, false, [false, false, false]),
            (true, true, false, [false, true, true]),
            (false, true, true, [true, false, true]),
        ] {
            let service = service(json!({"ports": web, "publishNotReadyAddresses": publishes}));
            let pods = [pod("p", ready, terminating, 80)];
            let (groups, skipped) = groups(&service, &pods, node, "IPv6", &names);
            let group = groups.into_values().next().unwrap();
            let endpoint = group.endpoints.into_values().next().unwrap();
            let conditions = endpoint.conditions;
            let found = [conditions.ready, conditions.serving, conditions.terminating];
            assert_eq!(found, expected.map(Some));
            assert_eq!(
                (endpoint.addresses, endpoint.zone.as_deref()),
                (vec!["fd00::1".to_owned()], Some("z"))
            );
            assert_eq!((group.ports[0].port, skipped.len()), (Some(80), 0));
        }
    }

    #[test]
    fn pods_with_other_ports_are_in_other_groups_and_pods_of_unknown_nodes_are_skipped() {
        let names = Names::kubernetes();
        let service = service(json!({"ports": [{"name": "w", "port": 80, "targetPort": "web"}]}));
        let pods = [pod("a", true, false, 80), pod("b", true, false, 81), pod("c", true, false, 80)];
        let (all, _) = groups(&service, &pods, node, "IPv4", &names);
        assert_eq!(all.values().map(|it| it.endpoints.len()).collect::<Vec<_>>(), [2, 1]);
        let (all, skipped) = groups(&service, &pods, |_| None, "IPv4", &names);
        assert_eq!((all.values().map(|it| it.endpoints.len()).sum::<usize>(), skipped.len()), (0, 3));
        assert_eq!(skipped[0], "skipping Pod a for Service ns/s: Node n Not Found");
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
