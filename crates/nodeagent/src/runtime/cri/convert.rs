//! Conversions between the runtime's types and the messages of the CRI.

use crate::runtime::config::*;
use crate::runtime::stats::{
    ContainerStats, CpuStats, FilesystemStats, InterfaceStats, MemoryStats, SandboxStats,
};
use crate::runtime::status::*;
use grpc::cri;

pub(super) fn sandbox_config(config: &SandboxConfig) -> cri::PodSandboxConfig {
    let SandboxConfig { name, uid, namespace, attempt, .. } = config;
    let metadata = cri::PodSandboxMetadata {
        name: name.clone(),
        uid: uid.clone(),
        namespace: namespace.clone(),
        attempt: *attempt,
    };
    cri::PodSandboxConfig {
        metadata: Some(metadata),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.clone(),
        dns_config: config.dns.as_ref().map(|dns| cri::DnsConfig {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        port_mappings: config.port_mappings.iter().map(port_mapping).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: config.linux.cgroup_parent.clone(),
            security_context: Some(sandbox_security(&config.linux.security)),
            sysctls: config.linux.sysctls.clone(),
            overhead: config.linux.overhead.as_ref().map(resources),
            resources: config.linux.resources.as_ref().map(resources),
        }),
    }
}

fn port_mapping(mapping: &PortMapping) -> cri::PortMapping {
    let protocol = match &*mapping.protocol {
        "UDP" => cri::Protocol::Udp,
        "SCTP" => cri::Protocol::Sctp,
        _ => cri::Protocol::Tcp,
    };
    cri::PortMapping {
        protocol: protocol as i32,
        container_port: mapping.container_port.into(),
        host_port: mapping.host_port.into(),
        host_ip: mapping.host_ip.clone(),
    }
}

fn sandbox_security(security: &LinuxSecurity) -> cri::LinuxSandboxSecurityContext {
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux),
        run_as_user: security.run_as_user.map(int64),
        run_as_group: security.run_as_group.map(int64),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        privileged: security.is_privileged,
        seccomp: security.seccomp.as_ref().map(profile),
        apparmor: security.apparmor.as_ref().map(profile),
        ..Default::default()
    }
}

fn container_security(security: &LinuxSecurity) -> cri::LinuxContainerSecurityContext {
    cri::LinuxContainerSecurityContext {
        capabilities: Some(cri::Capability {
            add_capabilities: security.capabilities.add.clone(),
            drop_capabilities: security.capabilities.drop.clone(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: security.is_privileged,
        namespace_options: Some(namespaces(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux),
        run_as_user: security.run_as_user.map(int64),
        run_as_group: security.run_as_group.map(int64),
        run_as_username: security.run_as_username.clone(),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: security.seccomp.as_ref().map(profile),
        apparmor: security.apparmor.as_ref().map(profile),
        ..Default::default()
    }
}

fn int64(value: i64) -> cri::Int64Value {
    cri::Int64Value { value }
}

fn selinux(options: &SeLinuxOptions) -> cri::SeLinuxOption {
    cri::SeLinuxOption {
        user: options.user.clone(),
        role: options.role.clone(),
        r#type: options.kind.clone(),
        level: options.level.clone(),
    }
}

fn profile(profile: &SecurityProfile) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let (kind, localhost_ref) = match profile {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SecurityProfile::Localhost(name) => (ProfileType::Localhost, name.clone()),
    };
    cri::SecurityProfile { profile_type: kind as i32, localhost_ref }
}

fn mode(mode: NamespaceMode) -> i32 {
    let mode = match mode {
        NamespaceMode::Pod => cri::NamespaceMode::Pod,
        NamespaceMode::Container => cri::NamespaceMode::Container,
        NamespaceMode::Node => cri::NamespaceMode::Node,
        NamespaceMode::Target => cri::NamespaceMode::Target,
    };
    mode as i32
}

pub(crate) fn mode_from(mode: i32) -> NamespaceMode {
    match cri::NamespaceMode::try_from(mode) {
        Ok(cri::NamespaceMode::Container) => NamespaceMode::Container,
        Ok(cri::NamespaceMode::Node) => NamespaceMode::Node,
        Ok(cri::NamespaceMode::Target) => NamespaceMode::Target,
        _ => NamespaceMode::Pod,
    }
}

pub(crate) fn namespaces(options: &NamespaceOptions) -> cri::NamespaceOption {
    let mapping = |it: &IdMapping| cri::IdMapping {
        host_id: it.host_id,
        container_id: it.container_id,
        length: it.length,
    };
    cri::NamespaceOption {
        network: mode(options.network),
        pid: mode(options.pid),
        ipc: mode(options.ipc),
        target_id: options.target_id.clone(),
        userns_options: options.user.as_ref().map(|user| cri::UserNamespace {
            mode: mode(user.mode),
            uids: user.uids.iter().map(mapping).collect(),
            gids: user.gids.iter().map(mapping).collect(),
        }),
    }
}

pub(crate) fn resources(resources: &LinuxResources) -> cri::LinuxContainerResources {
    let page = |(page_size, limit): &(String, u64)| cri::HugepageLimit {
        page_size: page_size.clone(),
        limit: *limit,
    };
    cri::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
        hugepage_limits: resources.hugepages.iter().map(page).collect(),
        unified: resources.unified.clone(),
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
    }
}

pub(crate) fn resources_from(from: cri::LinuxContainerResources) -> LinuxResources {
    LinuxResources {
        cpu_period: from.cpu_period,
        cpu_quota: from.cpu_quota,
        cpu_shares: from.cpu_shares,
        memory_limit: from.memory_limit_in_bytes,
        memory_swap_limit: from.memory_swap_limit_in_bytes,
        oom_score_adj: from.oom_score_adj,
        cpuset_cpus: from.cpuset_cpus,
        cpuset_mems: from.cpuset_mems,
        hugepages: from.hugepage_limits.into_iter().map(|it| (it.page_size, it.limit)).collect(),
        unified: from.unified,
    }
}

pub(super) fn image_spec(image: &str) -> cri::ImageSpec {
    cri::ImageSpec { image: image.to_owned(), ..cri::ImageSpec::default() }
}

pub(super) fn container_config(config: &ContainerConfig) -> cri::ContainerConfig {
    let device = |it: &Device| cri::Device {
        container_path: it.container_path.clone(),
        host_path: it.host_path.clone(),
        permissions: it.permissions.clone(),
    };
    let env = |(key, value): &(String, String)| cri::KeyValue { key: key.clone(), value: value.clone() };
    let image = cri::ImageSpec { image: config.image.clone(), annotations: config.image_annotations.clone() };
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: config.name.clone(), attempt: config.attempt }),
        image: Some(image),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: config.envs.iter().map(env).collect(),
        mounts: config.mounts.iter().map(mount).collect(),
        devices: config.devices.iter().map(device).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: config.log_path.clone(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources(&config.linux.resources)),
            security_context: Some(container_security(&config.linux.security)),
        }),
    }
}

pub(crate) fn mount(mount: &Mount) -> cri::Mount {
    let propagation = match mount.propagation {
        Propagation::Private => cri::MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => cri::MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => cri::MountPropagation::PropagationBidirectional,
    };
    cri::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.is_readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation: propagation as i32,
    }
}

pub(crate) fn mount_from(from: cri::Mount) -> Mount {
    let propagation = match cri::MountPropagation::try_from(from.propagation) {
        Ok(cri::MountPropagation::PropagationHostToContainer) => Propagation::HostToContainer,
        Ok(cri::MountPropagation::PropagationBidirectional) => Propagation::Bidirectional,
        _ => Propagation::Private,
    };
    Mount {
        container_path: from.container_path,
        host_path: from.host_path,
        is_readonly: from.readonly,
        selinux_relabel: from.selinux_relabel,
        propagation,
    }
}

pub(super) fn auth(auth: &RegistryAuth) -> cri::AuthConfig {
    cri::AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        auth: auth.auth.clone(),
        server_address: auth.server_address.clone(),
        identity_token: auth.identity_token.clone(),
        registry_token: auth.registry_token.clone(),
    }
}

fn is_ready(state: i32) -> bool {
    state == cri::PodSandboxState::SandboxReady as i32
}

pub(super) fn sandbox_info(from: cri::PodSandbox) -> SandboxInfo {
    let metadata = from.metadata.unwrap_or_default();
    SandboxInfo {
        id: from.id,
        name: metadata.name,
        uid: metadata.uid,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        is_ready: is_ready(from.state),
        created_at: from.created_at,
        labels: from.labels,
        annotations: from.annotations,
        handler: from.runtime_handler,
    }
}

pub(super) fn sandbox_status(from: cri::PodSandboxStatus) -> SandboxStatus {
    let metadata = from.metadata.unwrap_or_default();
    let network = from.network.unwrap_or_default();
    let ips = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|it| it.ip));
    let options = from.linux.and_then(|it| it.namespaces).and_then(|it| it.options).unwrap_or_default();
    SandboxStatus {
        info: SandboxInfo {
            id: from.id,
            name: metadata.name,
            uid: metadata.uid,
            namespace: metadata.namespace,
            attempt: metadata.attempt,
            is_ready: is_ready(from.state),
            created_at: from.created_at,
            labels: from.labels,
            annotations: from.annotations,
            handler: from.runtime_handler,
        },
        ips: ips.filter(|it| !it.is_empty()).collect(),
        namespaces: NamespaceOptions {
            network: mode_from(options.network),
            pid: mode_from(options.pid),
            ipc: mode_from(options.ipc),
            target_id: options.target_id,
            user: None,
        },
    }
}

fn container_state(state: i32) -> ContainerState {
    match cri::ContainerState::try_from(state) {
        Ok(cri::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(cri::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(cri::ContainerState::ContainerExited) => ContainerState::Exited,
        _ => ContainerState::Unknown,
    }
}

pub(super) fn container_info(from: cri::Container) -> ContainerInfo {
    let metadata = from.metadata.unwrap_or_default();
    ContainerInfo {
        id: from.id,
        sandbox_id: from.pod_sandbox_id,
        name: metadata.name,
        attempt: metadata.attempt,
        image: from.image.unwrap_or_default().image,
        image_ref: from.image_ref,
        state: container_state(from.state),
        created_at: from.created_at,
        labels: from.labels,
        annotations: from.annotations,
    }
}

pub(super) fn container_status(from: cri::ContainerStatus) -> ContainerStatus {
    let metadata = from.metadata.unwrap_or_default();
    ContainerStatus {
        id: from.id,
        name: metadata.name,
        attempt: metadata.attempt,
        state: container_state(from.state),
        created_at: from.created_at,
        started_at: from.started_at,
        finished_at: from.finished_at,
        exit_code: from.exit_code,
        image: from.image.unwrap_or_default().image,
        image_ref: from.image_ref,
        reason: from.reason,
        message: from.message,
        labels: from.labels,
        annotations: from.annotations,
        mounts: from.mounts.into_iter().map(mount_from).collect(),
        log_path: from.log_path,
        resources: from.resources.and_then(|it| it.linux).map(resources_from),
    }
}

pub(super) fn image_info(from: cri::Image) -> ImageInfo {
    ImageInfo {
        id: from.id,
        tags: from.repo_tags,
        digests: from.repo_digests,
        size: from.size,
        uid: from.uid.map(|it| it.value),
        username: from.username,
        is_pinned: from.pinned,
    }
}

fn number(value: Option<cri::UInt64Value>) -> Option<u64> {
    value.map(|it| it.value)
}

fn cpu(from: cri::CpuUsage) -> CpuStats {
    CpuStats {
        timestamp: from.timestamp,
        usage_core_nano_seconds: number(from.usage_core_nano_seconds),
        usage_nano_cores: number(from.usage_nano_cores),
    }
}

fn memory(from: cri::MemoryUsage) -> MemoryStats {
    MemoryStats {
        timestamp: from.timestamp,
        working_set_bytes: number(from.working_set_bytes),
        available_bytes: number(from.available_bytes),
        usage_bytes: number(from.usage_bytes),
        rss_bytes: number(from.rss_bytes),
        page_faults: number(from.page_faults),
        major_page_faults: number(from.major_page_faults),
    }
}

pub(super) fn filesystem(from: cri::FilesystemUsage) -> FilesystemStats {
    FilesystemStats {
        timestamp: from.timestamp,
        mountpoint: from.fs_id.unwrap_or_default().mountpoint,
        used_bytes: number(from.used_bytes),
        inodes_used: number(from.inodes_used),
    }
}

pub(super) fn container_stats(from: cri::ContainerStats) -> ContainerStats {
    let attributes = from.attributes.unwrap_or_default();
    let metadata = attributes.metadata.unwrap_or_default();
    ContainerStats {
        id: attributes.id,
        name: metadata.name,
        attempt: metadata.attempt,
        labels: attributes.labels,
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        writable_layer: from.writable_layer.map(filesystem),
    }
}

fn interface(from: cri::NetworkInterfaceUsage) -> InterfaceStats {
    InterfaceStats {
        name: from.name,
        rx_bytes: number(from.rx_bytes),
        rx_errors: number(from.rx_errors),
        tx_bytes: number(from.tx_bytes),
        tx_errors: number(from.tx_errors),
    }
}

pub(super) fn sandbox_stats(from: cri::PodSandboxStats) -> SandboxStats {
    let attributes = from.attributes.unwrap_or_default();
    let metadata = attributes.metadata.unwrap_or_default();
    let linux = from.linux.unwrap_or_default();
    let network = linux.network.unwrap_or_default();
    let interfaces = network.default_interface.into_iter().chain(network.interfaces);
    SandboxStats {
        id: attributes.id,
        name: metadata.name,
        uid: metadata.uid,
        namespace: metadata.namespace,
        cpu: linux.cpu.map(cpu),
        memory: linux.memory.map(memory),
        network_timestamp: network.timestamp,
        interfaces: interfaces.map(interface).collect(),
        process_count: linux.process.and_then(|it| number(it.process_count)),
        containers: linux.containers.into_iter().map(container_stats).collect(),
    }
}
