//! Finalizers that keep claims and volumes while they are in use.

use api::Resource;
use client::{Api, Failure, unless};

/// The change that an object's finalizer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerChange {
    Add,
    /// Once the object is not in use.
    Remove,
}

/// The change that an object's finalizer needs, if any.
pub fn finalizer_change(object: &impl Resource, finalizer: &str) -> Option<FinalizerChange> {
    let metadata = object.metadata();
    let has_finalizer = metadata.finalizers.iter().any(|it| it == finalizer);
    match (metadata.deletion_timestamp.is_some(), has_finalizer) {
        (false, false) => Some(FinalizerChange::Add),
        (true, true) => Some(FinalizerChange::Remove),
        _ => None,
    }
}

/// Writes the change, at the object's resource version.
pub async fn apply<K: Resource>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    change: FinalizerChange,
) -> Result<(), Failure> {
    let mut next = object.clone();
    let finalizers = &mut next.metadata_mut().finalizers;
    match change {
        FinalizerChange::Add => finalizers.push(finalizer.to_owned()),
        FinalizerChange::Remove => finalizers.retain(|it| it != finalizer),
    }
    unless(404, api.replace(&next).await)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;
    use api::core::v1::PersistentVolume;
    use serde_json::json;

    #[test]
    fn added_to_live_objects_and_removed_from_terminating_ones() {
        let of = |is_terminating: bool, finalizers: &[&str]| {
            let deleted_at = is_terminating.then_some("2026-01-01T00:00:00Z");
            let metadata = json!({"name": "v", "deletionTimestamp": deleted_at, "finalizers": finalizers});
            finalizer_change(&object::<PersistentVolume>(json!({ "metadata": metadata })), "f")
        };
        assert_eq!(of(false, &[]), Some(FinalizerChange::Add));
        assert_eq!(of(false, &["x", "f"]), None);
        assert_eq!(of(true, &["x", "f"]), Some(FinalizerChange::Remove));
        assert_eq!(of(true, &["x"]), None);
    }
}
