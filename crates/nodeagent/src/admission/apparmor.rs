//! AppArmor on the node: a pod that a profile confines waits while the node cannot enforce it.

use crate::container::security::needs_apparmor;
use api::core::v1::Pod;
use names::node::APPARMOR_ANNOTATION;
use std::path::Path;

/// Whether the kernel below a root has AppArmor.
pub fn is_enabled(root: &Path) -> bool {
    let switch = std::fs::read_to_string(root.join("sys/module/apparmor/parameters/enabled"));
    root.join("sys/kernel/security/apparmor").exists() && switch.is_ok_and(|it| it.starts_with('Y'))
}

/// Why a pod cannot run on a node with or without AppArmor.
pub fn refusal(pod: &Pod, is_enabled: bool) -> Option<String> {
    if !needs_apparmor(pod) {
        return None;
    }
    if !is_enabled {
        return Some("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
    }
    let profiles = pod.metadata.annotations.iter().filter(|(key, _)| key.starts_with(APPARMOR_ANNOTATION));
    let is_valid =
        |it: &str| matches!(it, "" | "runtime/default" | "unconfined") || it.starts_with("localhost/");
    let invalid = profiles.map(|it| it.1).find(|it| !is_valid(it))?;
    Some(format!("Cannot enforce AppArmor: invalid AppArmor profile name: {invalid:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_needs_a_kernel_that_enforces_it() {
        let pod = |profile: &str| {
            let mut pod = Pod::default();
            pod.metadata.annotations.insert(format!("{APPARMOR_ANNOTATION}c"), profile.to_owned());
            pod
        };
        let disabled = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        assert_eq!(refusal(&pod("localhost/zz"), false).as_deref(), Some(disabled));
        assert_eq!(refusal(&pod("unconfined"), false), None);
        assert_eq!(refusal(&pod("localhost/zz"), true), None);
        let invalid = r#"Cannot enforce AppArmor: invalid AppArmor profile name: "zz""#;
        assert_eq!(refusal(&pod("zz"), true).as_deref(), Some(invalid));
        assert_eq!(refusal(&Pod::default(), false), None);
        assert!(!is_enabled(Path::new("/nonexistent")));
    }
}
