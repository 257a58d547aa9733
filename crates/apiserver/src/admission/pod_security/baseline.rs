//! The checks of the level `baseline`.

use super::pod::{Pod, Violation, context};
use super::wording::{Texts, counted, plural, quotes, setters};
use schema::Value;
use schema::problem::quoted;
use std::collections::BTreeSet;

pub fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let allowed = |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let forbidden = annotations(pod, |key| key.starts_with(&pod.keys.app_armor), allowed);
    let reason = plural("forbidden AppArmor profile", forbidden.len());
    (!forbidden.is_empty()).then(|| Violation::new(reason, forbidden.join(", ")))
}

/// Annotations whose values are not allowed: `key="value"`.
fn annotations(pod: &Pod<'_>, is: impl Fn(&str) -> bool, allowed: impl Fn(&str) -> bool) -> Vec<String> {
    let all = pod.annotations.iter().map(|(key, value)| (key, value.as_str().unwrap_or_default()));
    let wrong = all.filter(|(key, value)| is(key) && !allowed(value));
    wrong.map(|(key, value)| format!("{key}={}", quoted(value))).collect()
}

/// The default capabilities of container runtimes.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let detail = added(pod, &DEFAULT_CAPABILITIES)?;
    Some(Violation::new("non-default capabilities", detail))
}

/// Describes the added capabilities that are not allowed.
pub fn added(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let wrong = |container| {
        let added = context(container, &["capabilities", "add"]).and_then(Value::as_list).unwrap_or(&[]);
        added.iter().filter_map(Value::as_str).filter(|one| !allowed.contains(one))
    };
    let containers = pod.named(|one| wrong(one).next().is_some());
    let forbidden: Texts<'_> = pod.containers().flat_map(wrong).collect();
    (!containers.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            counted("container", &containers),
            quotes(forbidden)
        )
    })
}

pub fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let shared: Vec<_> = shared
        .filter(|field| pod.spec.at(&[field]) == Some(&Value::Bool(true)))
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| Violation::new("host namespaces", shared.join(", ")))
}

pub fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.items(&["volumes"]).iter();
    let volumes: Vec<_> = volumes
        .filter(|one| one.at(&["hostPath"]).is_some_and(|it| !it.is_null()))
        .map(|one| one.text(&["name"]))
        .collect();
    (!volumes.is_empty()).then(|| Violation::new("hostPath volumes", counted("volume", &volumes)))
}

pub fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    fn ports(container: &Value) -> impl Iterator<Item = i64> {
        let ports = container.items(&["ports"]).iter();
        ports.filter_map(|port| port.at(&["hostPort"])?.as_int()).filter(|port| *port != 0)
    }
    let containers = pod.named(|one| ports(one).next().is_some());
    // sorted as text
    let used: BTreeSet<String> = pod.containers().flat_map(ports).map(|port| port.to_string()).collect();
    (!containers.is_empty()).then(|| {
        let verb = if containers.len() == 1 { "uses" } else { "use" };
        let (noun, used) = (plural("hostPort", used.len()), used.into_iter().collect::<Vec<_>>().join(", "));
        Violation::new("hostPort", format!("{} {verb} {noun} {used}", counted("container", &containers)))
    })
}

pub fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.named(|one| context(one, &["privileged"]) == Some(&Value::Bool(true)));
    (!containers.is_empty()).then(|| {
        let subjects = counted("container", &containers);
        Violation::new("privileged", format!("{subjects} must not set securityContext.privileged=true"))
    })
}

pub fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let wrong = |container| {
        let mount = context(container, &["procMount"]).and_then(Value::as_str);
        mount.filter(|mount| *mount != "Default")
    };
    let containers = pod.named(|one| wrong(one).is_some());
    let mounts: Texts<'_> = pod.containers().filter_map(wrong).collect();
    (!containers.is_empty()).then(|| {
        let subjects = counted("container", &containers);
        Violation::new(
            "procMount",
            format!("{subjects} must not set securityContext.procMount to {}", quotes(mounts)),
        )
    })
}

pub fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    const TYPES: [&str; 4] = ["", "container_t", "container_init_t", "container_kvm_t"];
    let field = |of, field| context(of, &["seLinuxOptions", field]).and_then(Value::as_str).unwrap_or("");
    let wrong_type = |of| Some(field(of, "type")).filter(|it| !TYPES.contains(it));
    let sets = |of, name| !field(of, name).is_empty();
    let wrong = |of| wrong_type(of).is_some() || sets(of, "user") || sets(of, "role");
    let subjects = setters(wrong(pod.spec), &pod.named(wrong));
    if subjects.is_empty() {
        return None;
    }
    let all = || std::iter::once(pod.spec).chain(pod.containers());
    let types: Texts<'_> = all().filter_map(wrong_type).collect();
    let mut details = Vec::new();
    if !types.is_empty() {
        details.push(format!("{} {}", plural("type", types.len()), quotes(types)));
    }
    let set = ["user", "role"].into_iter().filter(|name| all().any(|of| sets(of, name)));
    details.extend(set.map(|name| format!("{name} may not be set")));
    let detail = format!("{subjects} set forbidden securityContext.seLinuxOptions: {}", details.join("; "));
    Some(Violation::new("seLinuxOptions", detail))
}

/// For versions before the fields existed.
pub fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = pod.keys;
    let is = |key: &str| key == keys.seccomp_pod || key.starts_with(&keys.seccomp_container);
    let allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let forbidden = annotations(pod, is, allowed);
    (!forbidden.is_empty()).then(|| {
        let detail = format!("{} {}", plural("forbidden annotation", forbidden.len()), forbidden.join(", "));
        Violation::new("seccompProfile", detail)
    })
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let wrong = |of| seccomp_type(of).filter(|it| !matches!(*it, "RuntimeDefault" | "Localhost"));
    let subjects = setters(wrong(pod.spec).is_some(), &pod.named(|one| wrong(one).is_some()));
    let types: Texts<'_> = std::iter::once(pod.spec).chain(pod.containers()).filter_map(wrong).collect();
    (!subjects.is_empty()).then(|| {
        let detail =
            format!("{subjects} must not set securityContext.seccompProfile.type to {}", quotes(types));
        Violation::new("seccompProfile", detail)
    })
}

/// The seccomp profile type of a pod spec or a container.
pub fn seccomp_type(of: &Value) -> Option<&str> {
    context(of, &["seccompProfile"])?.at(&["type"])?.as_str()
}

/// Namespaced sysctls.
const SAFE_SYSCTLS: [&str; 5] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
];

pub fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let all = pod.context(&["sysctls"]).and_then(Value::as_list).unwrap_or(&[]).iter();
    let forbidden: Vec<_> =
        all.map(|one| one.text(&["name"])).filter(|name| !SAFE_SYSCTLS.contains(name)).collect();
    (!forbidden.is_empty()).then(|| Violation::new("forbidden sysctls", forbidden.join(", ")))
}

pub fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is = |of: &Value| context(of, &["windowsOptions", "hostProcess"]) == Some(&Value::Bool(true));
    let subjects = setters(is(pod.spec), &pod.named(is));
    (!subjects.is_empty()).then(|| {
        let detail = format!("{subjects} must not set securityContext.windowsOptions.hostProcess=true");
        Violation::new("hostProcess", detail)
    })
}
