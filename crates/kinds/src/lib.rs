//! The built-in API: tables in `api/`, and beside them one file for each kind that has behaviour of its own.
//!
//! A kind's file says what the table cannot: defaults that depend on other fields, rules that need more than
//! one field, what may change, what deleting means, and its row in a table of objects. Always true: a kind
//! without such a file works by its table alone. Nothing in here does I/O or reads a clock.

mod check;
pub mod configmap;
pub mod csi;
pub mod csr;
pub mod event;
pub mod lease;
pub mod limitrange;
mod limits;
mod metadata;
pub mod namespace;
pub mod node;
mod pem;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod priorityclass;
mod quantities;
pub mod quota;
mod read;
pub mod resourceclaim;
pub mod resourcequota;
pub mod runtimeclass;
mod scheduling;
pub mod secret;
pub mod serviceaccount;
pub mod storageclass;
pub mod tables;
pub mod volumeattachment;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod testing;

use rest::hooks::Hooks;
use schema::table::{Kind, Ref};

/// What an operator may decide about the built-in kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Containers may run as if they were the host.
    pub allow_privileged: bool,
}

/// All kinds with their behaviour, as they are without any decision by an operator.
pub fn builtin() -> Vec<(Ref<Kind>, Hooks)> {
    builtin_with(Options::default())
}

/// All kinds with their behaviour.
pub fn builtin_with(options: Options) -> Vec<(Ref<Kind>, Hooks)> {
    let served = tables::KINDS.iter().filter(|kind| kind.on && !kind.unstored);
    served.map(|kind| (Ref::Static(*kind), hooks(kind, options))).collect()
}

fn hooks(kind: &Kind, options: Options) -> Hooks {
    match (&*kind.group.stem, &*kind.version, &*kind.name) {
        ("", "v1", "ConfigMap") => configmap::hooks(),
        ("", "v1", "Event") => event::hooks(),
        ("", "v1", "LimitRange") => limitrange::hooks(),
        ("", "v1", "Namespace") => namespace::hooks(),
        ("", "v1", "Node") => node::hooks(),
        ("", "v1", "PersistentVolume") => persistentvolume::hooks(),
        ("", "v1", "PersistentVolumeClaim") => persistentvolumeclaim::hooks(),
        ("", "v1", "Pod") => pod::hooks(options),
        ("", "v1", "ResourceQuota") => resourcequota::hooks(),
        ("", "v1", "Secret") => secret::hooks(),
        ("", "v1", "ServiceAccount") => serviceaccount::hooks(),
        ("certificates", "v1", "CertificateSigningRequest") => csr::hooks(),
        ("coordination", "v1", "Lease") => lease::hooks(),
        ("events", "v1", "Event") => event::own_group_hooks(),
        ("node", "v1", "RuntimeClass") => runtimeclass::hooks(),
        ("resource", "v1alpha1", "PodScheduling") => resourceclaim::scheduling_hooks(),
        ("resource", "v1alpha1", "ResourceClaim") => resourceclaim::claim_hooks(),
        ("resource", "v1alpha1", "ResourceClaimTemplate") => resourceclaim::template_hooks(),
        ("resource", "v1alpha1", "ResourceClass") => resourceclaim::class_hooks(),
        ("scheduling", "v1", "PriorityClass") => priorityclass::hooks(),
        ("storage", "v1", "CSIDriver") => csi::driver_hooks(),
        ("storage", "v1", "CSINode") => csi::node_hooks(),
        ("storage", "v1", "CSIStorageCapacity") => csi::capacity_hooks(),
        ("storage", "v1", "StorageClass") => storageclass::hooks(),
        ("storage", "v1", "VolumeAttachment") => volumeattachment::hooks(),
        ("storage", "v1beta1", "CSIStorageCapacity") => csi::earlier_capacity_hooks(),
        _ => Hooks::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_rows_of_their_own_fill_every_column() {
        let mut with_cells = 0;
        for (kind, hooks) in builtin() {
            if let Some(cells) = hooks.cells {
                with_cells += 1;
                let row = cells(&schema::Value::map(), std::time::Duration::ZERO);
                assert_eq!(row.len(), kind.columns.len(), "{}", kind.name);
            }
        }
        assert!(with_cells >= 11);
    }

    #[test]
    fn subresources_with_behaviour_are_declared() {
        for (kind, hooks) in builtin() {
            for one in hooks.subresources {
                assert!(kind.subresources.iter().any(|it| it.name == one.name), "{} {}", kind.name, one.name);
            }
        }
    }
}
