//! The process of a container, from its configuration and its image. Pure, except for a look at device files.

use super::spec::{
    DeviceSpec, MountPropagation, MountSpec, PidMode, ProcessSpec, RootSpec, Seccomp, UserSpec,
};
use crate::images::ImageConfig;
use crate::{
    Capabilities, ContainerConfig, LinuxSecurity, NamespaceMode, Propagation, RuntimeCode, RuntimeError,
    SandboxConfig, SecurityProfile,
};
use rustix::fs::{FileType, major, minor, stat};
use std::path::{Path, PathBuf};

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Capabilities by their number.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];
/// Capabilities of a container that names none.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];
/// Devices of every container.
const DEVICES: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

fn invalid(message: String) -> RuntimeError {
    RuntimeError::new(RuntimeCode::InvalidArgument, message)
}

/// Bits of the capabilities of a container.
pub fn capabilities(security: &LinuxSecurity) -> u64 {
    let all = (1u64 << CAPABILITIES.len()) - 1;
    if security.is_privileged {
        return all;
    }
    // a name that is unknown, or has the prefix `CAP_`, adds nothing, as with other runtimes
    let bit = |name: &str| {
        let found = CAPABILITIES.iter().position(|it| it.eq_ignore_ascii_case(name));
        found.map_or(0, |it| 1u64 << it)
    };
    let has_all = |names: &[String]| names.iter().any(|it| it.eq_ignore_ascii_case("ALL"));
    let sum = |names: &[String]| names.iter().fold(0, |sum, it| sum | bit(it));
    let Capabilities { add, drop } = &security.capabilities;
    let mut found = if has_all(add) { all } else { sum(&DEFAULT.map(str::to_owned)) };
    if has_all(drop) {
        found = 0;
    }
    found |= sum(add);
    // a capability is dropped in any spelling
    let dropped: Vec<_> =
        drop.iter().map(|it| it.to_uppercase().trim_start_matches("CAP_").to_owned()).collect();
    found & !sum(&dropped)
}

/// The names of capabilities, as of the OCI.
pub fn capability_names(bits: u64) -> Vec<String> {
    let names = CAPABILITIES.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
    names.map(|(_, name)| format!("CAP_{name}")).collect()
}

/// Whether every container has this device.
pub fn is_usual_device(path: &str) -> bool {
    DEVICES.iter().any(|it| it.0 == path)
}

/// The host name of a sandbox: without one of its own it has that of the machine.
pub fn hostname(sandbox: &SandboxConfig) -> String {
    match sandbox.hostname.is_empty() {
        true => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        false => sandbox.hostname.clone(),
    }
}

/// The process without its filesystem.
pub fn process(
    config: &ContainerConfig,
    sandbox: &SandboxConfig,
    image: &ImageConfig,
) -> Result<ProcessSpec, RuntimeError> {
    let run = &image.config;
    let args = match (config.command.is_empty(), config.args.is_empty()) {
        (false, _) => [&config.command[..], &config.args].concat(),
        (true, false) => [&run.entrypoint[..], &config.args].concat(),
        (true, true) => [&run.entrypoint[..], &run.cmd].concat(),
    };
    if args.is_empty() {
        return Err(invalid("no command specified".to_owned()));
    }
    let mut env = vec![PATH.to_owned(), format!("HOSTNAME={}", hostname(sandbox))];
    env.extend(config.tty.then(|| "TERM=xterm".to_owned()));
    env.extend(run.env.iter().cloned());
    env.extend(config.envs.iter().map(|(name, value)| format!("{name}={value}")));
    let security = &config.linux.security;
    let cwd = [&config.working_dir, &run.working_dir].into_iter().find(|it| !it.is_empty());
    Ok(ProcessSpec {
        args,
        env,
        cwd: cwd.map_or("/", String::as_str).to_owned(),
        user: user(security, &run.user)?,
        capabilities: capabilities(security),
        no_new_privs: security.no_new_privs,
        seccomp: seccomp(security)?,
        apparmor: apparmor(security)?,
        oom_score_adj: Some(config.linux.resources.oom_score_adj),
        open_files: None,
        cgroups: Vec::new(),
        tty: config.tty,
        root: None,
    })
}

fn user(security: &LinuxSecurity, image_user: &str) -> Result<UserSpec, RuntimeError> {
    let number = |it: i64| u32::try_from(it).map_err(|_| invalid(format!("invalid user or group {it}")));
    let user = match (security.run_as_user, security.run_as_username.as_str()) {
        (Some(uid), _) => number(uid)?.to_string(),
        (None, "") => image_user.to_owned(),
        (None, name) => name.to_owned(),
    };
    let has_user = security.run_as_user.is_some() || !security.run_as_username.is_empty();
    if security.run_as_group.is_some() && !has_user {
        return Err(invalid("a group is specified without a user".to_owned()));
    }
    Ok(UserSpec {
        user,
        group: security.run_as_group.map(number).transpose()?,
        supplemental: security.supplemental_groups.iter().map(|it| number(*it)).collect::<Result<_, _>>()?,
    })
}

fn seccomp(security: &LinuxSecurity) -> Result<Seccomp, RuntimeError> {
    match &security.seccomp {
        _ if security.is_privileged => Ok(Seccomp::Unconfined),
        None | Some(SecurityProfile::Unconfined) => Ok(Seccomp::Unconfined),
        Some(SecurityProfile::RuntimeDefault) => Ok(Seccomp::Default),
        Some(SecurityProfile::Localhost(path)) => {
            let text = std::fs::read_to_string(path)
                .map_err(|why| invalid(format!("cannot load seccomp profile {path:?}: {why}")))?;
            super::init::seccomp::check_profile(&text).map_err(invalid)?;
            Ok(Seccomp::Profile(text))
        }
    }
}

fn apparmor(security: &LinuxSecurity) -> Result<Option<String>, RuntimeError> {
    let is_enabled =
        std::fs::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|it| it.starts_with(b"Y"));
    match &security.apparmor {
        Some(SecurityProfile::Localhost(_)) if !is_enabled => {
            Err(invalid("apparmor is not supported".to_owned()))
        }
        Some(SecurityProfile::Localhost(profile)) if !security.is_privileged => Ok(Some(profile.clone())),
        _ => Ok(None),
    }
}

/// The process namespace of a container.
pub fn pid_mode(security: &LinuxSecurity) -> PidMode {
    match security.namespaces.pid {
        NamespaceMode::Container => PidMode::Private,
        NamespaceMode::Pod => PidMode::Pod,
        NamespaceMode::Node => PidMode::Host,
        NamespaceMode::Target => PidMode::Target(security.namespaces.target_id.clone()),
    }
}

/// The filesystem of a container without its layers.
pub fn root(
    config: &ContainerConfig,
    files: &[(PathBuf, &str)],
    shm: Option<PathBuf>,
    controllers: &[String],
) -> Result<RootSpec, RuntimeError> {
    let security = &config.linux.security;
    let mount = |it: &crate::Mount| MountSpec {
        source: it.host_path.clone().into(),
        target: it.container_path.clone(),
        is_readonly: it.is_readonly,
        propagation: match it.propagation {
            Propagation::Private => MountPropagation::Private,
            Propagation::HostToContainer => MountPropagation::HostToContainer,
            Propagation::Bidirectional => MountPropagation::Bidirectional,
        },
    };
    let is_given = |path: &str| config.mounts.iter().any(|it| it.container_path == path);
    let own = files.iter().filter(|(_, target)| !is_given(target));
    let own = own.map(|(source, target)| MountSpec {
        source: source.clone(),
        target: (*target).to_owned(),
        is_readonly: security.readonly_rootfs,
        propagation: MountPropagation::Private,
    });
    let mut mounts: Vec<_> = own.chain(config.mounts.iter().map(mount)).collect();
    sort_mounts(&mut mounts);
    let (masked_paths, readonly_paths) = match security.is_privileged {
        true => (Vec::new(), Vec::new()),
        false => (security.masked_paths.clone(), security.readonly_paths.clone()),
    };
    Ok(RootSpec {
        is_readonly: security.readonly_rootfs,
        is_privileged: security.is_privileged,
        shm: shm.filter(|_| !is_given("/dev/shm")),
        mounts,
        devices: devices(config)?,
        masked_paths,
        readonly_paths,
        cgroup_controllers: controllers.to_vec(),
        ..RootSpec::default()
    })
}

/// A mount inside of another one comes after it.
pub fn sort_mounts(mounts: &mut [MountSpec]) {
    mounts.sort_by_key(|it| it.target.split('/').filter(|it| !it.is_empty()).count());
}

fn devices(config: &ContainerConfig) -> Result<Vec<DeviceSpec>, RuntimeError> {
    let usual = |(path, major, minor): &(&str, u32, u32)| DeviceSpec {
        path: (*path).to_owned(),
        major: *major,
        minor: *minor,
        mode: 0o666,
        permissions: "rwm".to_owned(),
        ..DeviceSpec::default()
    };
    let mut found: Vec<_> = DEVICES.iter().map(usual).collect();
    for device in &config.devices {
        let described = device_of(Path::new(&device.host_path), &device.container_path)
            .ok_or_else(|| invalid(format!("{} is not a device", device.host_path)))?;
        found.push(DeviceSpec { permissions: device.permissions.clone(), ..described });
    }
    if config.linux.security.is_privileged {
        add_host_devices(Path::new("/dev"), &mut found);
    }
    Ok(found)
}

fn device_of(host: &Path, target: &str) -> Option<DeviceSpec> {
    let found = stat(host).ok()?;
    let is_block = match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => true,
        FileType::CharacterDevice => false,
        _ => return None,
    };
    Some(DeviceSpec {
        path: target.to_owned(),
        is_block,
        major: major(found.st_rdev),
        minor: minor(found.st_rdev),
        mode: found.st_mode & 0o777,
        uid: found.st_uid,
        gid: found.st_gid,
        permissions: "rwm".to_owned(),
    })
}

/// All devices of the machine, except terminals and what a container has its own of.
fn add_host_devices(folder: &Path, found: &mut Vec<DeviceSpec>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let is_own = ["pts", "shm", "fd", "mqueue", "console", "ptmx"].iter().any(|it| name == *it);
        let kind = entry.file_type();
        if is_own || kind.as_ref().is_ok_and(|it| it.is_symlink()) {
            continue;
        }
        if kind.is_ok_and(|it| it.is_dir()) {
            add_host_devices(&path, found);
        } else if let Some(device) = path.to_str().and_then(|target| device_of(&path, target))
            && !found.iter().any(|it| it.path == device.path)
        {
            found.push(device);
        }
    }
}

/// The number of a stop signal: `SIGTERM`, `TERM` or `15`.
pub fn signal_number(name: &str) -> i32 {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let plain = name.to_uppercase();
    let plain = plain.strip_prefix("SIG").unwrap_or(&plain);
    let named = NAMES.iter().position(|it| *it == plain).map(|it| it as i32 + 1);
    named.or_else(|| plain.parse().ok().filter(|it| (1..=31).contains(it))).unwrap_or(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn security(add: &[&str], drop: &[&str]) -> LinuxSecurity {
        let list = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        LinuxSecurity {
            capabilities: Capabilities { add: list(add), drop: list(drop) },
            ..LinuxSecurity::default()
        }
    }

    #[test]
    fn capabilities_are_added_and_dropped() {
        let bits = |add: &[&str], drop: &[&str]| capabilities(&security(add, drop));
        assert_eq!(bits(&[], &[]), 0xa804_25fb);
        assert_eq!(bits(&[], &["ALL"]), 0);
        assert_eq!(bits(&["NET_BIND_SERVICE"], &["all"]), 1 << 10);
        assert_eq!(bits(&["ALL"], &["CAP_SYS_ADMIN"]), ((1 << 41) - 1) & !(1 << 21));
        assert_eq!(bits(&["FLY", "CAP_NET_ADMIN", "net_admin"], &[]), 0xa804_25fb | 1 << 12);
    }

    #[test]
    fn commands_come_from_the_container_or_the_image() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut image = ImageConfig::default();
        (image.config.entrypoint, image.config.cmd) = (words("entry"), words("cmd"));
        image.config.env = words("A=1 B=2");
        image.config.user = "app".to_owned();
        let run = |command: &str, args: &str| {
            let config = ContainerConfig {
                command: words(command),
                args: words(args),
                envs: vec![("B".into(), "3".into())],
                ..ContainerConfig::default()
            };
            process(&config, &SandboxConfig::default(), &image).unwrap()
        };
        assert_eq!(run("", "").args, ["entry", "cmd"]);
        assert_eq!(run("", "x y").args, ["entry", "x", "y"]);
        assert_eq!(run("c", "").args, ["c"]);
        let found = run("c", "d");
        assert_eq!((found.args.join(" "), found.user.user), ("c d".to_owned(), "app".to_owned()));
        assert!(found.env.ends_with(&words("A=1 B=2 B=3")));
        let empty = process(&ContainerConfig::default(), &SandboxConfig::default(), &ImageConfig::default());
        assert!(empty.is_err());
    }

    #[test]
    fn stop_signals_have_names_and_numbers() {
        assert_eq!([signal_number("SIGINT"), signal_number("quit"), signal_number("9")], [2, 3, 9]);
        assert_eq!([signal_number(""), signal_number("SIGNOPE"), signal_number("77")], [15, 15, 15]);
    }
}
