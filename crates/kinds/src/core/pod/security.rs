//! Security contexts: users and groups, seccomp, sysctls, and the fields of each operating system.

use crate::check::{self, Problems};
use crate::read;
use schema::problem::Problem;
use schema::{Path, Value};
use std::collections::HashSet;

pub(super) fn of_container(context: &Value, allow_privileged: bool, path: &Path<'_>, out: &mut Problems) {
    let privileged = read::flag(context, &["privileged"]);
    if privileged && !allow_privileged {
        out.push(Problem::forbidden(&path.field("privileged"), "disallowed by cluster policy"));
    }
    check::account_id(context, "runAsUser", path, out);
    check::account_id(context, "runAsGroup", path, out);
    if let Some(mount) = read::opt_text(context, &["procMount"]) {
        check::one_of(mount, &["Default", "Unmasked"], &path.field("procMount"), out);
    }
    seccomp(context, path, out);
    if context.at(&["allowPrivilegeEscalation"]).and_then(Value::as_bool) == Some(false) {
        if privileged {
            const WHY: &str = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            out.push(Problem::invalid(path, context, WHY));
        }
        let added = context.items(&["capabilities", "add"]);
        if added.iter().any(|it| it.as_str() == Some("CAP_SYS_ADMIN")) {
            const WHY: &str =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            out.push(Problem::invalid(path, context, WHY));
        }
    }
    windows_options(context, path, out);
}

pub(super) fn of_pod(spec: &Value, spec_path: &Path<'_>, out: &mut Problems) {
    let Some(context) = spec.at(&["securityContext"]).filter(|it| !it.is_null()) else { return };
    let path = spec_path.field("securityContext");
    if read::flag(spec, &["hostNetwork"]) {
        host_network(spec, spec_path, out);
    }
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        check::account_id(context, field, &path, out);
    }
    let groups = path.field("supplementalGroups");
    for (at, group) in context.items(&["supplementalGroups"]).iter().enumerate() {
        check::between(group.as_int().unwrap_or(0), 0, i64::from(i32::MAX), &groups.index(at), out);
    }
    if read::flag(spec, &["shareProcessNamespace"]) && read::flag(spec, &["hostPID"]) {
        const WHY: &str = "ShareProcessNamespace and HostPID cannot both be enabled";
        out.push(Problem::invalid(&path.field("shareProcessNamespace"), &Value::Bool(true), WHY));
    }
    sysctls(context.items(&["sysctls"]), &path.field("sysctls"), out);
    const POLICIES: &[&str] = &["Always", "OnRootMismatch"];
    if let Some(policy) =
        read::opt_text(context, &["fsGroupChangePolicy"]).filter(|it| !POLICIES.contains(it))
    {
        out.push(check::unsupported(&path.field("fsGroupChangePolicy"), policy, POLICIES));
    }
    seccomp(context, &path, out);
    windows_options(context, &path, out);
}

/// On the network of the host a container's port is the host's.
fn host_network(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let containers = path.field("containers");
    for (at, one) in spec.items(&["containers"]).iter().enumerate() {
        let path = containers.index(at);
        let path = path.field("ports");
        for (at, port) in one.items(&["ports"]).iter().enumerate() {
            let number = read::int(port, &["containerPort"]);
            if read::int(port, &["hostPort"]) != number {
                const WHY: &str = "must match `hostPort` when `hostNetwork` is true";
                out.push(check::invalid_int(&path.index(at).field("containerPort"), number, WHY));
            }
        }
    }
}

fn seccomp(context: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(profile) = context.at(&["seccompProfile"]).filter(|it| !it.is_null()) else { return };
    let path = path.field("seccompProfile");
    let kind = profile.text(&["type"]);
    const KINDS: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    if kind.is_empty() {
        out.push(Problem::required(&path.field("type"), "type is required when seccompProfile is set"));
    } else if !KINDS.contains(&kind) {
        out.push(check::unsupported(&path.field("type"), kind, KINDS));
    }
    let file = path.field("localhostProfile");
    match (kind == "Localhost", read::opt_text(profile, &["localhostProfile"])) {
        (true, None) => out.push(Problem::required(&file, "must be set when seccomp type is Localhost")),
        (true, Some(name)) => check::descending_path(name, &file, out),
        (false, Some(_)) => {
            out.push(Problem::invalid(&file, profile, "can only be set when seccomp type is Localhost"));
        }
        (false, None) => {}
    }
}

fn sysctls(items: &[Value], path: &Path<'_>, out: &mut Problems) {
    let mut names = HashSet::new();
    for (at, item) in items.iter().enumerate() {
        let path = path.index(at);
        let name = item.text(&["name"]);
        if name.is_empty() {
            out.push(Problem::required(&path.field("name"), ""));
        } else if !is_sysctl(name) {
            const WHY: &str = concat!(
                "must have at most 253 characters and match regex ",
                r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            out.push(Problem::invalid_text(&path.field("name"), name, WHY));
        } else if names.contains(name) {
            out.push(check::duplicate_text(&path.field("name"), name));
        }
        names.insert(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|b| plain(*b))
            && bytes.last().is_some_and(|b| plain(*b))
            && bytes.iter().all(|b| plain(*b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

fn windows_options(context: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(options) = context.at(&["windowsOptions"]).filter(|it| !it.is_null()) else { return };
    let path = path.field("windowsOptions");
    if let Some(name) = read::opt_text(options, &["gmsaCredentialSpecName"]) {
        check::subdomain(name, &path.field("gmsaCredentialSpecName"), out);
    }
    const MOST: usize = 64 << 10;
    match read::opt_text(options, &["gmsaCredentialSpec"]) {
        Some("") => {
            const WHY: &str = "gmsaCredentialSpec cannot be an empty string";
            out.push(Problem::invalid_text(&path.field("gmsaCredentialSpec"), "", WHY));
        }
        Some(spec) if spec.len() > MOST => {
            const WHY: &str = "gmsaCredentialSpec size must be under 64 KiB";
            out.push(Problem::invalid_text(&path.field("gmsaCredentialSpec"), spec, WHY));
        }
        _ => {}
    }
    let user_path = path.field("runAsUserName");
    match read::opt_text(options, &["runAsUserName"]) {
        Some("") => {
            out.push(Problem::invalid_text(&user_path, "", "runAsUserName cannot be an empty string"))
        }
        Some(user) if user.chars().any(char::is_control) => {
            out.push(Problem::invalid_text(
                &user_path,
                user,
                "runAsUserName cannot contain control characters",
            ));
        }
        Some(user) => windows_user(user, &user_path, out),
        None => {}
    }
}

/// Checks a name of the form `DOMAIN\user`, the domain being optional.
fn windows_user(text: &str, path: &Path<'_>, out: &mut Problems) {
    let mut invalid = |why: &str| out.push(Problem::invalid_text(path, text, why));
    let (domain, user) = match text.split_once('\\') {
        Some((_, user)) if user.contains('\\') => {
            return invalid("runAsUserName cannot contain more than one backslash");
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            invalid("runAsUserName's Domain length must be under 256 characters");
        }
        if !is_net_bios(domain) && !is_windows_domain(domain) {
            invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        invalid("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        invalid("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|it| r#""/\:;|=,+*?<>@[]"#.contains(it)) {
        invalid(r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
}

/// Whether a text is the NetBIOS name of a domain.
fn is_net_bios(text: &str) -> bool {
    let fits = |it: char| !r#"\/:*?"<>|"#.contains(it);
    (1..=15).contains(&text.chars().count()) && !text.starts_with('.') && text.chars().all(fits)
}

/// Whether a text is the DNS name of a domain, in either case.
fn is_windows_domain(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.split('.').map(str::as_bytes).all(|label| {
        label.len() <= 63
            && edge(label.first())
            && edge(label.last())
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    })
}

/// The operating system of a pod decides which of the options mean anything.
pub(super) fn operating_system(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(os) = spec.at(&["os"]).filter(|it| !it.is_null()) else { return };
    let os_path = path.field("os");
    match os.text(&["name"]) {
        "" => out.push(Problem::required(&os_path.field("name"), "cannot be empty")),
        "linux" => linux(spec, path, out),
        "windows" => windows(spec, path, out),
        other => out.push(check::unsupported(&os_path, other, &["linux", "windows"])),
    }
}

const CONTAINERS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

fn linux(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "windows options cannot be set for a linux pod";
    if read::has(spec, &["securityContext", "windowsOptions"]) {
        out.push(Problem::forbidden(&path.field("securityContext").field("windowsOptions"), WHY));
    }
    for list in CONTAINERS {
        let path = path.field(list);
        for (at, one) in spec.items(&[list]).iter().enumerate() {
            if read::has(one, &["securityContext", "windowsOptions"]) {
                let path = path.index(at);
                out.push(Problem::forbidden(&path.field("securityContext").field("windowsOptions"), WHY));
            }
        }
    }
}

fn windows(spec: &Value, path: &Path<'_>, out: &mut Problems) {
    const WHY: &str = "cannot be set for a windows pod";
    // whether a field of the pod itself or of its security context
    const OF_POD: &[(bool, &str)] = &[
        (false, "seLinuxOptions"),
        (true, "hostUsers"),
        (true, "hostPID"),
        (true, "hostIPC"),
        (false, "seccompProfile"),
        (false, "fsGroup"),
        (false, "fsGroupChangePolicy"),
        (false, "sysctls"),
        (true, "shareProcessNamespace"),
        (false, "runAsUser"),
        (false, "runAsGroup"),
        (false, "supplementalGroups"),
    ];
    let context = path.field("securityContext");
    for (own, field) in OF_POD {
        let (value, path) = match own {
            true => (spec.at(&[field]), path.field(field)),
            false => (spec.at(&["securityContext", field]), context.field(field)),
        };
        let given = match value {
            None | Some(Value::Null) => false,
            Some(Value::Bool(false)) => matches!(*field, "hostUsers" | "shareProcessNamespace"),
            Some(_) => true,
        };
        if given {
            out.push(Problem::forbidden(&path, WHY));
        }
    }
    const OF_CONTAINER: &[&str] = &[
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    for list in CONTAINERS {
        let path = path.field(list);
        for (at, one) in spec.items(&[list]).iter().enumerate() {
            let path = path.index(at);
            let path = path.field("securityContext");
            for field in OF_CONTAINER.iter().filter(|field| read::has(one, &["securityContext", field])) {
                out.push(Problem::forbidden(&path.field(field), WHY));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, problems};

    #[test]
    fn containers_may_not_be_privileged_unless_allowed() {
        let check = |context: &str, allowed: bool, expected: &[&str]| {
            let mut out = Problems::new();
            of_container(&json(context), allowed, &Path::ROOT.field("s"), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"{"privileged":true}"#, true, &[]);
        check(r#"{"privileged":true}"#, false, &["s.privileged: Forbidden: disallowed by cluster policy"]);
        check(
            r#"{"runAsUser":-1}"#,
            true,
            &["s.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
        );
    }

    #[test]
    fn names_of_sysctls_have_their_form() {
        let check = |name: &str, expected: bool| assert_eq!(is_sysctl(name), expected, "{name}");
        check("kernel.shm_rmid_forced", true);
        check("net/ipv4/x", true);
        check("a..b", false);
        check("-a", false);
        check("A", false);
        check("", false);
    }

    #[test]
    fn each_system_has_its_options() {
        let check = |spec: &str, expected: &[&str]| {
            let mut out = Problems::new();
            operating_system(&json(spec), &Path::ROOT.field("spec"), &mut out);
            assert_eq!(problems(&out), expected);
        };
        check(r#"{"os":{"name":"linux"},"securityContext":{"runAsUser":1}}"#, &[]);
        check(
            r#"{"os":{"name":"windows"},"hostPID":true,"securityContext":{"runAsUser":1},"containers":[{"securityContext":{"privileged":true}}]}"#,
            &[
                "spec.hostPID: Forbidden: cannot be set for a windows pod",
                "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
            ],
        );
        check(
            r#"{"os":{"name":"x"}}"#,
            &[r#"spec.os: Unsupported value: "x": supported values: "linux", "windows""#],
        );
    }
}
