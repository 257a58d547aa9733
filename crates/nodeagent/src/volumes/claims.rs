//! The persistent volumes behind claims.

use crate::objects::ObjectSource;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};

/// A volume, and whether the claim's user may only read it.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundVolume {
    pub volume: PersistentVolume,
    pub claim: PersistentVolumeClaim,
    pub is_readonly: bool,
}

/// The name of the claim of a volume, if it has one.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name, volume.name)),
        (None, None) => None,
    }
}

/// Reads a claim and its volume.
pub async fn bound_volume(
    objects: &dyn ObjectSource,
    pod: &Pod,
    volume: &Volume,
    claim_name: &str,
) -> Result<BoundVolume, String> {
    let namespace = &pod.metadata.namespace;
    let in_claim = |error: String| format!("error processing PVC {namespace}/{claim_name}: {error}");
    let claim = objects.claim(namespace, claim_name).await;
    let claim = claim.map_err(|error| in_claim(format!("failed to fetch PVC from API server: {error}")))?;
    check_claim(&claim, pod, volume).map_err(in_claim)?;
    let name = &claim.spec.volume_name;
    let found = objects.volume(name).await;
    let found = found.map_err(|error| format!("failed to fetch PV {name} from API server: {error}"))?;
    let Some(owner) = &found.spec.claim_ref else {
        return Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    if owner.uid != claim.metadata.uid {
        return Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {} does not point to claim.UID {}",
            owner.uid, claim.metadata.uid
        ));
    }
    let is_readonly = volume.persistent_volume_claim.as_ref().is_some_and(|it| it.read_only);
    Ok(BoundVolume { volume: found, claim, is_readonly })
}

fn check_claim(claim: &PersistentVolumeClaim, pod: &Pod, volume: &Volume) -> Result<(), String> {
    if volume.ephemeral.is_some() {
        let owners = &claim.metadata.owner_references;
        if !owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == pod.metadata.uid) {
            let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
            return Err(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
                pod.metadata.name
            ));
        }
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("PVC is being deleted".to_owned());
    }
    match claim.status.phase == "Bound" && !claim.spec.volume_name.is_empty() {
        true => Ok(()),
        false => Err("PVC is not bound".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::{FixedObjects, object};

    #[tokio::test]
    async fn claims_lead_to_volumes() {
        let objects = FixedObjects::default();
        let pod: Pod = object(r#"{"metadata":{"name":"p","namespace":"n","uid":"u"}}"#);
        let volume: Volume =
            object(r#"{"name":"v","persistentVolumeClaim":{"claimName":"c","readOnly":true}}"#);
        let name = claim_name(&pod, &volume).unwrap();
        let get = async || bound_volume(&objects, &pod, &volume, &name).await;
        let claim = |status: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"c","namespace":"n","uid":"cu"}},"spec":{{"volumeName":"pv"}},"status":{{"phase":"{status}"}}}}"#
            );
            objects.claims.lock().insert(("n".to_owned(), "c".to_owned()), object(&json));
        };
        let absent = "error processing PVC n/c: failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found";
        assert_eq!(get().await.unwrap_err(), absent);
        claim("Pending");
        assert_eq!(get().await.unwrap_err(), "error processing PVC n/c: PVC is not bound");
        claim("Bound");
        let absent = "failed to fetch PV pv from API server: persistentvolumes \"pv\" not found";
        assert_eq!(get().await.unwrap_err(), absent);
        let pv =
            object(r#"{"metadata":{"name":"pv"},"spec":{"hostPath":{"path":"/x"},"claimRef":{"uid":"cu"}}}"#);
        objects.volumes.lock().insert("pv".to_owned(), pv);
        assert!(get().await.unwrap().is_readonly);
    }

    #[test]
    fn ephemeral_volumes_have_claims_of_their_own() {
        let pod: Pod = object(r#"{"metadata":{"name":"p","namespace":"n","uid":"u"}}"#);
        let volume: Volume = object(r#"{"name":"v","ephemeral":{}}"#);
        assert_eq!(claim_name(&pod, &volume).as_deref(), Some("p-v"));
        let claim = object(r#"{"metadata":{"name":"p-v","namespace":"n"}}"#);
        assert!(check_claim(&claim, &pod, &volume).unwrap_err().contains("pod is not owner"));
    }
}
