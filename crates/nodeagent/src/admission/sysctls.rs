//! Kernel parameters that pods may set: those that are safe, and those that the configuration allows.

use crate::container::security::dotted_sysctl;
use api::core::v1::Pod;

/// The namespace of a kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Parameters that affect no other pod, and no process of the node.
const SAFE: [&str; 5] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_syncookies",
];

/// Names and prefixes of parameters.
#[derive(Debug, Clone)]
pub struct SysctlAllowlist {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl Default for SysctlAllowlist {
    fn default() -> Self {
        Self::new([])
    }
}

impl SysctlAllowlist {
    /// The safe parameters and others; a trailing `*` allows all with a prefix.
    pub fn new(unsafe_ones: impl IntoIterator<Item = String>) -> Self {
        let all = SAFE.iter().map(|it| (*it).to_owned()).chain(unsafe_ones);
        let (mut names, mut prefixes) = (Vec::new(), Vec::new());
        for pattern in all.map(|it| dotted_sysctl(&it)) {
            match pattern.strip_suffix('*') {
                Some(prefix) => prefixes.push(prefix.to_owned()),
                None => names.push(pattern),
            }
        }
        SysctlAllowlist { names, prefixes }
    }

    /// Checks all parameters of a pod. The error names the first that is forbidden.
    pub fn check(&self, pod: &Pod) -> Result<(), String> {
        let sysctls = pod.spec.security_context.iter().flat_map(|it| &it.sysctls);
        sysctls.into_iter().try_for_each(|it| self.check_name(&dotted_sysctl(&it.name), pod))
    }

    fn check_name(&self, name: &str, pod: &Pod) -> Result<(), String> {
        let is_allowed = self.names.iter().any(|it| it == name)
            || self.prefixes.iter().any(|it| name.starts_with(it.as_str()));
        if !is_allowed {
            return Err(format!("{name:?} not allowlisted"));
        }
        match namespace(name) {
            Some(Namespace::Ipc) if pod.spec.host_ipc => {
                Err(format!("{name:?} not allowed with host ipc enabled"))
            }
            Some(Namespace::Net) if pod.spec.host_network => {
                Err(format!("{name:?} not allowed with host net enabled"))
            }
            _ => Ok(()),
        }
    }
}

fn namespace(name: &str) -> Option<Namespace> {
    let is_ipc = name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|it| name.starts_with(it));
    match (is_ipc, name.starts_with("net.")) {
        (true, _) => Some(Namespace::Ipc),
        (_, true) => Some(Namespace::Net),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked_in_order() {
        let list = SysctlAllowlist::new(["kernel.msg*".to_owned(), "net.core.somaxconn".to_owned()]);
        let check = |fields: &str, names: &[&str]| {
            let sysctls: Vec<String> =
                names.iter().map(|it| format!(r#"{{"name":"{it}","value":"1"}}"#)).collect();
            let text =
                format!(r#"{{"spec":{{{fields}"securityContext":{{"sysctls":[{}]}}}}}}"#, sysctls.join(","));
            list.check(&api::from_json(text.as_bytes()).unwrap()).err().unwrap_or_default()
        };
        assert_eq!(check("", &[]), "");
        assert_eq!(check("", &["kernel/shm_rmid_forced", "kernel.msgmax", "net.core.somaxconn"]), "");
        assert_eq!(check("", &["kernel.sem", "vm.swappiness"]), r#""kernel.sem" not allowlisted"#);
        assert_eq!(
            check(r#""hostIPC":true,"#, &["kernel.msgmax"]),
            r#""kernel.msgmax" not allowed with host ipc enabled"#
        );
        assert_eq!(
            check(r#""hostNetwork":true,"#, &["net.ipv4.tcp_syncookies"]),
            r#""net.ipv4.tcp_syncookies" not allowed with host net enabled"#
        );
    }
}
