use super::*;
use names::Names;
use serde_json::{Value, json};

fn claim(volume: &str, phase: &str, capacity: &str) -> PersistentVolumeClaim {
    let capacity = (!capacity.is_empty()).then(|| json!({"storage": capacity}));
    let json = json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7"},
        "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": phase, "capacity": capacity}
    });
    serde_json::from_value(json).unwrap()
}

fn volume(spec: Value) -> PersistentVolume {
    let mut all = json!({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"], "capacity": {"storage": "3Gi"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": all, "status": {"phase": "Available"}}))
        .unwrap()
}

fn marks() -> AnnotationKeys {
    AnnotationKeys::new(&Names::kubernetes())
}

#[test]
fn a_volume_comes_to_refer_to_a_claim() {
    let (claim, marks) = (claim("", "Pending", ""), marks());
    let bound = volume_to(&volume(json!({})), &claim, &marks).unwrap();
    let holder = serde_json::to_value(claim_ref(&bound)).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c",
        "uid": "u", "resourceVersion": "7"});
    assert_eq!(holder, expected);
    assert_eq!(bound.annotations()[&marks.bound_by_controller], YES);
    assert_eq!(volume_to(&bound, &claim, &marks), None);
    // set aside by a user: that is not the loop's choice
    let aside = volume(json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    let bound = volume_to(&aside, &claim, &marks).unwrap();
    assert!(!bound.annotations().contains_key(&marks.bound_by_controller));
    assert_eq!(claim_ref(&bound).unwrap().uid.as_deref(), Some("u"));
}

#[test]
fn a_claim_comes_to_name_a_volume() {
    let (volume, marks) = (volume(json!({})), marks());
    let bound = claim_to(&claim("", "Pending", ""), &volume, &marks).unwrap();
    assert_eq!(volumes::volume_name(&bound), "v");
    assert_eq!(bound.annotations().len(), 2);
    assert_eq!(claim_to(&bound, &volume, &marks), None);
    let by_user = claim_to(&claim("v", "Pending", ""), &volume, &marks).unwrap();
    assert!(!by_user.annotations().contains_key(&marks.bound_by_controller));
    assert_eq!(by_user.annotations()[&marks.bind_completed], YES);
}

#[test]
fn what_a_claim_has_is_what_its_volume_gives_when_it_is_bound() {
    let volume = volume(json!({}));
    let of = |claim: &PersistentVolumeClaim, phase: &str, volume: Option<&PersistentVolume>| {
        claim_in(claim, phase, volume).unwrap().map(|it| {
            let status = it.status.unwrap();
            (
                status.phase.unwrap_or_default(),
                status.capacity.map(|it| it[volumes::STORAGE].0.clone()).unwrap_or_default(),
                status.access_modes.unwrap_or_default().len(),
            )
        })
    };
    let expected = ("Bound".to_owned(), "3Gi".to_owned(), 2);
    assert_eq!(of(&claim("v", "Pending", ""), "Bound", Some(&volume)), Some(expected));
    // it is smaller than its volume, for now
    let kept = ("Bound".to_owned(), "2Gi".to_owned(), 2);
    assert_eq!(of(&claim("v", "Bound", "2Gi"), "Bound", Some(&volume)), Some(kept));
    assert_eq!(of(&claim("v", "Pending", ""), "Pending", None), None);
    assert_eq!(of(&claim("v", "Bound", "2Gi"), "Lost", None), Some(("Lost".to_owned(), String::new(), 0)));
    let odd = super::tests::volume(json!({"capacity": {}}));
    assert!(claim_in(&claim("v", "Pending", ""), "Bound", Some(&odd)).is_err());
}

#[test]
fn what_was_chosen_is_undone_and_who_was_named_stays_named() {
    let marks = marks();
    let holder = json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "u"}});
    let by_user = unbound(&volume(holder.clone()), &marks);
    let kept = claim_ref(&by_user).unwrap();
    assert_eq!((kept.name.as_deref(), kept.uid.as_deref()), (Some("c"), None));
    let mut chosen = volume(holder);
    chosen.annotations_mut().insert(marks.bound_by_controller.clone(), YES.to_owned());
    let free = unbound(&chosen, &marks);
    assert!(claim_ref(&free).is_none() && free.annotations().is_empty());
}

#[test]
fn what_does_not_fit() {
    let marks = marks();
    let of = |spec: Value| {
        let volume = volume(spec);
        let why = mismatch(&volume, &claim("v", "Pending", ""), &marks).unwrap_or_default();
        (why, is_usable(&volume, &claim("v", "Pending", ""), &marks))
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
    let it = volume(json!({}));
    assert_eq!(volume_in(&it, "Available", ""), None);
    let failed = volume_in(&it, "Failed", "why").unwrap();
    assert_eq!(failed.status.as_ref().unwrap().message.as_deref(), Some("why"));
    let again = volume_in(&failed, "Available", "").unwrap();
    assert_eq!(again.status.unwrap().message, None);
}
