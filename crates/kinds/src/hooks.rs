//! The hooks of each built-in kind.

use crate::options::Options;
use crate::{
    admissionregistration, apiextensions, apiregistration, apiserverinternal, apps, autoscaling, batch,
    certificates, coordination, core, discovery, flowcontrol, metrics, networking, node, policy, rbac,
    resource, scheduling, storage,
};
use rest::hooks::Hooks;
use schema::table::Kind;

pub(crate) fn hooks(kind: &Kind, options: Options) -> Hooks {
    match (&*kind.group.stem, &*kind.version, &*kind.name) {
        ("", "v1", "Binding") => core::binding::hooks(),
        ("", "v1", "ComponentStatus") => core::componentstatus::hooks(),
        ("", "v1", "ConfigMap") => core::configmap::hooks(),
        ("", "v1", "Endpoints") => core::endpoints::hooks(),
        ("", "v1", "Event") => core::event::hooks(),
        ("", "v1", "LimitRange") => core::limitrange::hooks(),
        ("", "v1", "Namespace") => core::namespace::hooks(),
        ("", "v1", "Node") => core::node::hooks(),
        ("", "v1", "PersistentVolume") => core::persistentvolume::hooks(),
        ("", "v1", "PersistentVolumeClaim") => core::persistentvolumeclaim::hooks(),
        ("", "v1", "Pod") => core::pod::hooks(options),
        ("", "v1", "PodTemplate") => core::podtemplate::hooks(options),
        ("", "v1", "ReplicationController") => core::replicationcontroller::hooks(options),
        ("", "v1", "ResourceQuota") => core::resourcequota::hooks(),
        ("", "v1", "Secret") => core::secret::hooks(),
        ("", "v1", "Service") => core::service::hooks(options.services),
        ("", "v1", "ServiceAccount") => core::serviceaccount::hooks(),
        ("admissionregistration", "v1", _) => admissionregistration::webhook::hooks(),
        ("admissionregistration", "v1alpha1", "ValidatingAdmissionPolicy") => {
            admissionregistration::admission_policy::hooks()
        }
        ("admissionregistration", "v1alpha1", "ValidatingAdmissionPolicyBinding") => {
            admissionregistration::admission_policy::binding_hooks()
        }
        ("apiextensions", "v1", "CustomResourceDefinition") => apiextensions::hooks(),
        ("apiregistration", "v1", "APIService") => apiregistration::apiservice::hooks(),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
            autoscaling::horizontalpodautoscaler::older_hooks()
        }
        ("autoscaling", "v2", "HorizontalPodAutoscaler") => {
            autoscaling::horizontalpodautoscaler::newer_hooks()
        }
        ("apps", "v1", "ControllerRevision") => apps::controllerrevision::hooks(),
        ("apps", "v1", "DaemonSet") => apps::daemonset::hooks(options),
        ("apps", "v1", "Deployment") => apps::deployment::hooks(options),
        ("apps", "v1", "ReplicaSet") => apps::replicaset::hooks(options),
        ("apps", "v1", "StatefulSet") => apps::statefulset::hooks(options),
        ("batch", "v1", "CronJob") => batch::cronjob::hooks(options),
        ("batch", "v1", "Job") => batch::job::hooks(options),
        ("certificates", "v1", "CertificateSigningRequest") => {
            certificates::certificatesigningrequest::hooks()
        }
        ("coordination", "v1", "Lease") => coordination::lease::hooks(),
        ("discovery", "v1", "EndpointSlice") => discovery::endpointslice::hooks(),
        ("events", "v1", "Event") => core::event::own_group_hooks(),
        ("flowcontrol.apiserver", "v1beta2", "FlowSchema") => flowcontrol::schema_hooks(),
        ("flowcontrol.apiserver", "v1beta2", "PriorityLevelConfiguration") => flowcontrol::level_hooks(),
        ("flowcontrol.apiserver", "v1beta3", "FlowSchema") => flowcontrol::newer_schema_hooks(),
        ("flowcontrol.apiserver", "v1beta3", "PriorityLevelConfiguration") => {
            flowcontrol::newer_level_hooks()
        }
        ("metrics", "v1beta1", "PodMetrics") => metrics::podmetrics::hooks(),
        ("networking", "v1", "Ingress") => networking::ingress::hooks(),
        ("networking", "v1", "IngressClass") => networking::ingress::class_hooks(),
        ("networking", "v1", "NetworkPolicy") => networking::networkpolicy::hooks(),
        ("internal.apiserver", "v1alpha1", "StorageVersion") => apiserverinternal::storageversion::hooks(),
        ("networking", "v1alpha1", "ClusterCIDR") => networking::clustercidr::hooks(),
        ("node", "v1", "RuntimeClass") => node::runtimeclass::hooks(),
        ("policy", "v1", "PodDisruptionBudget") => policy::poddisruptionbudget::hooks(),
        ("rbac.authorization", "v1", "ClusterRole") => rbac::cluster_role_hooks(),
        ("rbac.authorization", "v1", "ClusterRoleBinding") => rbac::cluster_role_binding_hooks(),
        ("rbac.authorization", "v1", "Role") => rbac::role_hooks(),
        ("rbac.authorization", "v1", "RoleBinding") => rbac::role_binding_hooks(),
        ("resource", "v1alpha1", "PodScheduling") => resource::resourceclaim::scheduling_hooks(),
        ("resource", "v1alpha1", "ResourceClaim") => resource::resourceclaim::claim_hooks(),
        ("resource", "v1alpha1", "ResourceClaimTemplate") => resource::resourceclaim::template_hooks(),
        ("resource", "v1alpha1", "ResourceClass") => resource::resourceclaim::class_hooks(),
        ("scheduling", "v1", "PriorityClass") => scheduling::priorityclass::hooks(),
        ("storage", "v1", "CSIDriver") => storage::csi::driver_hooks(),
        ("storage", "v1", "CSINode") => storage::csi::node_hooks(),
        ("storage", "v1", "CSIStorageCapacity") => storage::csi::capacity_hooks(),
        ("storage", "v1", "StorageClass") => storage::storageclass::hooks(),
        ("storage", "v1", "VolumeAttachment") => storage::volumeattachment::hooks(),
        ("storage", "v1beta1", "CSIStorageCapacity") => storage::csi::earlier_capacity_hooks(),
        _ => Hooks::default(),
    }
}
