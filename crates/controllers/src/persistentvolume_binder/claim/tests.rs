use super::*;
use crate::testing::object;
use serde_json::{Value, json};

fn claim(volume: &str, annotations: &[&str], class: Option<&str>) -> PersistentVolumeClaim {
    let annotations: std::collections::BTreeMap<_, _> = annotations.iter().map(|it| (*it, "yes")).collect();
    object(json!({
        "metadata": {"namespace": "ns", "name": "c", "uid": "u", "annotations": annotations},
        "spec": {
            "volumeName": volume, "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}}
        }
    }))
}

fn volume(holder: Value, size: &str) -> Option<Arc<PersistentVolume>> {
    Some(Arc::new(object(json!({
        "metadata": {"name": "v"},
        "spec": {"claimRef": holder, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    }))))
}

const COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// A decision in short.
fn describe(decision: Decision) -> String {
    match decision {
        Decision::Bind(volume) => format!("bind {}", volume.name()),
        Decision::Search => "search".to_owned(),
        Decision::Wait(None) => "wait".to_owned(),
        Decision::Wait(Some(note)) => format!("wait {}: {}", note.reason, note.message),
        Decision::Lost(note) => format!("lost {}", note.reason),
        Decision::Broken(why) => why,
    }
}

#[test]
fn claims_find_their_volumes() {
    let keys = AnnotationKeys::new(&Names::kubernetes());
    let of = |claim: &PersistentVolumeClaim, named: Option<Arc<PersistentVolume>>| {
        describe(decide(claim, named.as_ref(), &keys))
    };
    let (own, others) = (
        json!({"namespace": "ns", "name": "c", "uid": "u"}),
        json!({"namespace": "ns", "name": "d", "uid": "w"}),
    );
    let former = json!({"namespace": "ns", "name": "c", "uid": "before"});
    assert_eq!(of(&claim("", &[], None), None), "search");
    assert_eq!(of(&claim("v", &[], None), None), "wait");
    assert_eq!(of(&claim("v", &[], None), volume(Value::Null, "2Gi")), "bind v");
    assert_eq!(
        of(&claim("v", &[], None), volume(Value::Null, "1Gi")),
        "wait VolumeMismatch: Cannot bind to requested volume \"v\": requested PV is too small"
    );
    assert_eq!(
        of(&claim("v", &[], Some("fast")), volume(Value::Null, "2Gi")),
        "wait VolumeMismatch: Cannot bind to requested volume \"v\": storageClassName does not match"
    );
    // reserved by a user for a name
    let reserved = json!({"namespace": "ns", "name": "c"});
    assert_eq!(of(&claim("v", &[], Some("fast")), volume(reserved, "1Gi")), "bind v");
    assert_eq!(of(&claim("v", &[], None), volume(own.clone(), "1Gi")), "bind v");
    let taken = "wait FailedBinding: volume \"v\" already bound to a different claim.";
    assert_eq!(of(&claim("v", &[], None), volume(others.clone(), "2Gi")), taken);
    assert_eq!(of(&claim("v", &[], None), volume(former.clone(), "2Gi")), taken);
    assert_eq!(
        of(&claim("v", &[BY_CONTROLLER], None), volume(others.clone(), "2Gi")),
        "invalid binding of claim \"c\" to volume \"v\": volume already claimed by \"ns/d\""
    );
    // after the binding
    assert_eq!(of(&claim("", &[COMPLETED], None), None), "lost ClaimLost");
    assert_eq!(of(&claim("v", &[COMPLETED], None), None), "lost ClaimLost");
    assert_eq!(of(&claim("v", &[COMPLETED], None), volume(own, "1Gi")), "bind v");
    assert_eq!(of(&claim("v", &[COMPLETED], None), volume(Value::Null, "1Gi")), "bind v");
    assert_eq!(of(&claim("v", &[COMPLETED], None), volume(others, "2Gi")), "lost ClaimMisbound");
    assert_eq!(of(&claim("v", &[COMPLETED], None), volume(former, "2Gi")), "lost ClaimMisbound");
}

fn class(name: &str, provisioner: &str, mode: &str, annotations: Value, created: u32) -> Arc<StorageClass> {
    Arc::new(object(json!({
        "metadata": {"name": name, "annotations": annotations,
            "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "provisioner": provisioner, "volumeBindingMode": mode
    })))
}

#[test]
fn claims_without_a_volume() {
    let names = Names::kubernetes();
    let keys = AnnotationKeys::new(&names);
    let of = |claim: PersistentVolumeClaim, class: Option<(&str, &str)>, default_class, pods: &[&str]| {
        let class = class.map(|(by, mode)| self::class("fast", by, mode, json!({}), 0));
        let pods = pods.iter().map(|it| (*it).to_owned()).collect();
        let unbound =
            UnboundClaim { claim: &claim, class: class.as_deref(), default_class, pods, provisioning: true };
        match unbound.decide(&keys, &names) {
            UnboundDecision::GiveClass(class) => format!("give {class}"),
            UnboundDecision::Provision { by, note } => format!("{by} {}: {}", note.reason, note.message),
            UnboundDecision::Wait(note) => {
                note.map(|it| format!("{}: {}", it.reason, it.message)).unwrap_or_default()
            }
        }
    };
    let unclassed =
        "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    assert_eq!(of(claim("", &[], None), None, None, &[]), unclassed);
    assert_eq!(of(claim("", &[], None), None, Some("usual"), &[]), "give usual");
    assert_eq!(of(claim("", &[], Some("")), None, Some("usual"), &[]), unclassed);
    let fast = || claim("", &[], Some("fast"));
    assert_eq!(
        of(fast(), None, None, &[]),
        "ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found"
    );
    let requested = |by: &str| {
        format!(
            "{by} ExternalProvisioning: waiting for a volume to be created, either by external provisioner \
             {by:?} or manually created by system administrator"
        )
    };
    assert_eq!(of(fast(), Some(("example.com/p", "Immediate")), None, &[]), requested("example.com/p"));
    assert_eq!(
        of(fast(), Some(("kubernetes.io/gce-pd", "Immediate")), None, &[]),
        requested("pd.csi.storage.gke.io")
    );
    assert_eq!(
        of(fast(), Some(("kubernetes.io/no-provisioner", "Immediate")), None, &[]),
        "ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner"
    );
    let late = Some(("example.com/p", "WaitForFirstConsumer"));
    assert_eq!(
        of(fast(), late, None, &[]),
        "WaitForFirstConsumer: waiting for first consumer to be created before binding"
    );
    assert_eq!(of(fast(), late, None, &["p"]), "WaitForPodScheduled: waiting for pod p to be scheduled");
    assert_eq!(
        of(fast(), late, None, &["p", "q"]),
        "WaitForPodScheduled: waiting for pods p,q to be scheduled"
    );
    let placed = claim("", &["volume.kubernetes.io/selected-node"], Some("fast"));
    assert_eq!(of(placed, late, None, &["p"]), requested("example.com/p"));
}

#[test]
fn the_newest_default_class_is_used() {
    let names = Names::kubernetes();
    let is = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let was = json!({"storageclass.beta.kubernetes.io/is-default-class": "true"});
    let not = json!({"storageclass.kubernetes.io/is-default-class": "false"});
    let of = |all: &[(&str, &Value, u32)]| {
        let all: Vec<_> = all.iter().map(|(name, it, at)| class(name, "p", "", (*it).clone(), *at)).collect();
        default_class(&all, &names).unwrap_or_default()
    };
    assert_eq!(of(&[("a", &not, 9), ("b", &json!({}), 9)]), "");
    assert_eq!(of(&[("a", &is, 1), ("b", &was, 2), ("c", &not, 3)]), "b");
    assert_eq!(of(&[("b", &is, 1), ("a", &is, 1)]), "a");
}

#[test]
fn the_provisioner_is_annotated_in_both_spellings() {
    let keys = AnnotationKeys::new(&Names::kubernetes());
    let annotated = provisioned_by(&claim("", &[], None), "example.com/p", &keys).unwrap();
    for key in ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"] {
        assert_eq!(annotated.metadata.annotations[key], "example.com/p");
    }
    assert_eq!(provisioned_by(&annotated, "example.com/p", &keys), None);
    assert!(provisioned_by(&annotated, "example.com/q", &keys).is_some());
}
