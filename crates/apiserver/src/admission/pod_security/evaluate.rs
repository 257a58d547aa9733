//! Evaluates a pod against a Pod Security Standard. Pure: a pod and a standard in, violations out.
//!
//! Each check is one row of [`CHECKS`] for a range of releases. A level has the checks of the level before
//! it, except for those that it replaces:
//!
//! ```text
//! restricted:v1.18   baseline checks, runAsNonRoot, ...      seccomp profiles are annotations
//! restricted:v1.19   ... and seccompProfile_restricted       in place of seccompProfile_baseline
//! restricted:v1.25   ... which exempts Windows pods
//! ```

use super::pod::{Pod, Violation};
use super::policy::{Level, Standard, Version};
use super::{baseline, restricted};

type Check = fn(&Pod<'_>) -> Option<Violation>;

struct Row {
    id: &'static str,
    level: Level,
    /// The releases, as minor numbers: from the first, up to the second.
    from: u64,
    to: u64,
    /// The check of the level below that this one replaces.
    replaces: &'static str,
    check: Check,
}

const NOW: u64 = u64::MAX;

const fn baseline(id: &'static str, from: u64, to: u64, check: Check) -> Row {
    Row { id, level: Level::Baseline, from, to, replaces: "", check }
}

const fn restricted(id: &'static str, from: u64, to: u64, replaces: &'static str, check: Check) -> Row {
    Row { id, level: Level::Restricted, from, to, replaces, check }
}

/// In the order of messages: by level, then by name.
const CHECKS: &[Row] = &[
    baseline("appArmorProfile", 0, NOW, baseline::app_armor),
    baseline("capabilities_baseline", 0, NOW, baseline::capabilities),
    baseline("hostNamespaces", 0, NOW, baseline::host_namespaces),
    baseline("hostPathVolumes", 0, NOW, baseline::host_paths),
    baseline("hostPorts", 0, NOW, baseline::host_ports),
    baseline("privileged", 0, NOW, baseline::privileged),
    baseline("procMount", 0, NOW, baseline::proc_mount),
    baseline("seLinuxOptions", 0, NOW, baseline::se_linux),
    baseline("seccompProfile_baseline", 0, 19, baseline::seccomp_annotations),
    baseline("seccompProfile_baseline", 19, NOW, baseline::seccomp),
    baseline("sysctls", 0, NOW, baseline::sysctls),
    baseline("windowsHostProcess", 0, NOW, baseline::host_process),
    restricted("allowPrivilegeEscalation", 8, 25, "", restricted::privilege_escalation),
    restricted("allowPrivilegeEscalation", 25, NOW, "", |pod| linux(pod, restricted::privilege_escalation)),
    restricted("capabilities_restricted", 22, 25, "capabilities_baseline", restricted::capabilities),
    restricted("capabilities_restricted", 25, NOW, "capabilities_baseline", |pod| {
        linux(pod, restricted::capabilities)
    }),
    restricted("restrictedVolumes", 0, NOW, "hostPathVolumes", restricted::volumes),
    restricted("runAsNonRoot", 0, NOW, "", restricted::run_as_non_root),
    restricted("runAsUser", 23, NOW, "", restricted::run_as_user),
    restricted("seccompProfile_restricted", 19, 25, "seccompProfile_baseline", restricted::seccomp),
    restricted("seccompProfile_restricted", 25, NOW, "seccompProfile_baseline", |pod| {
        linux(pod, restricted::seccomp)
    }),
];

/// Skips Windows pods for checks that do not apply to Windows, since releases know of `os`.
fn linux(pod: &Pod<'_>, check: Check) -> Option<Violation> {
    if pod.runs_windows() { None } else { check(pod) }
}

impl Row {
    /// Whether a standard includes this check.
    fn is_in(&self, standard: Standard) -> bool {
        let minor = match standard.version {
            Version::Minor(minor) => minor,
            Version::Latest => NOW - 1,
        };
        self.level <= standard.level && (self.from..self.to).contains(&minor)
    }
}

/// The violations of a standard.
pub fn evaluate(standard: Standard, pod: &Pod<'_>) -> Vec<Violation> {
    let mine = || CHECKS.iter().filter(|row| row.is_in(standard));
    let replaced = |row: &&Row| mine().any(|other| other.replaces == row.id);
    mine().filter(|row| !replaced(row)).filter_map(|row| (row.check)(pod)).collect()
}

/// `host namespaces (hostPID=true), privileged (...)`.
pub fn describe(violations: &[Violation]) -> String {
    let one = |it: &Violation| match it.detail.as_str() {
        "" => it.reason.to_string(),
        detail => format!("{} ({detail})", it.reason),
    };
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The same without pod-specific details.
pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|it| &*it.reason).collect::<Vec<_>>().join(", ")
}
