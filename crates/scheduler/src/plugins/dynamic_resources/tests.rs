use super::*;
use crate::storage::key;
use api::from_json;
use serde_json::{Value, json};

const POD: &str = r#"{"metadata":{"name":"p","namespace":"d","uid":"u"},"spec":{"resourceClaims":[
    {"name":"one","source":{"resourceClaimName":"c1"}},{"name":"two","source":{"resourceClaimTemplateName":"t"}}]}}"#;

fn read<T: api::Json>(value: &Value) -> Arc<T> {
    Arc::new(from_json(value.to_string().as_bytes()).unwrap())
}

fn pod() -> PodInfo {
    PodInfo::new(Arc::new(from_json(POD.as_bytes()).unwrap()))
}

fn node(name: &str) -> NodeInfo {
    let metadata = json!({"name": name, "labels": {"name": name}});
    NodeInfo::new(read(&json!({"metadata": metadata})), 0)
}

fn nodes(name: &str) -> Value {
    let expression = json!({"key": "name", "operator": "In", "values": [name]});
    json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]})
}

/// A claim of the pod with a mode and a status.
fn claim(name: &str, mode: &str, status: Value) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
    json!({
        "metadata": {"name": name, "namespace": "d", "ownerReferences": [owner]},
        "spec": {"resourceClassName": "k", "allocationMode": mode},
        "status": status,
    })
}

fn store(claims: &[Value]) -> ResourceStore {
    let mut store = ResourceStore::default();
    for one in claims {
        let one: Arc<ResourceClaim> = read(one);
        store.claims.insert(key(&*one), one);
    }
    let class = json!({"metadata": {"name": "k"}, "driverName": "x", "suitableNodes": null});
    store.classes.insert("k".to_owned(), read(&class));
    store
}

fn scheduling(potential: &[&str], answers: Value) -> Arc<PodScheduling> {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
    read(&json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "s", "ownerReferences": [owner]},
        "spec": {"potentialNodes": potential},
        "status": {"resourceClaims": answers},
    }))
}

fn refusal(claims: &[Value]) -> String {
    pre_filter(&pod(), &store(claims)).unwrap_err().message()
}

#[test]
fn claims_must_exist_and_be_usable() {
    let delayed = |name: &str| claim(name, WAIT_FOR_FIRST_CONSUMER, json!({}));
    assert_eq!(refusal(&[]), "resourceclaim.resource.k8s.io \"c1\" not found");
    assert_eq!(
        refusal(&[delayed("c1")]),
        "waiting for dynamic resource controller to create the resourceclaim \"p-two\""
    );
    let mut foreign = delayed("p-two");
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("v");
    assert_eq!(
        refusal(&[delayed("c1"), foreign]),
        "ResourceClaim d/p-two was not created for pod d/p (pod is not owner)"
    );
    let used = json!({"allocation": {"shareable": false}, "reservedFor": [{"resource": "pods", "name": "q", "uid": "q"}]});
    for (first, message) in [
        (claim("c1", IMMEDIATE, json!({})), "unallocated immediate resourceclaim"),
        (claim("c1", IMMEDIATE, used), "resourceclaim in use"),
        (
            claim("c1", WAIT_FOR_FIRST_CONSUMER, json!({"allocation": {}, "deallocationRequested": true})),
            "resourceclaim must be reallocated",
        ),
    ] {
        assert_eq!(refusal(&[first, delayed("p-two")]), message);
    }
}

#[test]
fn nodes_are_filtered_by_allocation_class_and_answers() {
    let allocated = json!({"allocation": {"availableOnNodes": nodes("a")}});
    let mut store = store(&[
        claim("c1", WAIT_FOR_FIRST_CONSUMER, allocated),
        claim("p-two", WAIT_FOR_FIRST_CONSUMER, json!({})),
    ]);
    let verdict = |store: &ResourceStore, name: &str| {
        let state = pre_filter(&pod(), store).unwrap();
        filter(&state, &pod(), &node(name)).map_err(|rejection| rejection.message())
    };
    assert_eq!(verdict(&store, "a"), Ok(()));
    assert_eq!(verdict(&store, "b"), Err(NOT_AVAILABLE.to_owned()));
    let answers = json!([{"name": "two", "unsuitableNodes": ["a"]}]);
    store.schedulings.insert("d/p".to_owned(), scheduling(&[], answers));
    assert_eq!(
        verdict(&store, "a"),
        Err("resourceclaim cannot be allocated for the node (unsuitable)".to_owned())
    );
    let class = json!({"metadata": {"name": "k"}, "driverName": "x", "suitableNodes": nodes("b")});
    store.classes.insert("k".to_owned(), read(&class));
    assert_eq!(verdict(&store, "a"), Err("excluded by resource class node filter".to_owned()));
    store.classes.clear();
    assert_eq!(
        verdict(&store, "a"),
        Err("look up resource class: resourceclass.resource.k8s.io \"k\" not found".to_owned())
    );
}

#[test]
fn a_claim_that_only_the_pod_could_use_is_deallocated() {
    let allocated =
        |reserved: Value| json!({"allocation": {"availableOnNodes": nodes("a")}, "reservedFor": reserved});
    let free = claim("c1", WAIT_FOR_FIRST_CONSUMER, allocated(json!([])));
    let other = claim("p-two", WAIT_FOR_FIRST_CONSUMER, json!({"allocation": {}}));
    let state = pre_filter(&pod(), &store(&[free, other])).unwrap();
    let (node, rejection) = (node("b"), Rejection::unresolvable(NOT_AVAILABLE));
    match deallocate(&state, &pod(), [(&node, &rejection)].into_iter()) {
        Deallocation::Claim(claim) => {
            assert!(claim.metadata.name == "c1" && claim.status.deallocation_requested);
        }
        refused => panic!("{refused:?}"),
    }
    let full = Rejection::unschedulable("Too many pods");
    let refused = deallocate(&state, &pod(), [(&node, &full)].into_iter());
    assert!(matches!(refused, Deallocation::Refused("still not schedulable")));
}

#[test]
fn an_allocated_claim_is_reserved() {
    let consumer = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    let state = pre_filter(
        &pod(),
        &store(&[
            claim("c1", IMMEDIATE, json!({"allocation": {}})),
            claim("p-two", IMMEDIATE, json!({"allocation": {}, "reservedFor": consumer})),
        ]),
    );
    let reservation = reserve(&state.unwrap(), &pod(), "a", &["a", "b"]).unwrap();
    let names = |claims: &[ResourceClaim]| {
        claims.iter().map(|it| (it.metadata.name.clone(), it.status.reserved_for.len())).collect::<Vec<_>>()
    };
    assert_eq!(names(&reservation.claims), [("c1".to_owned(), 1)]);
    assert_eq!(names(&reservation.releases), [("p-two".to_owned(), 0)]);
    assert!(reservation.waits.is_none() && reservation.scheduling.is_none() && reservation.is_needed);
}

#[test]
fn drivers_answer_before_a_node_is_selected_for_several_claims() {
    let delayed = |name: &str| claim(name, WAIT_FOR_FIRST_CONSUMER, json!({}));
    let mut store = store(&[delayed("c1"), delayed("p-two")]);
    let attempt = |store: &ResourceStore, feasible: &[&str]| {
        let reservation = reserve(&pre_filter(&pod(), store).unwrap(), &pod(), "b", feasible).unwrap();
        let spec = reservation.scheduling.map(|it| (it.spec.selected_node, it.spec.potential_nodes));
        (spec, reservation.waits.unwrap())
    };
    let (information, allocation) = (
        "waiting for resource driver to provide information",
        "waiting for resource driver to allocate resource",
    );
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let first = attempt(&store, &["b", "a"]);
    assert_eq!(first, (Some((String::new(), list(&["a", "b"]))), information));
    assert_eq!(attempt(&store, &["b"]), (Some((String::new(), list(&["b"]))), information));
    store.schedulings.insert("d/p".to_owned(), scheduling(&["a", "b"], json!([{"name": "one"}])));
    assert_eq!(attempt(&store, &["b", "a"]), (None, information));
    let answers = json!([{"name": "one"}, {"name": "two"}]);
    store.schedulings.insert("d/p".to_owned(), scheduling(&["a", "b"], answers));
    assert_eq!(attempt(&store, &["b", "a"]), (Some(("b".to_owned(), list(&["a", "b"]))), allocation));
}
