use super::*;
use crate::testing::object;
use client::json_value;
use serde_json::{Value, json};
use std::collections::HashSet;

fn service(spec: Value) -> Service {
    object(
        json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u", "labels": {"l": "v"}}, "spec": spec}),
    )
}

fn pods(count: usize, port: u16) -> Vec<Arc<Pod>> {
    let pod = |at: usize| {
        Arc::new(object(json!({
            "metadata": {"name": format!("p{port}-{at}"), "namespace": "ns", "uid": format!("{port}-{at}")},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
            "status": {"podIPs": [{"ip": format!("10.{}.0.{at}", port % 250)}, {"ip": format!("fd00::{port}:{at}")}],
                "conditions": [{"type": "Ready", "status": "True"}]},
        })))
    };
    (0..count).map(pod).collect()
}

fn plan(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>]) -> Plan {
    let desired = SliceSpec { service, zones: None, most: 10, manager: "m" };
    let node = |_: &str| Some(Arc::new(Node::default()));
    let (plan, skipped) = desired.plan(pods, node, existing, &Names::kubernetes());
    assert_eq!(skipped, None);
    plan
}

/// The slices after a plan.
fn carried_out(plan: Plan, existing: &[Arc<EndpointSlice>]) -> Vec<Arc<EndpointSlice>> {
    let deleted: HashSet<&str> = plan.delete.iter().map(|it| it.name()).collect();
    let updated: HashSet<&str> = plan.update.iter().map(|it| it.name()).collect();
    let stays = |it: &&Arc<EndpointSlice>| !deleted.contains(it.name()) && !updated.contains(it.name());
    let mut all: Vec<_> = existing.iter().filter(stays).cloned().collect();
    all.extend(plan.update.into_iter().map(Arc::new));
    let number = all.len();
    all.extend(plan.create.into_iter().enumerate().map(|(at, mut it)| {
        it.metadata.name = format!("s-{}-{}", number + at, it.address_type);
        Arc::new(it)
    }));
    all
}

fn web() -> Value {
    json!({"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "ports": [{"name": "w", "port": 80, "targetPort": "web"}]})
}

#[test]
fn slices_have_their_owner_labels_and_ports() {
    let first = plan(&service(web()), &pods(12, 80), &[]);
    assert_eq!(first.create.iter().map(|it| it.endpoints.len()).collect::<Vec<_>>(), [10, 2]);
    let slice = json_value(&first.create[1]);
    assert_eq!(slice["metadata"]["generateName"], "s-");
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"l": "v", "kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": "m"})
    );
    let owner = &slice["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("Service"), &json!("u"), &json!(true))
    );
    assert_eq!(slice["ports"], json!([{"name": "w", "port": 80, "protocol": "TCP"}]));
    // a second reconciliation writes nothing
    let existing = carried_out(first, &[]);
    assert!(plan(&service(web()), &pods(12, 80), &existing).is_empty());
}

#[test]
fn a_service_without_pods_has_an_empty_slice_that_is_used_again() {
    let existing = carried_out(plan(&service(web()), &[], &[]), &[]);
    assert_eq!((existing.len(), existing[0].endpoints.len()), (1, 0));
    assert!(plan(&service(web()), &[], &existing).is_empty());
    let full = plan(&service(web()), &pods(3, 80), &existing);
    assert_eq!((full.create.len(), full.update.len(), full.delete.len()), (0, 1, 0));
    let existing = carried_out(full, &existing);
    let empty = plan(&service(web()), &[], &existing);
    assert_eq!((empty.create.len(), empty.update.len(), empty.delete.len()), (0, 1, 0));
    assert!(plan(&service(web()), &[], &carried_out(empty, &existing)).is_empty());
}

#[test]
fn families_and_ports_have_slices_of_their_own() {
    let mut both = web();
    both["ipFamilies"] = json!(["IPv4", "IPv6"]);
    let mut all = pods(3, 80);
    all.extend(pods(2, 81));
    let created = plan(&service(both), &all, &[]);
    let mut counts: Vec<_> =
        created.create.iter().map(|it| (it.address_type.clone(), it.endpoints.len())).collect();
    counts.sort();
    let expected = [("IPv4", 2), ("IPv4", 3), ("IPv6", 2), ("IPv6", 3)];
    assert_eq!(counts, expected.map(|(family, count)| (family.to_owned(), count)));
    // a family that the service does not have any more
    let less = plan(&service(web()), &all, &carried_out(created, &[]));
    assert_eq!((less.create.len(), less.update.len(), less.delete.len()), (0, 0, 2));
}

#[test]
fn slices_of_an_earlier_service_are_deleted_and_not_updated() {
    let existing = carried_out(plan(&service(web()), &pods(3, 80), &[]), &[]);
    let mut later = service(web());
    later.metadata.uid = "another".to_owned();
    let next = plan(&later, &pods(3, 80), &existing);
    assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (1, 0, 1));
}

#[test]
fn a_headless_service_has_a_label_and_needs_no_ports() {
    let created = plan(&service(json!({"clusterIP": "None", "ipFamilies": ["IPv4"]})), &pods(2, 80), &[]);
    let slice = &created.create[0];
    assert_eq!(slice.metadata.labels["service.kubernetes.io/headless"], "");
    assert_eq!((slice.endpoints.len(), slice.ports.len()), (2, 0));
}
