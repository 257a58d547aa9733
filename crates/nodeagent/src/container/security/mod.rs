//! Security contexts: what the fields of pod and container mean to the runtime.

use crate::container::error::ContainerConfigError;
use crate::container::node_facts::NodeFacts;
use crate::pod_facts::description;
use crate::runtime::{
    Capabilities, LinuxSecurity, NamespaceMode, NamespaceOptions, SeLinuxOptions, SecurityProfile,
};
use api::core::v1::{Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext};
use std::path::Path;

const MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The user of an image, by number or by name. An image without both runs as root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: Option<i64>,
    pub username: String,
}

impl ImageUser {
    /// Root, unless the image names a user.
    pub fn new(uid: Option<i64>, username: &str) -> Self {
        match (uid, username) {
            (None, "") => ImageUser { uid: Some(0), username: String::new() },
            (Some(uid), _) => ImageUser { uid: Some(uid), username: String::new() },
            (None, name) => ImageUser { uid: None, username: name.to_owned() },
        }
    }
}

/// The context of a container, over that of its pod.
pub fn effective(pod: &Pod, container: &Container) -> SecurityContext {
    let mut own = container.security_context.as_deref().cloned().unwrap_or_default();
    if let Some(pod) = &pod.spec.security_context {
        own.se_linux_options = own.se_linux_options.or_else(|| pod.se_linux_options.clone());
        own.run_as_user = own.run_as_user.or(pod.run_as_user);
        own.run_as_group = own.run_as_group.or(pod.run_as_group);
        own.run_as_non_root = own.run_as_non_root.or(pod.run_as_non_root);
        own.seccomp_profile = own.seccomp_profile.or_else(|| pod.seccomp_profile.clone());
    }
    own
}

/// Refuses a container that would run as root although it must not.
pub fn verify_non_root(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<(), ContainerConfigError> {
    let context = effective(pod, container);
    if context.run_as_non_root != Some(true) {
        return Ok(());
    }
    let place = format!("(pod: {:?}, container: {})", description(pod), container.name);
    let message = match (context.run_as_user, image) {
        (Some(0), _) => format!("container's runAsUser breaks non-root policy {place}"),
        (Some(_), _) => return Ok(()),
        (None, ImageUser { uid: Some(0), .. }) => {
            format!("container has runAsNonRoot and image will run as root {place}")
        }
        (None, ImageUser { uid: None, username }) if !username.is_empty() => format!(
            "container has runAsNonRoot and image has non-numeric user ({username}), cannot verify user is \
             non-root {place}"
        ),
        _ => return Ok(()),
    };
    Err(ContainerConfigError::new(message))
}

/// The security of a container. `target` is the container whose processes an ephemeral container sees.
pub fn container_security(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    target: Option<&str>,
    node: &NodeFacts,
) -> Result<LinuxSecurity, ContainerConfigError> {
    let context = effective(pod, container);
    let mut namespaces = namespaces(pod);
    if let (Some(target), NamespaceMode::Container) = (target, namespaces.pid) {
        namespaces.pid = NamespaceMode::Target;
        namespaces.target_id = target.to_owned();
    }
    let is_unmasked = context.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| match is_unmasked {
        true => Vec::new(),
        false => list.iter().map(|&it| it.to_owned()).collect(),
    };
    let capabilities = context.capabilities.as_deref();
    Ok(LinuxSecurity {
        namespaces,
        is_privileged: context.privileged == Some(true),
        capabilities: Capabilities {
            add: capabilities.map(|it| it.add.clone()).unwrap_or_default(),
            drop: capabilities.map(|it| it.drop.clone()).unwrap_or_default(),
        },
        selinux: context.se_linux_options.as_deref().map(selinux),
        run_as_user: context.run_as_user.or(image.uid),
        run_as_group: context.run_as_group,
        run_as_username: match context.run_as_user {
            Some(_) => String::new(),
            None => image.username.clone(),
        },
        readonly_rootfs: context.read_only_root_filesystem == Some(true),
        supplemental_groups: supplemental_groups(pod.spec.security_context.as_deref()),
        no_new_privs: context.allow_privilege_escalation == Some(false),
        masked_paths: paths(MASKED_PATHS),
        readonly_paths: paths(READONLY_PATHS),
        seccomp: Some(seccomp(context.seccomp_profile.as_deref(), node)?),
        apparmor: apparmor(pod, &container.name),
    })
}

/// The security of a pod's sandbox.
pub fn sandbox_security(pod: &Pod) -> LinuxSecurity {
    let context = pod.spec.security_context.as_deref();
    LinuxSecurity {
        namespaces: namespaces(pod),
        is_privileged: has_privileged_container(pod),
        // a profile of the pod is for its containers
        seccomp: Some(SecurityProfile::RuntimeDefault),
        run_as_user: context.and_then(|it| it.run_as_user),
        run_as_group: context.and_then(|it| it.run_as_group),
        supplemental_groups: supplemental_groups(context),
        selinux: context.and_then(|it| it.se_linux_options.as_deref()).map(selinux),
        ..LinuxSecurity::default()
    }
}

/// The namespaces that the containers of a pod share.
pub fn namespaces(pod: &Pod) -> NamespaceOptions {
    let or_node = |is_host| if is_host { NamespaceMode::Node } else { NamespaceMode::Pod };
    NamespaceOptions {
        network: or_node(pod.spec.host_network),
        ipc: or_node(pod.spec.host_ipc),
        pid: match pod.spec.share_process_namespace {
            _ if pod.spec.host_pid => NamespaceMode::Node,
            Some(true) => NamespaceMode::Pod,
            _ => NamespaceMode::Container,
        },
        ..NamespaceOptions::default()
    }
}

fn has_privileged_container(pod: &Pod) -> bool {
    let spec = &pod.spec;
    let ephemeral = spec.ephemeral_containers.iter().map(|it| &it.security_context);
    let contexts = spec.containers.iter().chain(&spec.init_containers).map(|it| &it.security_context);
    contexts.chain(ephemeral).flatten().any(|it| it.privileged == Some(true))
}

fn supplemental_groups(context: Option<&PodSecurityContext>) -> Vec<i64> {
    let Some(context) = context else { return Vec::new() };
    context.fs_group.into_iter().chain(context.supplemental_groups.iter().copied()).collect()
}

fn selinux(options: &SELinuxOptions) -> SeLinuxOptions {
    SeLinuxOptions {
        user: options.user.clone(),
        role: options.role.clone(),
        kind: options.type_.clone(),
        level: options.level.clone(),
    }
}

fn seccomp(
    profile: Option<&SeccompProfile>,
    node: &NodeFacts,
) -> Result<SecurityProfile, ContainerConfigError> {
    match profile.map(|it| (&*it.type_, it.localhost_profile.as_deref())) {
        None if node.has_seccomp_default => Ok(SecurityProfile::RuntimeDefault),
        Some(("RuntimeDefault", _)) => Ok(SecurityProfile::RuntimeDefault),
        Some(("Localhost", Some(file))) if !file.is_empty() => {
            Ok(SecurityProfile::Localhost(localhost_profile(&node.root_dir, file)))
        }
        Some(("Localhost", _)) => Err(ContainerConfigError::new(
            "localhostProfile must be set if seccompProfile type is Localhost.",
        )),
        _ => Ok(SecurityProfile::Unconfined),
    }
}

fn localhost_profile(root: &Path, file: &str) -> String {
    root.join("seccomp").join(file.trim_start_matches('/')).to_string_lossy().into_owned()
}

/// The AppArmor profile of a container, by an annotation of its pod.
pub fn apparmor(pod: &Pod, container: &str) -> Option<SecurityProfile> {
    let key = format!("{}{container}", names::node::APPARMOR_ANNOTATION);
    match &**pod.metadata.annotations.get(&key)? {
        "" => None,
        "runtime/default" => Some(SecurityProfile::RuntimeDefault),
        "unconfined" => Some(SecurityProfile::Unconfined),
        other => {
            Some(SecurityProfile::Localhost(other.strip_prefix("localhost/").unwrap_or(other).to_owned()))
        }
    }
}

/// Whether a pod has an AppArmor profile that confines a container.
pub fn needs_apparmor(pod: &Pod) -> bool {
    let confines = |(key, value): (&String, &String)| {
        key.starts_with(names::node::APPARMOR_ANNOTATION) && !["", "unconfined"].contains(&&**value)
    };
    pod.metadata.annotations.iter().any(confines)
}

/// A name of a kernel parameter, with dots for its parts.
pub fn dotted_sysctl(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
