//! Behaviour of the built-in kinds, whose tables the crate `api` declares: one file for each kind that has behaviour of its own.
//!
//! A kind's file says what the table cannot: defaults that depend on other fields, rules that need more than
//! one field, what may change, what deleting means, and its row in a table of objects. Always true: a kind
//! without such a file works by its table alone. Nothing in here does I/O or reads a clock.

pub mod admission_policy;
pub mod apiservice;
mod asn1;
mod binding;
pub mod budget;
mod check;
pub mod clustercidr;
mod componentstatus;
mod conditions;
pub mod configmap;
pub mod controllerrevision;
pub mod crd;
pub mod cronjob;
pub mod csi;
pub mod csr;
pub mod daemonset;
pub mod deployment;
pub mod endpoints;
pub mod endpointslice;
pub mod event;
mod failurepolicy;
pub mod flow;
pub mod gates;
pub mod hpa;
pub mod ingress;
pub mod job;
pub mod lease;
pub mod limitrange;
pub mod limits;
mod metadata;
pub mod namespace;
pub mod networkpolicy;
pub mod node;
mod pem;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod podtemplate;
pub mod priorityclass;
mod quantities;
pub mod quota;
pub mod rbac;
mod read;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourceclaim;
pub mod resourcequota;
mod retired;
pub mod runtimeclass;
mod scale;
pub mod scheduling;
pub mod secret;
pub mod service;
pub mod serviceaccount;
mod serving;
pub mod statefulset;
pub mod storageclass;
pub mod storageversion;
pub mod volumeattachment;
pub mod webhook;
mod webhook_client;
mod workload;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod testing;

pub use api::tables;
pub use quantities::is_extended as is_extended_resource;
pub use serving::{BadServing, Serving};

use rest::hooks::Hooks;
use schema::table::{Kind, Ref, Release};

/// The release of the API that the tables describe.
pub const RELEASE: Release = Release { major: 1, minor: 26 };

/// What an operator may decide about the built-in kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Containers may run as if they were the host.
    pub allow_privileged: bool,
    pub services: ServiceOptions,
    /// Nobody collects what depended on deleted objects.
    pub uncollected: bool,
}

/// What services are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Where the addresses come from of services that name no family.
    pub network: service::Network,
    /// One of the other family, where services may have both.
    pub second_network: Option<service::Network>,
    pub node_ports: service::PortRange,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            network: service::Network::DEFAULT,
            second_network: None,
            node_ports: service::PortRange::DEFAULT,
        }
    }
}

/// All kinds with their behaviour, as they are without any decision by an operator.
pub fn builtin() -> Vec<(Ref<Kind>, Hooks)> {
    builtin_with(Options::default())
}

/// All kinds with their behaviour.
pub fn builtin_with(options: Options) -> Vec<(Ref<Kind>, Hooks)> {
    builtin_serving(options, &Serving::default())
}

/// The kinds that are to be served, with their behaviour.
pub fn builtin_serving(options: Options, serving: &Serving) -> Vec<(Ref<Kind>, Hooks)> {
    let served = tables::KINDS.iter().filter(|kind| serving.serves(kind));
    let with_hooks = |kind: &&'static Kind| {
        let stored = stored(kind);
        let stored = stored.as_deref().unwrap_or(kind);
        let stored_versions = (!stored.unstored).then(|| retired::stored_versions(stored, options));
        (Ref::Static(*kind), Hooks { stored_versions, ..hooks(kind, options) })
    };
    served.map(with_hooks).collect()
}

/// The kind that objects of this one are kept as.
pub fn stored(kind: &Kind) -> Option<Ref<Kind>> {
    let (group, version) = kind.stored_as.as_ref()?;
    tables::kind_named(group, version, &kind.name).map(Ref::Static)
}

/// All versions of a kind that is kept, itself first.
pub fn versions(stored: &Kind) -> impl Iterator<Item = &Kind> {
    let others = tables::KINDS.iter().filter(|kind| {
        let (group, version) = (&stored.group, &stored.version);
        kind.name == stored.name
            && kind.stored_as.as_ref().is_some_and(|it| it.0 == *group && it.1 == *version)
    });
    std::iter::once(stored).chain(others.copied())
}

fn hooks(kind: &Kind, options: Options) -> Hooks {
    match (&*kind.group.stem, &*kind.version, &*kind.name) {
        ("", "v1", "Binding") => binding::hooks(),
        ("", "v1", "ComponentStatus") => componentstatus::hooks(),
        ("", "v1", "ConfigMap") => configmap::hooks(),
        ("", "v1", "Endpoints") => endpoints::hooks(),
        ("", "v1", "Event") => event::hooks(),
        ("", "v1", "LimitRange") => limitrange::hooks(),
        ("", "v1", "Namespace") => namespace::hooks(),
        ("", "v1", "Node") => node::hooks(),
        ("", "v1", "PersistentVolume") => persistentvolume::hooks(),
        ("", "v1", "PersistentVolumeClaim") => persistentvolumeclaim::hooks(),
        ("", "v1", "Pod") => pod::hooks(options),
        ("", "v1", "PodTemplate") => podtemplate::hooks(options),
        ("", "v1", "ReplicationController") => replicationcontroller::hooks(options),
        ("", "v1", "ResourceQuota") => resourcequota::hooks(),
        ("", "v1", "Secret") => secret::hooks(),
        ("", "v1", "Service") => service::hooks(options.services),
        ("", "v1", "ServiceAccount") => serviceaccount::hooks(),
        ("admissionregistration", "v1", _) => webhook::hooks(),
        ("admissionregistration", "v1alpha1", "ValidatingAdmissionPolicy") => admission_policy::hooks(),
        ("admissionregistration", "v1alpha1", "ValidatingAdmissionPolicyBinding") => {
            admission_policy::binding_hooks()
        }
        ("apiextensions", "v1", "CustomResourceDefinition") => crd::hooks(),
        ("apiregistration", "v1", "APIService") => apiservice::hooks(),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => hpa::older_hooks(),
        ("autoscaling", "v2", "HorizontalPodAutoscaler") => hpa::newer_hooks(),
        ("apps", "v1", "ControllerRevision") => controllerrevision::hooks(),
        ("apps", "v1", "DaemonSet") => daemonset::hooks(options),
        ("apps", "v1", "Deployment") => deployment::hooks(options),
        ("apps", "v1", "ReplicaSet") => replicaset::hooks(options),
        ("apps", "v1", "StatefulSet") => statefulset::hooks(options),
        ("batch", "v1", "CronJob") => cronjob::hooks(options),
        ("batch", "v1", "Job") => job::hooks(options),
        ("certificates", "v1", "CertificateSigningRequest") => csr::hooks(),
        ("coordination", "v1", "Lease") => lease::hooks(),
        ("discovery", "v1", "EndpointSlice") => endpointslice::hooks(),
        ("events", "v1", "Event") => event::own_group_hooks(),
        ("flowcontrol.apiserver", "v1beta2", "FlowSchema") => flow::schema_hooks(),
        ("flowcontrol.apiserver", "v1beta2", "PriorityLevelConfiguration") => flow::level_hooks(),
        ("flowcontrol.apiserver", "v1beta3", "FlowSchema") => flow::newer_schema_hooks(),
        ("flowcontrol.apiserver", "v1beta3", "PriorityLevelConfiguration") => flow::newer_level_hooks(),
        ("networking", "v1", "Ingress") => ingress::hooks(),
        ("networking", "v1", "IngressClass") => ingress::class_hooks(),
        ("networking", "v1", "NetworkPolicy") => networkpolicy::hooks(),
        ("internal.apiserver", "v1alpha1", "StorageVersion") => storageversion::hooks(),
        ("networking", "v1alpha1", "ClusterCIDR") => clustercidr::hooks(),
        ("node", "v1", "RuntimeClass") => runtimeclass::hooks(),
        ("policy", "v1", "PodDisruptionBudget") => budget::hooks(),
        ("rbac.authorization", "v1", "ClusterRole") => rbac::cluster_role_hooks(),
        ("rbac.authorization", "v1", "ClusterRoleBinding") => rbac::cluster_role_binding_hooks(),
        ("rbac.authorization", "v1", "Role") => rbac::role_hooks(),
        ("rbac.authorization", "v1", "RoleBinding") => rbac::role_binding_hooks(),
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
        assert_eq!(with_cells, 47);
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
