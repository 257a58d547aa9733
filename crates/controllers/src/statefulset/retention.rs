//! The retention policy of claims: which ones the set or their pod owns, and so are deleted with it.
//!
//! Always true: a pod that stays owns no claim, so the claim survives when the pod is replaced.

use super::identity::claims;
use super::view::View;
use api::Kinded;
use api::Resource;
use api::core::v1::{PersistentVolumeClaim, Pod};
use api::meta::v1::OwnerReference;
use client::Key;
use std::sync::Arc;

/// A claim, and its new owners.
pub type Change = (Arc<PersistentVolumeClaim>, Vec<OwnerReference>);

/// The claims of existing pods whose owners differ from the policy.
pub fn changes(view: &View<'_>) -> Vec<Change> {
    let mut out = Vec::new();
    for (ordinal, pod) in view.by_ordinal() {
        let is_surplus = !view.range().contains(&ordinal);
        for claim in claims(view.set, ordinal) {
            let Some(claim) = (view.claim)(&Key::of(&claim)) else { continue };
            let owners = owners(view, &claim, pod, is_surplus);
            if owners != claim.metadata.owner_references {
                out.push((claim, owners));
            }
        }
    }
    out
}

/// The owners of a claim by the policy; owners other than the set and the pod stay.
fn owners(
    view: &View<'_>,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
    is_surplus: bool,
) -> Vec<OwnerReference> {
    let policy = view.set.spec.persistent_volume_claim_retention_policy.as_ref();
    let with_pod = is_surplus && policy.is_some_and(|it| it.when_scaled == "Delete");
    let with_set = !with_pod && policy.is_some_and(|it| it.when_deleted == "Delete");
    let mut owners = claim.metadata.owner_references.clone();
    own(&mut owners, view.set, with_set);
    own(&mut owners, pod, with_pod);
    owners
}

/// Adds or removes an owner.
fn own<O: Resource>(owners: &mut Vec<OwnerReference>, owner: &O, is_owner: bool) {
    let was_owner = owners.iter().any(|it| it.uid == owner.uid());
    if was_owner && !is_owner {
        owners.retain(|it| it.uid != owner.uid());
    } else if is_owner && !was_owner {
        owners.push(OwnerReference {
            api_version: O::api_version(),
            kind: O::kind().name.to_string(),
            name: owner.name().to_owned(),
            uid: owner.uid().to_owned(),
            ..OwnerReference::default()
        });
    }
}

/// Whether a former pod of this ordinal owns claims: a new pod waits until they are deleted.
pub fn is_stale(view: &View<'_>, ordinal: i64) -> bool {
    let name = super::identity::pod_name(view.set, ordinal);
    let is_pod = |it: &OwnerReference| it.kind == Pod::kind().name && it.name == name;
    let claims = claims(view.set, ordinal);
    let mut existing = claims.iter().filter_map(|claim| (view.claim)(&Key::of(claim)));
    existing.any(|claim| claim.metadata.owner_references.iter().any(is_pod))
}
