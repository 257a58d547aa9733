//! The configuration of a container.

use crate::container::environment::{EnvironmentSources, environment};
use crate::container::error::ContainerConfigError;
use crate::container::expansion::{expand, lookup};
use crate::container::mounts::{MountSources, container_mounts, volume_devices};
use crate::container::node_facts::NodeFacts;
use crate::container::resources::container_resources;
use crate::container::security::{ImageUser, container_security, verify_non_root};
use crate::downward::Addresses;
use crate::filesystem::Filesystem;
use crate::objects::ObjectSource;
use crate::resource_managers::ContainerResources;
use crate::runtime::{ContainerConfig, ContainerLinux, ImageInfo};
use crate::volumes::mounts::PodMounts;
use api::core::v1::{Container, Pod};
use api::to_json;
use client::Note;
use env::World;
use names::node::{
    CONTAINER_HASH, CONTAINER_NAME, CONTAINER_PORTS, CONTAINER_PRE_STOP_HANDLER, CONTAINER_RESTART_COUNT,
    CONTAINER_TERMINATION_MESSAGE_PATH, CONTAINER_TERMINATION_MESSAGE_POLICY, POD_DELETION_GRACE_PERIOD,
    POD_NAME, POD_NAMESPACE, POD_TERMINATION_GRACE_PERIOD, POD_UID,
};
use std::collections::BTreeMap;

const LOG_DIR_MODE: u32 = 0o755;

/// A container to make.
pub struct ContainerRequest<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub restart_count: u32,
    /// The hash of the container's spec, by which the agent sees that it changed.
    pub hash: &'a str,
    pub pod_ips: &'a [String],
    /// The reference of the image for the runtime, and the image itself.
    pub image_ref: &'a str,
    pub image: &'a ImageInfo,
    /// The id of the container whose processes an ephemeral container sees.
    pub target_id: Option<&'a str>,
    pub volumes: &'a PodMounts,
    /// CPUs, memory and devices that belong to the container.
    pub resources: &'a ContainerResources,
}

/// What configurations depend on besides their containers.
#[derive(Clone, Copy)]
pub struct ConfigSources<'a> {
    pub node: &'a NodeFacts,
    pub objects: &'a dyn ObjectSource,
    pub filesystem: &'a dyn Filesystem,
    pub world: &'a World,
}

/// Makes the configuration of a container, with the files and mounts that it needs, and events about its pod.
pub async fn container_config(
    request: &ContainerRequest<'_>,
    sources: ConfigSources<'_>,
) -> Result<(ContainerConfig, Vec<Note>), ContainerConfigError> {
    let ContainerRequest { pod, container, .. } = *request;
    let node = sources.node;
    let host_ips = [node.host_ip.clone()];
    let pod_ips = match pod.spec.host_network && request.pod_ips.is_empty() {
        true => &host_ips,
        false => request.pod_ips,
    };
    let addresses = Addresses { host_ip: &node.host_ip, pod_ips };
    let env_sources = EnvironmentSources {
        objects: sources.objects,
        addresses,
        allocatable: &node.allocatable,
        master_namespace: &node.master_namespace,
    };
    let environment = environment(pod, container, env_sources).await?;
    let devices = &request.resources.devices;
    // the container's own variables win over those of its devices
    let mut envs = devices.envs.clone();
    envs.extend(environment.variables);
    let mount_sources =
        MountSources { pod, pod_ips, volumes: request.volumes, filesystem: sources.filesystem, node };
    let mut mounts = devices.mounts.clone();
    mounts.extend(container_mounts(&mount_sources, container, &envs, env::random_u64(sources.world))?);
    let mut device_list = volume_devices(request.volumes, container)?;
    device_list.extend(devices.devices.iter().cloned());
    let user = ImageUser::new(request.image.uid, &request.image.username);
    verify_non_root(pod, container, &user)?;
    let security = container_security(pod, container, &user, request.target_id, node)?;
    let meta = &pod.metadata;
    let log_dir = node.pod_log_dir(&meta.namespace, &meta.name, &meta.uid).join(&container.name);
    let made = sources.filesystem.create_dir_all(&log_dir, LOG_DIR_MODE);
    made.map_err(|error| {
        ContainerConfigError::new(format!(
            "create container log directory for container {} failed: {error}",
            container.name
        ))
    })?;
    let variables: BTreeMap<String, String> = envs.iter().cloned().collect();
    let expanded = |texts: &[String]| {
        texts.iter().map(|text| expand(text, |name| lookup(name, &[&variables]))).collect::<Vec<_>>()
    };
    let mut resources = container_resources(pod, container, node);
    request.resources.apply(&mut resources);
    let config = ContainerConfig {
        name: container.name.clone(),
        attempt: request.restart_count,
        image: request.image_ref.to_owned(),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone(),
        mounts,
        devices: device_list,
        labels: labels(pod, container),
        annotations: annotations(request),
        log_path: format!("{}/{}.log", container.name, request.restart_count),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: ContainerLinux { resources, security },
        envs,
        ..ContainerConfig::default()
    };
    Ok((config, environment.notes))
}

fn labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let meta = &pod.metadata;
    let entries = [
        (POD_NAME, &meta.name),
        (POD_NAMESPACE, &meta.namespace),
        (POD_UID, &meta.uid),
        (CONTAINER_NAME, &container.name),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

/// What the agent must know about a container when it no longer has its pod.
fn annotations(request: &ContainerRequest<'_>) -> BTreeMap<String, String> {
    let ContainerRequest { pod, container, .. } = *request;
    let json = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let mut annotations = request.resources.devices.annotations.clone();
    let mut add = |key: &str, value: String| drop(annotations.insert(key.to_owned(), value));
    add(CONTAINER_HASH, request.hash.to_owned());
    add(CONTAINER_RESTART_COUNT, request.restart_count.to_string());
    add(CONTAINER_TERMINATION_MESSAGE_PATH, container.termination_message_path.clone());
    add(CONTAINER_TERMINATION_MESSAGE_POLICY, container.termination_message_policy.clone());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        add(POD_DELETION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(seconds) = pod.spec.termination_grace_period_seconds {
        add(POD_TERMINATION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(hook) = container.lifecycle.as_ref().and_then(|it| it.pre_stop.as_deref()) {
        add(CONTAINER_PRE_STOP_HANDLER, json(to_json(hook)));
    }
    if !container.ports.is_empty() {
        add(CONTAINER_PORTS, json(to_json(&container.ports)));
    }
    annotations
}

#[cfg(test)]
mod tests;
