//! Finalizers that keep claims and volumes for as long as they are used.

use client::{Failure, unless};
use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// What is to be done about a finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is put on.
    On,
    /// It comes off once nobody uses the object.
    Off,
}

/// What is to be done about an object's finalizer, if anything.
pub fn due(object: &impl Resource, finalizer: &str) -> Option<Due> {
    let meta = object.meta();
    let has = meta.finalizers.iter().flatten().any(|it| it == finalizer);
    match (meta.deletion_timestamp.is_some(), has) {
        (false, false) => Some(Due::On),
        (true, true) => Some(Due::Off),
        _ => None,
    }
}

/// Does it, to the object as it was seen.
pub async fn settle<K>(api: &Api<K>, object: &K, finalizer: &str, due: Due) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let mut next = object.clone();
    match due {
        Due::On => next.finalizers_mut().push(finalizer.to_owned()),
        Due::Off => next.finalizers_mut().retain(|it| it != finalizer),
    }
    unless(404, api.replace(&object.name_any(), &PostParams::default(), &next).await)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    #[test]
    fn on_while_it_stays_and_off_when_it_goes() {
        let of = |leaves: bool, finalizers: &[&str]| {
            let leaves = leaves.then_some("2026-01-01T00:00:00Z");
            let meta = json!({"name": "v", "deletionTimestamp": leaves, "finalizers": finalizers});
            let object: PersistentVolume = serde_json::from_value(json!({ "metadata": meta })).unwrap();
            due(&object, "f")
        };
        assert_eq!(of(false, &[]), Some(Due::On));
        assert_eq!(of(false, &["x", "f"]), None);
        assert_eq!(of(true, &["x", "f"]), Some(Due::Off));
        assert_eq!(of(true, &["x"]), None);
    }
}
