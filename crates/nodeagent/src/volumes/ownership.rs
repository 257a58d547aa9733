//! The group of volumes: `fsGroup`.
//!
//! Files get the group and its read (and write) permission, directories also the bit that passes the group on to new
//! files. Symbolic links get the group alone.

use crate::filesystem::Filesystem;
use api::core::v1::Pod;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const EXECUTE: u32 = 0o110;
const SET_GID: u32 = 0o2000;
const MODE: u32 = 0o7777;

/// Whether the ownership of a volume that fits at its root is left alone below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangePolicy {
    Always,
    OnRootMismatch,
}

impl ChangePolicy {
    /// The policy of a pod.
    pub fn of(pod: &Pod) -> Self {
        let context = pod.spec.security_context.as_ref();
        match context.and_then(|it| it.fs_group_change_policy.as_deref()) {
            Some("OnRootMismatch") => ChangePolicy::OnRootMismatch,
            _ => ChangePolicy::Always,
        }
    }
}

fn mask(is_dir: bool, is_readonly: bool) -> u32 {
    let base = if is_readonly { READ_ONLY } else { READ_WRITE };
    if is_dir { base | EXECUTE | SET_GID } else { base }
}

/// Gives a volume to a group.
pub fn set_group(
    root: &Path,
    group: u32,
    is_readonly: bool,
    policy: ChangePolicy,
    filesystem: &dyn Filesystem,
) -> io::Result<()> {
    if policy == ChangePolicy::OnRootMismatch {
        let data = std::fs::symlink_metadata(root)?;
        let mask = mask(true, is_readonly);
        if data.gid() == group && data.mode() & mask == mask {
            return Ok(());
        }
    }
    // the root last: a walk that breaks off is repeated
    let mut pending = vec![(root.to_owned(), false)];
    while let Some((path, is_walked)) = pending.pop() {
        let data = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            data => data?,
        };
        if data.is_dir() && !is_walked {
            pending.push((path.clone(), true));
            for entry in std::fs::read_dir(&path)? {
                pending.push((entry?.path(), false));
            }
            continue;
        }
        change(&path, &data, group, is_readonly, filesystem)?;
    }
    Ok(())
}

fn change(
    path: &Path,
    data: &Metadata,
    group: u32,
    is_readonly: bool,
    filesystem: &dyn Filesystem,
) -> io::Result<()> {
    filesystem.set_owner(path, None, Some(group))?;
    if data.is_symlink() {
        return Ok(());
    }
    let mode = data.mode() & MODE | mask(data.is_dir(), is_readonly);
    filesystem.set_mode(path, mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;
    use std::fs::{create_dir, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & MODE
    }

    #[test]
    fn files_and_directories_get_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("v");
        create_dir(&root).unwrap();
        create_dir(root.join("d")).unwrap();
        write(root.join("d/f"), "").unwrap();
        for (path, mode) in [("", 0o755), ("d", 0o700), ("d/f", 0o644)] {
            set_permissions(root.join(path), PermissionsExt::from_mode(mode)).unwrap();
        }
        // the group of the process, so that the test needs no privileges
        let group = std::fs::metadata(&root).unwrap().gid();
        set_group(&root, group, false, ChangePolicy::Always, &LinuxFilesystem).unwrap();
        assert_eq!([mode(&root), mode(&root.join("d")), mode(&root.join("d/f"))], [0o2775, 0o2770, 0o664]);
        set_permissions(root.join("d/f"), PermissionsExt::from_mode(0o600)).unwrap();
        set_group(&root, group, false, ChangePolicy::OnRootMismatch, &LinuxFilesystem).unwrap();
        assert_eq!(mode(&root.join("d/f")), 0o600);
        set_group(&root, group, true, ChangePolicy::Always, &LinuxFilesystem).unwrap();
        assert_eq!(mode(&root.join("d/f")), 0o640);
    }
}
