//! Which claims go with their set or with their pod: those that these own, and who owns a claim follows from the policy.
//!
//! What always holds: a claim of a pod that stays is never owned by the pod, so that it outlives a pod that is replaced.

use super::identity::claims;
use super::view::View;
use client::Key;
use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use std::sync::Arc;

/// A claim, and who is to own it from now on.
pub type Change = (Arc<PersistentVolumeClaim>, Vec<OwnerReference>);

/// The claims of these pods whose owners are not as the policy says.
pub fn changes(view: &View<'_>) -> Vec<Change> {
    let mut out = Vec::new();
    for (ordinal, pod) in view.by_ordinal() {
        let is_leaving = !view.range().contains(&ordinal);
        for claim in claims(view.set, ordinal) {
            let Some(claim) = (view.claim)(&Key::of(&claim)) else { continue };
            let owners = owners(view, &claim, pod, is_leaving);
            if owners != claim.metadata.owner_references.clone().unwrap_or_default() {
                out.push((claim, owners));
            }
        }
    }
    out
}

/// Who is to own a claim: others than the set and the pod go on owning it.
fn owners(
    view: &View<'_>,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
    is_leaving: bool,
) -> Vec<OwnerReference> {
    let policy = |spec: &StatefulSetSpec| spec.persistent_volume_claim_retention_policy.clone();
    let policy = policy(view.spec).unwrap_or_default();
    let deletes = |when: &Option<String>| when.as_deref() == Some("Delete");
    let with_pod = is_leaving && deletes(&policy.when_scaled);
    let with_set = !with_pod && deletes(&policy.when_deleted);
    let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
    own(&mut owners, view.set, with_set);
    own(&mut owners, pod, with_pod);
    owners
}

fn own<O: Resource<DynamicType = ()>>(owners: &mut Vec<OwnerReference>, owner: &O, wanted: bool) {
    let meta = owner.meta();
    let uid = meta.uid.clone().unwrap_or_default();
    let is_there = owners.iter().any(|it| it.uid == uid);
    if is_there && !wanted {
        owners.retain(|it| it.uid != uid);
    } else if wanted && !is_there {
        owners.push(OwnerReference {
            api_version: O::api_version(&()).into_owned(),
            kind: O::kind(&()).into_owned(),
            name: meta.name.clone().unwrap_or_default(),
            uid,
            ..OwnerReference::default()
        });
    }
}

/// Whether a pod that is yet to be made has claims that go with one of its name, which is gone: then it waits for them to
/// go, too.
pub fn is_stale(view: &View<'_>, ordinal: i64) -> bool {
    let name = super::identity::pod_name(view.set, ordinal);
    let is_pod = |it: &OwnerReference| it.kind == Pod::kind(&()) && it.name == name;
    let claims = claims(view.set, ordinal);
    let mut there = claims.iter().filter_map(|claim| (view.claim)(&Key::of(claim)));
    there.any(|claim| claim.metadata.owner_references.iter().flatten().any(is_pod))
}
