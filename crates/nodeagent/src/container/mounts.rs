//! The mounts of a container: its volumes, its hosts file, the file of its termination message.

use super::error::ContainerConfigError;
use super::expansion::expand_sub_path;
use super::hostname::hostname_and_domain;
use super::hosts;
use super::node_facts::NodeFacts;
use crate::filesystem::Filesystem;
use crate::runtime::{Device, Mount, Propagation};
use crate::volumes::mounts::PodMounts;
use crate::volumes::subpath::{self, SubPath};
use api::core::v1::{Container, Pod, VolumeMount};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const CONTAINER_DIR_MODE: u32 = 0o750;
const HOSTS_MODE: u32 = 0o644;
const TERMINATION_LOG_MODE: u32 = 0o666;

/// The pod whose container is mounted, and what it has on the node.
pub struct MountSources<'a> {
    pub pod: &'a Pod,
    pub pod_ips: &'a [String],
    pub volumes: &'a PodMounts,
    pub filesystem: &'a dyn Filesystem,
    pub node: &'a NodeFacts,
}

/// Makes the mounts of a container. Paths inside volumes are mounted on the node, and the hosts file is written.
/// `envs` are the variables for `subPathExpr`; `random` names the file of the termination message.
pub fn container_mounts(
    sources: &MountSources<'_>,
    container: &Container,
    envs: &[(String, String)],
    random: u64,
) -> Result<Vec<Mount>, ContainerConfigError> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        mounts.push(volume_mount(sources, container, mount, index, envs)?);
    }
    let has_own_hosts = container.volume_mounts.iter().any(|it| it.mount_path == hosts::PATH);
    if !sources.pod_ips.is_empty() && !has_own_hosts {
        mounts.push(hosts_mount(sources)?);
    }
    mounts.extend(termination_mount(sources, container, random));
    Ok(mounts)
}

/// The devices of a container that are volumes.
pub fn volume_devices(
    volumes: &PodMounts,
    container: &Container,
) -> Result<Vec<Device>, ContainerConfigError> {
    let mut devices = Vec::new();
    for device in &container.volume_devices {
        let Some(volume) = volumes.get(&device.name).filter(|it| it.is_block) else {
            let (name, container) = (&device.name, &container.name);
            return Err(format!("cannot find volume {name:?} to pass into container {container:?}").into());
        };
        devices.push(Device {
            container_path: device.device_path.clone(),
            host_path: volume.host_path.to_string_lossy().into_owned(),
            permissions: if volume.is_readonly { "r" } else { "mrw" }.to_owned(),
        });
    }
    Ok(devices)
}

fn volume_mount(
    sources: &MountSources<'_>,
    container: &Container,
    mount: &VolumeMount,
    index: usize,
    envs: &[(String, String)],
) -> Result<Mount, ContainerConfigError> {
    let Some(volume) = sources.volumes.get(&mount.name).filter(|it| !it.is_block) else {
        let (name, container) = (&mount.name, &container.name);
        return Err(format!("cannot find volume {name:?} to mount into container {container:?}").into());
    };
    let sub_path = match &*mount.sub_path_expr {
        "" => mount.sub_path.clone(),
        expression => expand_sub_path(expression, envs)?,
    };
    let host_path = match &*sub_path {
        "" => volume.host_path.clone(),
        path => mount_sub_path(sources, container, mount, index, (&volume.host_path, path))?,
    };
    let path = &mount.mount_path;
    Ok(Mount {
        container_path: if path.starts_with('/') { path.clone() } else { format!("/{path}") },
        host_path: host_path.to_string_lossy().into_owned(),
        is_readonly: mount.read_only || volume.is_readonly,
        selinux_relabel: sources.node.has_selinux && volume.is_managed,
        propagation: match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            _ => Propagation::Private,
        },
    })
}

/// Mounts a path inside a volume on the node. Errors do not name paths, which would reveal files of the node.
fn mount_sub_path(
    sources: &MountSources<'_>,
    container: &Container,
    mount: &VolumeMount,
    index: usize,
    (volume, path): (&Path, &str),
) -> Result<PathBuf, ContainerConfigError> {
    subpath::check(path)?;
    let pod_dir = sources.node.pod_dir(&sources.pod.metadata.uid);
    let target = subpath::target(&pod_dir, &mount.name, &container.name, index);
    let sub = SubPath { volume, path, target: &target };
    let of = format!("volumeMount {:?} of container {:?}", mount.name, container.name);
    subpath::make_directories(&sub, sources.filesystem).map_err(|error| {
        tracing::warn!(%error, volume = mount.name, container = container.name, "a subPath was not created");
        format!("failed to create subPath directory for {of}")
    })?;
    subpath::mount(&sub, sources.filesystem).map_err(|error| {
        tracing::warn!(%error, volume = mount.name, container = container.name, "a subPath was not mounted");
        format!("failed to prepare subPath for {of}")
    })?;
    Ok(target)
}

fn hosts_mount(sources: &MountSources<'_>) -> Result<Mount, ContainerConfigError> {
    let MountSources { pod, node, filesystem, .. } = sources;
    let (hostname, domain) = hostname_and_domain(pod, &node.dns.cluster_domain)?;
    let aliases = &pod.spec.host_aliases;
    let read = |error: std::io::Error| ContainerConfigError::new(outbound::io_text(&error));
    let text = match pod.spec.host_network {
        true => hosts::host_network_hosts(&std::fs::read_to_string(&node.hosts_file).map_err(read)?, aliases),
        false => hosts::pod_hosts(sources.pod_ips, &hostname, &domain, aliases),
    };
    let directory = node.pod_dir(&pod.metadata.uid);
    let path = directory.join(hosts::FILE);
    // containers have the file mounted: it is written in place
    let write = || {
        if std::fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        match filesystem.write(&path, text.as_bytes()) {
            // mostly the pod has its directory
            Err(error) if error.kind() == ErrorKind::NotFound => {
                filesystem.create_dir_all(&directory, CONTAINER_DIR_MODE)?;
                filesystem.write(&path, text.as_bytes())?;
            }
            written => written?,
        }
        filesystem.set_mode(&path, HOSTS_MODE)
    };
    write().map_err(read)?;
    Ok(Mount {
        container_path: hosts::PATH.to_owned(),
        host_path: path.to_string_lossy().into_owned(),
        selinux_relabel: node.has_selinux,
        ..Mount::default()
    })
}

/// The file that a container leaves its last message in. A container starts without one if it cannot be made.
fn termination_mount(sources: &MountSources<'_>, container: &Container, random: u64) -> Option<Mount> {
    if container.termination_message_path.is_empty() {
        return None;
    }
    let directory = sources.node.container_dir(&sources.pod.metadata.uid, &container.name);
    let path = directory.join(format!("{:08x}", random & 0xffff_ffff));
    let make = || {
        sources.filesystem.create_dir_all(&directory, CONTAINER_DIR_MODE)?;
        sources.filesystem.create_file(&path, TERMINATION_LOG_MODE)?;
        sources.filesystem.set_mode(&path, TERMINATION_LOG_MODE)
    };
    if let Err(error) = make() {
        tracing::warn!(%error, container = container.name, "the file of the termination message was not made");
        return None;
    }
    Some(Mount {
        container_path: container.termination_message_path.clone(),
        host_path: path.to_string_lossy().into_owned(),
        selinux_relabel: sources.node.has_selinux,
        ..Mount::default()
    })
}
