//! Labels, annotations, taints and resource prefixes that the scheduler compares, in the Kubernetes dialect.

pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";
pub const TOPOLOGY_REGION: &str = "topology.kubernetes.io/region";
pub const FAILURE_DOMAIN_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub const FAILURE_DOMAIN_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// The taint of a node with `spec.unschedulable`.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The taint of a node under the pressure of memory.
pub const TAINT_MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// The node on which a claim's volume is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The volume controller has bound the claim to its volume.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The volume controller, not a user, chose the volume of the claim.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The storage class of a claim or volume before it had a field.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// In-tree plugins of a node whose volumes a CSI driver serves.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// The provisioner of classes whose volumes are made by hand.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const BETA_INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";

/// The kind of storage classes in messages.
pub const STORAGE_CLASS_KIND: &str = "storageclass.storage.k8s.io";
/// The kinds of dynamic resources in messages.
pub const RESOURCE_CLAIM_KIND: &str = "resourceclaim.resource.k8s.io";
pub const RESOURCE_CLASS_KIND: &str = "resourceclass.resource.k8s.io";

/// Prefix of resources below the well-known domain.
pub const NATIVE_RESOURCE_PREFIX: &str = "kubernetes.io/";

pub const AWS_EBS_PLUGIN: &str = "kubernetes.io/aws-ebs";
pub const GCE_PD_PLUGIN: &str = "kubernetes.io/gce-pd";
pub const AZURE_DISK_PLUGIN: &str = "kubernetes.io/azure-disk";
pub const AZURE_FILE_PLUGIN: &str = "kubernetes.io/azure-file";
pub const CINDER_PLUGIN: &str = "kubernetes.io/cinder";
pub const VSPHERE_PLUGIN: &str = "kubernetes.io/vsphere-volume";
pub const PORTWORX_PLUGIN: &str = "kubernetes.io/portworx-volume";
pub const RBD_PLUGIN: &str = "kubernetes.io/rbd";

pub const AWS_EBS_DRIVER: &str = "ebs.csi.aws.com";
pub const GCE_PD_DRIVER: &str = "pd.csi.storage.gke.io";
pub const AZURE_DISK_DRIVER: &str = "disk.csi.azure.com";
pub const AZURE_FILE_DRIVER: &str = "file.csi.azure.com";
pub const CINDER_DRIVER: &str = "cinder.csi.openstack.org";
pub const VSPHERE_DRIVER: &str = "csi.vsphere.vmware.com";
pub const PORTWORX_DRIVER: &str = "pxd.portworx.com";
pub const RBD_DRIVER: &str = "rbd.csi.ceph.com";
