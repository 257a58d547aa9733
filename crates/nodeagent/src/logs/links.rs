//! Links to log files under names that collectors of logs parse: `POD_NAMESPACE_CONTAINER-ID.log`.

use crate::filesystem::{Filesystem, unless_absent};
use std::io;
use std::path::{Path, PathBuf};

/// The longest name of a file.
const NAME_LIMIT: usize = 255;
const DIRECTORY_MODE: u32 = 0o755;

/// The path of the link of a container in `directory`.
pub fn link_path(directory: &Path, pod: &str, namespace: &str, container: &str, id: &str) -> PathBuf {
    const SUFFIX: &str = ".log";
    let mut stem = format!("{pod}_{namespace}_{container}-{id}");
    if stem.len() > NAME_LIMIT - SUFFIX.len() {
        let end = (0..=NAME_LIMIT - SUFFIX.len()).rev().find(|at| stem.is_char_boundary(*at)).unwrap_or(0);
        stem.truncate(end);
    }
    directory.join(stem + SUFFIX)
}

/// Links to a log file; a link that exists is replaced.
pub fn link(link: &Path, log: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    match filesystem.symlink(log, link) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            if std::fs::read_link(link).is_ok_and(|target| target == log) {
                return Ok(());
            }
            filesystem.remove_file(link)?;
            filesystem.symlink(log, link)
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            filesystem.create_dir_all(link.parent().unwrap_or(Path::new("/")), DIRECTORY_MODE)?;
            filesystem.symlink(log, link)
        }
        other => other,
    }
}

/// Removes links whose log file is gone.
pub fn remove_dead(directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry?.path();
        let is_dead = std::fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink()) && !path.exists();
        if is_dead {
            unless_absent(filesystem.remove_file(&path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;

    #[test]
    fn links_follow_their_logs() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        std::fs::write(&log, "").unwrap();
        let containers = folder.path().join("containers");
        let path = link_path(&containers, "p", "d", "c", "1");
        assert!(path.ends_with("p_d_c-1.log"));
        link(&path, &log, &LinuxFilesystem).unwrap();
        link(&path, &log, &LinuxFilesystem).unwrap();
        assert_eq!(std::fs::read_link(&path).unwrap(), log);
        remove_dead(&containers, &LinuxFilesystem).unwrap();
        assert!(path.exists());
        std::fs::remove_file(&log).unwrap();
        remove_dead(&containers, &LinuxFilesystem).unwrap();
        assert!(std::fs::symlink_metadata(&path).is_err());
        let long = link_path(&containers, &"p".repeat(300), "d", "c", "1");
        assert_eq!(long.file_name().unwrap().len(), 255);
    }
}
