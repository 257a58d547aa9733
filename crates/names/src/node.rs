//! Names of the node agent: labels and annotations of sandboxes and containers, of static and mirror pods.

/// The default image of sandboxes.
pub const SANDBOX_IMAGE: &str = "registry.k8s.io/pause:3.9";

/// The namespace of the CRI in containerd.
pub const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// Labels of sandboxes and containers.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Annotations of containers.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const CONTAINER_TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const CONTAINER_TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
pub const CONTAINER_PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// Annotations of pods that do not come from the API, and of their mirrors there.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// The prefix of annotations that name the AppArmor profile of a container.
pub const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Directories of volumes by plugin.
pub const EMPTY_DIR_PLUGIN: &str = "kubernetes.io~empty-dir";
pub const CONFIG_MAP_PLUGIN: &str = "kubernetes.io~configmap";
pub const SECRET_PLUGIN: &str = "kubernetes.io~secret";
pub const PROJECTED_PLUGIN: &str = "kubernetes.io~projected";
pub const DOWNWARD_API_PLUGIN: &str = "kubernetes.io~downward-api";
pub const HOST_PATH_PLUGIN: &str = "kubernetes.io~host-path";
pub const LOCAL_VOLUME_PLUGIN: &str = "kubernetes.io~local-volume";
pub const CSI_DIRECTORY: &str = "kubernetes.io~csi";

/// The plugin of volumes of CSI drivers, in directories and messages.
pub const CSI_PLUGIN: &str = "kubernetes.io/csi";
/// The directory of FlexVolume drivers below that of plugins.
pub const FLEX_PLUGIN: &str = "kubernetes.io/flexvolume";
/// The plugin of local volumes.
pub const LOCAL_PLUGIN: &str = "kubernetes.io/local-volume";
/// The annotation of a node with the ids that CSI drivers have for it.
pub const CSI_NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// The prefix of attributes that the agent adds to those of a volume.
pub const CSI_ATTRIBUTES: &str = "csi.storage.k8s.io/";

/// Labels of every node.
pub const OS: &str = "kubernetes.io/os";
pub const ARCH: &str = "kubernetes.io/arch";
pub const BETA_OS: &str = "beta.kubernetes.io/os";
pub const BETA_ARCH: &str = "beta.kubernetes.io/arch";

/// The attach-detach controller, not the agent, attaches the volumes of the node.
pub const CONTROLLER_MANAGED_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The taint of a node that a cloud has not initialized.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The address of a node that was set by hand, for a cloud.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The group of the protocol of credential providers.
pub const CREDENTIAL_PROVIDER_GROUP: &str = "credentialprovider.kubelet.k8s.io";
/// The group of the agent's configuration files.
pub const CONFIGURATION_GROUP: &str = "kubelet.config.k8s.io";
