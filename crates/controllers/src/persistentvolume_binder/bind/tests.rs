use super::*;
use crate::testing::object;
use names::Names;
use serde_json::{Value, json};

fn claim(volume: &str, phase: &str, capacity: &str) -> PersistentVolumeClaim {
    let capacity = (!capacity.is_empty()).then(|| json!({"storage": capacity}));
    object(json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7"},
        "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": phase, "capacity": capacity}
    }))
}

fn volume(spec: Value) -> PersistentVolume {
    let mut all = json!({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"], "capacity": {"storage": "3Gi"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object(json!({"metadata": {"name": "v"}, "spec": all, "status": {"phase": "Available"}}))
}

fn keys() -> AnnotationKeys {
    AnnotationKeys::new(&Names::kubernetes())
}

#[test]
fn a_volume_is_bound_to_a_claim() {
    let (claim, keys) = (claim("", "Pending", ""), keys());
    let bound = bind_volume(&volume(json!({})), &claim, &keys).unwrap();
    let claim_ref: Value = serde_json::from_slice(&api::to_json(&bound.spec.claim_ref)).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c",
        "uid": "u", "resourceVersion": "7"});
    assert_eq!(claim_ref, expected);
    assert_eq!(bound.metadata.annotations[&keys.bound_by_controller], YES);
    assert_eq!(bind_volume(&bound, &claim, &keys), None);
    // reserved by a user: the controller did not choose it
    let reserved = volume(json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    let bound = bind_volume(&reserved, &claim, &keys).unwrap();
    assert!(!bound.metadata.annotations.contains_key(&keys.bound_by_controller));
    assert_eq!(bound.spec.claim_ref.unwrap().uid, "u");
}

#[test]
fn a_claim_is_bound_to_a_volume() {
    let (volume, keys) = (volume(json!({})), keys());
    let bound = bind_claim(&claim("", "Pending", ""), &volume, &keys).unwrap();
    assert_eq!(bound.spec.volume_name, "v");
    assert_eq!(bound.metadata.annotations.len(), 2);
    assert_eq!(bind_claim(&bound, &volume, &keys), None);
    let by_user = bind_claim(&claim("v", "Pending", ""), &volume, &keys).unwrap();
    assert!(!by_user.metadata.annotations.contains_key(&keys.bound_by_controller));
    assert_eq!(by_user.metadata.annotations[&keys.bind_completed], YES);
}

#[test]
fn the_status_of_a_claim_has_its_volumes_capacity_when_it_is_bound() {
    let volume = volume(json!({}));
    let of = |claim: &PersistentVolumeClaim, phase: &str, volume: Option<&PersistentVolume>| {
        claim_in_phase(claim, phase, volume).unwrap().map(|it| {
            let capacity = volumes::size(&it.status.capacity).map(Quantity::to_string).unwrap_or_default();
            (it.status.phase, capacity, it.status.access_modes.len())
        })
    };
    let expected = ("Bound".to_owned(), "3Gi".to_owned(), 2);
    assert_eq!(of(&claim("v", "Pending", ""), "Bound", Some(&volume)), Some(expected));
    // still smaller than its volume
    let unchanged = ("Bound".to_owned(), "2Gi".to_owned(), 2);
    assert_eq!(of(&claim("v", "Bound", "2Gi"), "Bound", Some(&volume)), Some(unchanged));
    assert_eq!(of(&claim("v", "Pending", ""), "Pending", None), None);
    assert_eq!(of(&claim("v", "Bound", "2Gi"), "Lost", None), Some(("Lost".to_owned(), String::new(), 0)));
    let sizeless = super::tests::volume(json!({"capacity": {}}));
    assert!(claim_in_phase(&claim("v", "Pending", ""), "Bound", Some(&sizeless)).is_err());
}

#[test]
fn unbinding_keeps_the_reference_of_a_user() {
    let keys = keys();
    let spec = json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "u"}});
    let by_user = unbind_volume(&volume(spec.clone()), &keys);
    let claim_ref = by_user.spec.claim_ref.unwrap();
    assert_eq!((&*claim_ref.name, &*claim_ref.uid), ("c", ""));
    let mut by_controller = volume(spec);
    by_controller.metadata.annotations.insert(keys.bound_by_controller.clone(), YES.to_owned());
    let free = unbind_volume(&by_controller, &keys);
    assert!(free.spec.claim_ref.is_none() && free.metadata.annotations.is_empty());
}

#[test]
fn mismatches() {
    let keys = keys();
    let of = |spec: Value| {
        let volume = volume(spec);
        let why = mismatch(&volume, &claim("v", "Pending", ""), &keys).unwrap_or_default();
        (why, is_usable(&volume, &claim("v", "Pending", ""), &keys))
    };
    assert_eq!(of(json!({})), (String::new(), true));
    assert_eq!(
        of(json!({"capacity": {"storage": "2147483647"}})),
        ("requested PV is too small".to_owned(), false)
    );
    assert_eq!(of(json!({"capacity": {"storage": "2Gi"}})), (String::new(), true));
    assert_eq!(of(json!({"storageClassName": "x"})), ("storageClassName does not match".to_owned(), true));
    assert_eq!(of(json!({"volumeMode": "Block"})), ("incompatible volumeMode".to_owned(), false));
    assert_eq!(of(json!({"accessModes": ["ReadOnlyMany"]})), ("incompatible accessMode".to_owned(), false));
}

#[test]
fn phases_change_once() {
    let available = volume(json!({}));
    assert_eq!(volume_in_phase(&available, "Available", ""), None);
    let failed = volume_in_phase(&available, "Failed", "why").unwrap();
    assert_eq!(failed.status.message, "why");
    let again = volume_in_phase(&failed, "Available", "").unwrap();
    assert_eq!(again.status.message, "");
}
