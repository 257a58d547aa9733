//! `config.json` of an OCI bundle, from the specification by which this program makes containers itself. Pure,
//! except for a look at the most files that a process may open.

use super::super::seccomp::oci_profile;
use super::super::users::ResolvedUser;
use crate::containers::devices::{DeviceRule, device_rules};
use crate::containers::process_spec::{capability_names, is_usual_device};
use crate::containers::spec::{DeviceSpec, MountPropagation, MountSpec, OciContainer, ProcessSpec, RootSpec};
use serde_json::{Value, json};

const VERSION: &str = "1.0.2";

pub fn config(
    oci: &OciContainer,
    spec: &ProcessSpec,
    root: &RootSpec,
    user: &ResolvedUser,
) -> Result<Value, String> {
    let mut namespaces = vec![json!({"type": "mount"}), json!({"type": "cgroup"})];
    namespaces.extend(oci.has_own_pids.then(|| json!({"type": "pid"})));
    namespaces.extend(oci.namespaces.iter().map(|(kind, path)| json!({"type": kind, "path": path})));
    let devices: Vec<_> = root.devices.iter().filter(|it| !is_usual_device(&it.path)).map(device).collect();
    let mut linux = json!({
        "namespaces": namespaces,
        "cgroupsPath": oci.cgroup,
        "devices": devices,
        "maskedPaths": root.masked_paths,
        "readonlyPaths": root.readonly_paths,
        "resources": {"devices": resource_rules(root)},
        "rootfsPropagation": propagation(root),
    });
    if let Some(profile) = oci_profile(&spec.seccomp, spec.capabilities)? {
        linux["seccomp"] = profile;
    }
    Ok(json!({
        "ociVersion": VERSION,
        "process": process(spec, user),
        "root": {"path": root.directory, "readonly": root.is_readonly},
        "mounts": mounts(root),
        "linux": linux,
    }))
}

/// The process of a container, or one that is executed in it.
pub fn process(spec: &ProcessSpec, user: &ResolvedUser) -> Value {
    let capabilities = capability_names(spec.capabilities);
    let mut value = json!({
        "terminal": spec.tty,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": user.groups},
        "args": spec.args,
        "env": spec.env,
        "cwd": spec.cwd,
        "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
        "noNewPrivileges": spec.no_new_privs,
    });
    if let Some(profile) = &spec.apparmor {
        value["apparmorProfile"] = json!(profile);
    }
    if let Some(score) = spec.oom_score_adj {
        value["oomScoreAdj"] = json!(score);
    }
    if let Some(files) = spec.open_files {
        // runtimes in Go raise their own limit, and some hand that on
        let hard = process_start::maximum_open_files().unwrap_or(u64::MAX);
        value["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": files.min(hard), "hard": hard}]);
    }
    value
}

/// Mounts reach the container, and those of a bidirectional volume leave it.
fn propagation(root: &RootSpec) -> &'static str {
    match root.mounts.iter().any(|it| it.propagation == MountPropagation::Bidirectional) {
        true => "rshared",
        false => "rslave",
    }
}

fn mounts(root: &RootSpec) -> Vec<Value> {
    let mount = |target: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": source, "options": options});
    let with = |options: &[&'static str]| {
        let access = if root.is_privileged { "rw" } else { "ro" };
        [options, &[access]].concat()
    };
    let pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    let shm = ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"];
    let mut found = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", "devpts", &pts),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &with(&["nosuid", "noexec", "nodev"])),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &with(&["nosuid", "noexec", "nodev", "relatime"])),
    ];
    found.push(match &root.shm {
        Some(path) => mount("/dev/shm", "bind", &path.display().to_string(), &["rbind", "rprivate"]),
        None => mount("/dev/shm", "tmpfs", "shm", &shm),
    });
    found.extend(root.mounts.iter().map(volume));
    found
}

fn volume(mount: &MountSpec) -> Value {
    let propagation = match mount.propagation {
        MountPropagation::Private => "rprivate",
        MountPropagation::HostToContainer => "rslave",
        MountPropagation::Bidirectional => "rshared",
    };
    let access = if mount.is_readonly { "ro" } else { "rw" };
    let options = ["rbind", propagation, access];
    json!({"destination": mount.target, "type": "bind", "source": mount.source, "options": options})
}

fn device(device: &DeviceSpec) -> Value {
    json!({
        "path": device.path,
        "type": if device.is_block { "b" } else { "c" },
        "major": device.major,
        "minor": device.minor,
        "fileMode": device.mode,
        "uid": device.uid,
        "gid": device.gid,
    })
}

/// The rules of the container's devices.
fn resource_rules(root: &RootSpec) -> Vec<Value> {
    if root.is_privileged {
        return vec![json!({"allow": true, "access": "rwm"})];
    }
    let allow = |rule: &DeviceRule| {
        let kind = if rule.is_block { "b" } else { "c" };
        let mut value = json!({"allow": true, "type": kind, "access": rule.access});
        for (name, number) in [("major", rule.major), ("minor", rule.minor)] {
            if let Some(number) = number {
                value[name] = json!(number);
            }
        }
        value
    };
    let refused = json!({"allow": false, "access": "rwm"});
    std::iter::once(refused).chain(device_rules(root).iter().map(allow)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::spec::Seccomp;

    #[test]
    fn a_bundle_has_the_namespaces_and_rights_of_the_container() {
        let oci = OciContainer {
            cgroup: "/pod/c".into(),
            has_own_pids: true,
            namespaces: vec![("network".into(), "/proc/7/ns/net".into())],
            ..OciContainer::default()
        };
        let spec = ProcessSpec {
            args: vec!["sh".into()],
            capabilities: 1 | 1 << 10,
            seccomp: Seccomp::Default,
            ..ProcessSpec::default()
        };
        let volume = MountSpec {
            source: "/a".into(),
            target: "/b".into(),
            is_readonly: true,
            propagation: MountPropagation::Bidirectional,
        };
        let root = RootSpec { mounts: vec![volume], ..RootSpec::default() };
        let user = ResolvedUser { uid: 5, gid: 6, groups: vec![6], home: "/".into() };
        let found = config(&oci, &spec, &root, &user).unwrap();
        let namespaces = json!([{"type": "mount"}, {"type": "cgroup"}, {"type": "pid"},
            {"type": "network", "path": "/proc/7/ns/net"}]);
        assert_eq!(found["linux"]["namespaces"], namespaces);
        assert_eq!(found["linux"]["rootfsPropagation"], "rshared");
        assert_eq!(
            found["process"]["capabilities"]["bounding"],
            json!(["CAP_CHOWN", "CAP_NET_BIND_SERVICE"])
        );
        assert_eq!(found["process"]["user"], json!({"uid": 5, "gid": 6, "additionalGids": [6]}));
        let mounts = found["mounts"].as_array().unwrap();
        assert_eq!(mounts.last().unwrap()["options"], json!(["rbind", "rshared", "ro"]));
        assert_eq!(found["linux"]["seccomp"]["defaultAction"], "SCMP_ACT_ERRNO");
        assert_eq!(found["linux"]["resources"]["devices"][0], json!({"allow": false, "access": "rwm"}));
    }
}
