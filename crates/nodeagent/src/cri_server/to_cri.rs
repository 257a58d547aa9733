//! States of the runtime as messages of the CRI.

use crate::runtime::cri::convert::{mount, namespaces, resources};
use crate::runtime::{
    ContainerInfo, ContainerState, ContainerStatus, FilesystemStats, ImageInfo, SandboxInfo, SandboxStatus,
};
use grpc::cri;

fn image_spec(image: String) -> cri::ImageSpec {
    cri::ImageSpec { image, ..cri::ImageSpec::default() }
}

fn sandbox_state(is_ready: bool) -> i32 {
    match is_ready {
        true => cri::PodSandboxState::SandboxReady as i32,
        false => cri::PodSandboxState::SandboxNotready as i32,
    }
}

pub fn container_state(state: ContainerState) -> i32 {
    let state = match state {
        ContainerState::Created => cri::ContainerState::ContainerCreated,
        ContainerState::Running => cri::ContainerState::ContainerRunning,
        ContainerState::Exited => cri::ContainerState::ContainerExited,
        ContainerState::Unknown => cri::ContainerState::ContainerUnknown,
    };
    state as i32
}

pub fn sandbox_metadata(info: &SandboxInfo) -> cri::PodSandboxMetadata {
    cri::PodSandboxMetadata {
        name: info.name.clone(),
        uid: info.uid.clone(),
        namespace: info.namespace.clone(),
        attempt: info.attempt,
    }
}

pub fn sandbox(info: SandboxInfo) -> cri::PodSandbox {
    cri::PodSandbox {
        metadata: Some(sandbox_metadata(&info)),
        id: info.id,
        state: sandbox_state(info.is_ready),
        created_at: info.created_at,
        labels: info.labels,
        annotations: info.annotations,
        runtime_handler: info.handler,
    }
}

pub fn sandbox_status(status: SandboxStatus) -> cri::PodSandboxStatus {
    let SandboxStatus { info, ips, namespaces: options } = status;
    let mut ips = ips.into_iter();
    let network = cri::PodSandboxNetworkStatus {
        ip: ips.next().unwrap_or_default(),
        additional_ips: ips.map(|ip| cri::PodIp { ip }).collect(),
    };
    let namespaces = cri::Namespace { options: Some(namespaces(&options)) };
    cri::PodSandboxStatus {
        metadata: Some(sandbox_metadata(&info)),
        id: info.id,
        state: sandbox_state(info.is_ready),
        created_at: info.created_at,
        network: Some(network),
        linux: Some(cri::LinuxPodSandboxStatus { namespaces: Some(namespaces) }),
        labels: info.labels,
        annotations: info.annotations,
        runtime_handler: info.handler,
    }
}

pub fn container(info: ContainerInfo) -> cri::Container {
    cri::Container {
        id: info.id,
        pod_sandbox_id: info.sandbox_id,
        metadata: Some(cri::ContainerMetadata { name: info.name, attempt: info.attempt }),
        image: Some(image_spec(info.image)),
        image_ref: info.image_ref,
        state: container_state(info.state),
        created_at: info.created_at,
        labels: info.labels,
        annotations: info.annotations,
    }
}

pub fn container_status(status: ContainerStatus) -> cri::ContainerStatus {
    let resources = status.resources.map(|it| cri::ContainerResources { linux: Some(resources(&it)) });
    cri::ContainerStatus {
        id: status.id,
        metadata: Some(cri::ContainerMetadata { name: status.name, attempt: status.attempt }),
        state: container_state(status.state),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        image: Some(image_spec(status.image)),
        image_ref: status.image_ref,
        reason: status.reason,
        message: status.message,
        labels: status.labels,
        annotations: status.annotations,
        mounts: status.mounts.iter().map(mount).collect(),
        log_path: status.log_path,
        resources,
    }
}

pub fn image(info: ImageInfo) -> cri::Image {
    let name = info.tags.first().or(info.digests.first()).cloned();
    cri::Image {
        spec: Some(image_spec(name.unwrap_or_else(|| info.id.clone()))),
        id: info.id,
        repo_tags: info.tags,
        repo_digests: info.digests,
        size: info.size,
        uid: info.uid.map(|value| cri::Int64Value { value }),
        username: info.username,
        pinned: info.is_pinned,
    }
}

pub fn number(value: Option<u64>) -> Option<cri::UInt64Value> {
    value.map(|value| cri::UInt64Value { value })
}

pub fn filesystem(stats: FilesystemStats) -> cri::FilesystemUsage {
    cri::FilesystemUsage {
        timestamp: stats.timestamp,
        fs_id: Some(cri::FilesystemIdentifier { mountpoint: stats.mountpoint }),
        used_bytes: number(stats.used_bytes),
        inodes_used: number(stats.inodes_used),
    }
}
