use super::*;
use serde_json::{Value, json};
use std::collections::HashSet;

fn service(spec: Value) -> Service {
    let service =
        json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u", "labels": {"l": "v"}}, "spec": spec});
    serde_json::from_value(service).unwrap()
}

fn pods(count: usize, port: u16) -> Vec<Arc<Pod>> {
    let pod = |at: usize| {
        let pod = json!({
            "metadata": {"name": format!("p{port}-{at}"), "namespace": "ns", "uid": format!("{port}-{at}")},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
            "status": {"podIPs": [{"ip": format!("10.{}.0.{at}", port % 250)}, {"ip": format!("fd00::{port}:{at}")}],
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    (0..count).map(pod).collect()
}

fn plan(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>]) -> Plan {
    let wanted = SliceSpec { service, zones: None, most: 10, manager: "m" };
    let (plan, lost) = wanted.plan(pods, |_| Some(Arc::new(Node::default())), existing, &Names::kubernetes());
    assert_eq!(lost, None);
    plan
}

/// As if the plan had been carried out.
fn done(plan: Plan, existing: &[Arc<EndpointSlice>]) -> Vec<Arc<EndpointSlice>> {
    let gone: HashSet<String> = plan.delete.iter().map(|it| it.name_any()).collect();
    let changed: HashSet<String> = plan.update.iter().map(|it| it.name_any()).collect();
    let stays =
        |it: &&Arc<EndpointSlice>| !gone.contains(&it.name_any()) && !changed.contains(&it.name_any());
    let mut all: Vec<_> = existing.iter().filter(stays).cloned().collect();
    all.extend(plan.update.into_iter().map(Arc::new));
    let number = all.len();
    all.extend(plan.create.into_iter().enumerate().map(|(at, mut it)| {
        it.metadata.name = Some(format!("s-{}-{}", number + at, it.address_type));
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
    let slice = serde_json::to_value(&first.create[1]).unwrap();
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
    // done once there is nothing more to do
    let there = done(first, &[]);
    assert!(plan(&service(web()), &pods(12, 80), &there).is_empty());
}

#[test]
fn a_service_without_pods_has_an_empty_slice_that_is_used_again() {
    let there = done(plan(&service(web()), &[], &[]), &[]);
    assert_eq!((there.len(), there[0].endpoints.len()), (1, 0));
    assert!(plan(&service(web()), &[], &there).is_empty());
    let full = plan(&service(web()), &pods(3, 80), &there);
    assert_eq!((full.create.len(), full.update.len(), full.delete.len()), (0, 1, 0));
    let there = done(full, &there);
    let empty = plan(&service(web()), &[], &there);
    assert_eq!((empty.create.len(), empty.update.len(), empty.delete.len()), (0, 1, 0));
    assert!(plan(&service(web()), &[], &done(empty, &there)).is_empty());
}

#[test]
fn families_and_ports_stand_apart() {
    let mut both = web();
    both["ipFamilies"] = json!(["IPv4", "IPv6"]);
    let mut all = pods(3, 80);
    all.extend(pods(2, 81));
    let made = plan(&service(both), &all, &[]);
    let mut told: Vec<_> =
        made.create.iter().map(|it| (it.address_type.clone(), it.endpoints.len())).collect();
    told.sort();
    let expected = [("IPv4", 2), ("IPv4", 3), ("IPv6", 2), ("IPv6", 3)];
    assert_eq!(told, expected.map(|(family, count)| (family.to_owned(), count)));
    // a family that the service does not have any more
    let less = plan(&service(web()), &all, &done(made, &[]));
    assert_eq!((less.create.len(), less.update.len(), less.delete.len()), (0, 0, 2));
}

#[test]
fn slices_of_an_earlier_service_are_not_touched_but_removed() {
    let there = done(plan(&service(web()), &pods(3, 80), &[]), &[]);
    let mut later = service(web());
    later.metadata.uid = Some("another".to_owned());
    let next = plan(&later, &pods(3, 80), &there);
    assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (1, 0, 1));
}

#[test]
fn a_headless_service_says_so_and_needs_no_ports() {
    let made = plan(&service(json!({"clusterIP": "None", "ipFamilies": ["IPv4"]})), &pods(2, 80), &[]);
    let slice = &made.create[0];
    assert_eq!(slice.labels()["service.kubernetes.io/headless"], "");
    assert_eq!((slice.endpoints.len(), slice.ports.as_deref()), (2, Some(&[][..])));
}
