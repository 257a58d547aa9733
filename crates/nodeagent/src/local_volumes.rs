//! Volumes that are folders of the node. The provisioner has them made and removed over the agent's HTTP API, and learns
//! from an annotation of the node how much space there is.
//!
//! ```text
//! <root-dir>/local-volumes/    0700: users of the machine do not reach the folders
//!   pvc-5d4e...                0777: which user a container will have is not known; `fsGroup` is applied as usual
//! ```
//!
//! Invariants: a name is the name of a volume, so that no request leaves the directory. Both requests can be repeated. A
//! folder is removed without following links or entering mounts (see `filesystem::remove_tree`).

use crate::filesystem::remove_tree::open_dir_at;
use crate::filesystem::{Filesystem, unless_absent};
use names::local_volumes::AVAILABLE;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIRECTORY: &str = "local-volumes";
const DIRECTORY_MODE: u32 = 0o700;
const FOLDER_MODE: u32 = 0o777;
/// The longest name of a volume.
const NAME_LIMIT: usize = 253;
/// A change of the available space by less than this part of all is not reported.
const NOTICEABLE_PART: i64 = 100;

/// Why a folder was not made or removed.
#[derive(Debug, thiserror::Error)]
pub enum LocalVolumeError {
    #[error("{0:?} is not the name of a volume")]
    InvalidName(String),
    #[error("not enough space: {requested} bytes are requested, {available} are available")]
    NoSpace { requested: u64, available: u64 },
    #[error("{0}")]
    File(#[from] io::Error),
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct LocalVolumes {
    directory: PathBuf,
    filesystem: Arc<dyn Filesystem>,
}

impl LocalVolumes {
    /// The folders below the directory of an agent.
    pub fn new(root_dir: &Path, filesystem: Arc<dyn Filesystem>) -> Self {
        LocalVolumes { directory: root_dir.join(DIRECTORY), filesystem }
    }

    /// Makes the folder of a volume, and returns its path. One that exists stays.
    pub fn create(&self, name: &str, size: u64) -> Result<PathBuf, LocalVolumeError> {
        check_name(name)?;
        self.filesystem.create_dir_all(&self.directory, DIRECTORY_MODE)?;
        let parent = self.open()?;
        let stat = rustix::fs::fstatvfs(&parent).map_err(io::Error::from)?;
        let available = stat.f_bavail.saturating_mul(stat.f_frsize);
        let is_new = match self.filesystem.create_dir_at(parent.as_fd(), OsStr::new(name), FOLDER_MODE) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true)?,
        };
        // a repeated request is about a folder that may be full by now
        if is_new && available < size {
            self.filesystem.remove_tree_at(parent.as_fd(), OsStr::new(name))?;
            return Err(LocalVolumeError::NoSpace { requested: size, available });
        }
        let folder = open_dir_at(parent.as_fd(), name)?;
        // the mask of the process took bits away
        self.filesystem.set_mode_of(folder.as_fd(), FOLDER_MODE)?;
        rustix::fs::fsync(&parent).map_err(io::Error::from)?;
        Ok(self.directory.join(name))
    }

    /// Removes the folder of a volume with all below it. One that is absent counts as removed.
    pub fn remove(&self, name: &str) -> Result<(), LocalVolumeError> {
        check_name(name)?;
        let parent = match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        unless_absent(self.filesystem.remove_tree_at(parent.as_fd(), OsStr::new(name)))?;
        Ok(rustix::fs::fsync(&parent).map_err(io::Error::from)?)
    }

    fn open(&self) -> io::Result<OwnedFd> {
        Ok(File::open(&self.directory)?.into())
    }
}

/// Names of volumes are names of subdomains, so they have no slashes and do not begin with a dot.
fn check_name(name: &str) -> Result<(), LocalVolumeError> {
    let is_alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    let has_ends = bytes.first().copied().is_some_and(is_alphanumeric)
        && bytes.last().copied().is_some_and(is_alphanumeric);
    let is_valid = has_ends
        && bytes.len() <= NAME_LIMIT
        && bytes.iter().all(|c| is_alphanumeric(*c) || b"-.".contains(c));
    if is_valid { Ok(()) } else { Err(LocalVolumeError::InvalidName(name.to_owned())) }
}

/// Writes the available space to the annotations of a node. A value that is almost right stays: each change is a write
/// of the node, and of the capacities that follow it.
pub fn report(annotations: &mut BTreeMap<String, String>, available: i64, total: i64) {
    let reported = annotations.get(AVAILABLE).and_then(|it| it.parse::<i64>().ok());
    let is_close = |it: i64| it.saturating_sub(available).saturating_abs() < (total / NOTICEABLE_PART).max(1);
    if !reported.is_some_and(is_close) {
        annotations.insert(AVAILABLE.to_owned(), available.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn folders_are_made_and_removed_once() {
        let root = tempfile::tempdir().unwrap();
        let volumes = LocalVolumes::new(root.path(), Arc::new(LinuxFilesystem));
        volumes.remove("pvc-1").unwrap();
        let path = volumes.create("pvc-1", 1).unwrap();
        assert_eq!(path, root.path().join("local-volumes/pvc-1"));
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o777));
        fs::write(path.join("data"), "x").unwrap();
        volumes.create("pvc-1", 1).unwrap();
        assert!(path.join("data").exists(), "a repeated request keeps the content");
        volumes.remove("pvc-1").unwrap();
        volumes.remove("pvc-1").unwrap();
        assert!(!path.exists());
        let refused = volumes.create("pvc-2", u64::MAX).unwrap_err();
        assert!(matches!(refused, LocalVolumeError::NoSpace { requested: u64::MAX, .. }), "{refused}");
        assert!(!root.path().join("local-volumes/pvc-2").exists());
    }

    #[test]
    fn no_name_leaves_the_directory() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("precious"), "x").unwrap();
        let volumes = LocalVolumes::new(root.path(), Arc::new(LinuxFilesystem));
        volumes.create("a.b-c", 0).unwrap();
        let long = "a".repeat(254);
        for name in [
            "",
            ".",
            "..",
            "../precious",
            "a/b",
            "/etc",
            "a\0b",
            "A",
            "-a",
            "a.",
            "%2e%2e",
            "a b",
            "ä",
            &long,
        ] {
            for refused in [volumes.create(name, 0).map(drop), volumes.remove(name)] {
                assert!(matches!(refused, Err(LocalVolumeError::InvalidName(_))), "{name:?}");
            }
        }
        assert!(root.path().join("precious").exists());
        assert_eq!(fs::read_dir(root.path().join("local-volumes")).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_place_of_a_folder_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        fs::set_permissions(&outside, PermissionsExt::from_mode(0o700)).unwrap();
        let volumes = LocalVolumes::new(root.path(), Arc::new(LinuxFilesystem));
        volumes.create("pvc-1", 0).unwrap();
        symlink(&outside, root.path().join("local-volumes/pvc-2")).unwrap();
        assert!(volumes.create("pvc-2", 0).is_err() && volumes.remove("pvc-2").is_err());
        assert!(outside.join("precious").exists() && mode(&outside) == 0o700);
    }

    #[test]
    fn small_changes_of_space_are_not_reported() {
        let mut annotations = BTreeMap::new();
        let mut reported = |available: i64| {
            report(&mut annotations, available, 1000);
            annotations[AVAILABLE].parse::<i64>().unwrap()
        };
        assert_eq!(
            [500, 509, 495, 490, 499, 0, 9, 10].map(&mut reported),
            [500, 500, 500, 490, 490, 0, 0, 10]
        );
        annotations.insert(AVAILABLE.to_owned(), "much".to_owned());
        report(&mut annotations, 7, 0);
        assert_eq!(annotations[AVAILABLE], "7");
    }
}
