//! Updates of a pending pod that may make it schedulable.

use api::core::v1::Pod;
use api::meta::v1::ObjectMeta;

/// Whether an update changed more than status and bookkeeping (revision, generation, managed fields, finalizers).
pub fn is_pod_updated(old: &Pod, new: &Pod) -> bool {
    old.spec != new.spec || is_metadata_updated(&old.metadata, &new.metadata)
}

fn is_metadata_updated(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    // names all fields, so that a new one is a decision here
    let ObjectMeta {
        name,
        generate_name,
        namespace,
        self_link,
        uid,
        resource_version: _,
        generation: _,
        creation_timestamp,
        deletion_timestamp,
        deletion_grace_period_seconds,
        labels,
        annotations,
        owner_references,
        finalizers: _,
        managed_fields: _,
        unknown_fields: _,
    } = old;
    *name != new.name
        || *generate_name != new.generate_name
        || *namespace != new.namespace
        || *self_link != new.self_link
        || *uid != new.uid
        || *creation_timestamp != new.creation_timestamp
        || *deletion_timestamp != new.deletion_timestamp
        || *deletion_grace_period_seconds != new.deletion_grace_period_seconds
        || *labels != new.labels
        || *annotations != new.annotations
        || *owner_references != new.owner_references
}
