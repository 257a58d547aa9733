//! SELinux on the node: where it is on, files of containers are relabelled.

use std::path::Path;

/// The label of all processes while no policy is loaded.
const WITHOUT_POLICY: &str = "kernel";

/// Whether the kernel of the machine below a root has SELinux: its filesystem is mounted to be written to, and a policy is
/// loaded. A permissive policy labels files, too.
pub fn is_enabled(root: &Path) -> bool {
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    if !mounts.lines().any(is_writable_selinuxfs) {
        return false;
    }
    let label = std::fs::read_to_string(root.join("proc/self/attr/current")).unwrap_or_default();
    label.trim_end_matches(['\0', '\n']) != WITHOUT_POLICY
}

/// Whether a line of the mounts is that filesystem. Its options stand behind the mount point, the type behind a dash.
fn is_writable_selinuxfs(line: &str) -> bool {
    let Some((mount, filesystem)) = line.split_once(" - ") else { return false };
    let is_read_only = |options: &str| options.split(',').any(|it| it == "ro");
    let (options, mut words) = (mount.split(' ').nth(5).unwrap_or_default(), filesystem.split(' '));
    words.next() == Some("selinuxfs") && !is_read_only(options) && !words.nth(1).is_some_and(is_read_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selinux_is_on_where_its_filesystem_is_mounted_and_a_policy_is_loaded() {
        const OTHER: &str = "22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/root rw\n";
        let mount = |options: &str, of_filesystem: &str| {
            format!(
                "{OTHER}30 22 0:21 / /sys/fs/selinux {options} shared:9 - selinuxfs selinuxfs {of_filesystem}\n"
            )
        };
        let check = |mounts: &str, label: &str, expected: bool| {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("proc/self/attr")).unwrap();
            std::fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
            std::fs::write(root.path().join("proc/self/attr/current"), label).unwrap();
            assert_eq!(is_enabled(root.path()), expected, "{mounts} {label}");
        };
        let label = "system_u:system_r:kubelet_t:s0\0";
        check(&mount("rw,nosuid,noexec,relatime", "rw"), label, true);
        check(&mount("rw,nosuid,noexec,relatime", "rw"), "kernel\0", false);
        check(&mount("ro,nosuid,noexec,relatime", "rw"), label, false);
        check(&mount("rw,nosuid,noexec,relatime", "ro"), label, false);
        check(OTHER, label, false);
        // a folder that is named so
        check("30 22 0:21 / /a/selinuxfs rw - tmpfs selinuxfs rw\n", label, false);
        assert!(!is_enabled(Path::new("/nonexistent")));
    }
}
