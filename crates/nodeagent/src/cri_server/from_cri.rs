//! Requests of the CRI as the runtime's types.

use super::status::missing;
use crate::runtime::cri::convert::{mode_from, mount_from, resources_from};
use crate::runtime::{
    Capabilities, ContainerConfig, ContainerLinux, Device, DnsConfig, IdMapping, LinuxSecurity,
    NamespaceOptions, PortMapping, RegistryAuth, SandboxConfig, SandboxLinux, SeLinuxOptions,
    SecurityProfile, UserNamespace,
};
use grpc::cri;
use grpc::tonic::Status;

/// Prefix of profiles that are files or names of the node, in the older fields of profiles.
const LOCALHOST: &str = "localhost/";

pub fn sandbox_config(from: Option<cri::PodSandboxConfig>) -> Result<SandboxConfig, Status> {
    let from = from.ok_or_else(|| missing("the configuration of the sandbox"))?;
    let metadata = from.metadata.ok_or_else(|| missing("the metadata of the sandbox"))?;
    let linux = from.linux.unwrap_or_default();
    Ok(SandboxConfig {
        name: metadata.name,
        uid: metadata.uid,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        hostname: from.hostname,
        log_directory: from.log_directory,
        dns: from.dns_config.map(|dns| DnsConfig {
            servers: dns.servers,
            searches: dns.searches,
            options: dns.options,
        }),
        port_mappings: from.port_mappings.into_iter().map(port_mapping).collect::<Result<_, _>>()?,
        labels: from.labels,
        annotations: from.annotations,
        linux: SandboxLinux {
            cgroup_parent: linux.cgroup_parent,
            sysctls: linux.sysctls,
            security: sandbox_security(linux.security_context.unwrap_or_default())?,
            overhead: linux.overhead.map(resources_from),
            resources: linux.resources.map(resources_from),
        },
    })
}

fn port_mapping(from: cri::PortMapping) -> Result<PortMapping, Status> {
    let port = |number: i32| {
        u16::try_from(number).map_err(|_| Status::invalid_argument(format!("invalid port {number}")))
    };
    let protocol = match cri::Protocol::try_from(from.protocol) {
        Ok(cri::Protocol::Udp) => "UDP",
        Ok(cri::Protocol::Sctp) => "SCTP",
        _ => "TCP",
    };
    Ok(PortMapping {
        protocol: protocol.to_owned(),
        container_port: port(from.container_port)?,
        host_port: port(from.host_port)?,
        host_ip: from.host_ip,
    })
}

fn sandbox_security(from: cri::LinuxSandboxSecurityContext) -> Result<LinuxSecurity, Status> {
    Ok(LinuxSecurity {
        namespaces: namespaces(from.namespace_options.unwrap_or_default()),
        is_privileged: from.privileged,
        selinux: from.selinux_options.map(selinux),
        run_as_user: from.run_as_user.map(|it| it.value),
        run_as_group: from.run_as_group.map(|it| it.value),
        readonly_rootfs: from.readonly_rootfs,
        supplemental_groups: from.supplemental_groups,
        seccomp: profile(from.seccomp, &from.seccomp_profile_path)?,
        apparmor: profile(from.apparmor, "")?,
        ..LinuxSecurity::default()
    })
}

fn container_security(from: cri::LinuxContainerSecurityContext) -> Result<LinuxSecurity, Status> {
    let capabilities = from.capabilities.unwrap_or_default();
    if !capabilities.add_ambient_capabilities.is_empty() {
        return Err(Status::unimplemented("ambient capabilities are not supported"));
    }
    Ok(LinuxSecurity {
        namespaces: namespaces(from.namespace_options.unwrap_or_default()),
        is_privileged: from.privileged,
        capabilities: Capabilities {
            add: capabilities.add_capabilities,
            drop: capabilities.drop_capabilities,
        },
        selinux: from.selinux_options.map(selinux),
        run_as_user: from.run_as_user.map(|it| it.value),
        run_as_group: from.run_as_group.map(|it| it.value),
        run_as_username: from.run_as_username,
        readonly_rootfs: from.readonly_rootfs,
        supplemental_groups: from.supplemental_groups,
        no_new_privs: from.no_new_privs,
        masked_paths: from.masked_paths,
        readonly_paths: from.readonly_paths,
        seccomp: profile(from.seccomp, &from.seccomp_profile_path)?,
        apparmor: profile(from.apparmor, &from.apparmor_profile)?,
    })
}

/// A profile; clients before 1.21 give it as a text.
fn profile(from: Option<cri::SecurityProfile>, text: &str) -> Result<Option<SecurityProfile>, Status> {
    use cri::security_profile::ProfileType;
    let Some(from) = from else {
        return match text {
            "" => Ok(None),
            "runtime/default" | "docker/default" => Ok(Some(SecurityProfile::RuntimeDefault)),
            "unconfined" => Ok(Some(SecurityProfile::Unconfined)),
            _ => match text.strip_prefix(LOCALHOST) {
                Some(name) => Ok(Some(SecurityProfile::Localhost(name.to_owned()))),
                None => Err(Status::invalid_argument(format!("unknown security profile {text:?}"))),
            },
        };
    };
    match ProfileType::try_from(from.profile_type) {
        Ok(ProfileType::RuntimeDefault) => Ok(Some(SecurityProfile::RuntimeDefault)),
        Ok(ProfileType::Unconfined) => Ok(Some(SecurityProfile::Unconfined)),
        Ok(ProfileType::Localhost) => {
            let name = from.localhost_ref.strip_prefix(LOCALHOST).map(str::to_owned);
            Ok(Some(SecurityProfile::Localhost(name.unwrap_or(from.localhost_ref))))
        }
        Err(_) => Err(Status::invalid_argument("unknown type of a security profile")),
    }
}

fn selinux(from: cri::SeLinuxOption) -> SeLinuxOptions {
    SeLinuxOptions { user: from.user, role: from.role, kind: from.r#type, level: from.level }
}

fn namespaces(from: cri::NamespaceOption) -> NamespaceOptions {
    let mapping = |it: cri::IdMapping| IdMapping {
        host_id: it.host_id,
        container_id: it.container_id,
        length: it.length,
    };
    NamespaceOptions {
        network: mode_from(from.network),
        pid: mode_from(from.pid),
        ipc: mode_from(from.ipc),
        target_id: from.target_id,
        user: from.userns_options.map(|user| UserNamespace {
            mode: mode_from(user.mode),
            uids: user.uids.into_iter().map(mapping).collect(),
            gids: user.gids.into_iter().map(mapping).collect(),
        }),
    }
}

pub fn container_config(from: Option<cri::ContainerConfig>) -> Result<ContainerConfig, Status> {
    let from = from.ok_or_else(|| missing("the configuration of the container"))?;
    let metadata = from.metadata.ok_or_else(|| missing("the metadata of the container"))?;
    let image = from.image.ok_or_else(|| missing("the image of the container"))?;
    let linux = from.linux.unwrap_or_default();
    let device = |it: cri::Device| Device {
        container_path: it.container_path,
        host_path: it.host_path,
        permissions: it.permissions,
    };
    Ok(ContainerConfig {
        name: metadata.name,
        attempt: metadata.attempt,
        image: image.image,
        image_annotations: image.annotations,
        command: from.command,
        args: from.args,
        working_dir: from.working_dir,
        envs: from.envs.into_iter().map(|it| (it.key, it.value)).collect(),
        mounts: from.mounts.into_iter().map(mount_from).collect(),
        devices: from.devices.into_iter().map(device).collect(),
        labels: from.labels,
        annotations: from.annotations,
        log_path: from.log_path,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        tty: from.tty,
        linux: ContainerLinux {
            resources: resources_from(linux.resources.unwrap_or_default()),
            security: container_security(linux.security_context.unwrap_or_default())?,
        },
    })
}

pub fn auth(from: cri::AuthConfig) -> RegistryAuth {
    RegistryAuth {
        username: from.username,
        password: from.password,
        auth: from.auth,
        server_address: from.server_address,
        identity_token: from.identity_token,
        registry_token: from.registry_token,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_from_either_field() {
        let text = |text: &str| profile(None, text).map_err(|it| it.message().to_owned());
        assert_eq!(text(""), Ok(None));
        assert_eq!(text("runtime/default"), Ok(Some(SecurityProfile::RuntimeDefault)));
        assert_eq!(text("localhost//a.json"), Ok(Some(SecurityProfile::Localhost("/a.json".into()))));
        assert!(text("/a.json").is_err());
        let typed = |kind: i32| {
            let from = cri::SecurityProfile { profile_type: kind, localhost_ref: "/b.json".into() };
            profile(Some(from), "unconfined").ok().flatten()
        };
        assert_eq!(typed(0), Some(SecurityProfile::RuntimeDefault));
        assert_eq!(typed(1), Some(SecurityProfile::Unconfined));
        assert_eq!(typed(2), Some(SecurityProfile::Localhost("/b.json".into())));
        assert_eq!(typed(3), None);
    }

    #[test]
    fn requests_without_their_parts_are_refused() {
        assert!(sandbox_config(None).is_err());
        assert!(sandbox_config(Some(cri::PodSandboxConfig::default())).is_err());
        assert!(container_config(Some(cri::ContainerConfig::default())).is_err());
        let port = cri::PortMapping { container_port: 70_000, ..Default::default() };
        assert!(port_mapping(port).is_err());
    }
}
