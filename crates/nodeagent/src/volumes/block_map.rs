//! The devices of block volumes in the directories of pods.
//!
//! A device is mounted once for each pod below a directory of its plugin, where it stays in use, and the pod's directory
//! has a link to it:
//!
//! ```text
//! plugins/<plugin>/volumeDevices/<volume>/<uid>        the device, mounted; those of CSI drivers are elsewhere
//! pods/<uid>/volumeDevices/<plugin>/<volume>           the link
//! ```

use crate::filesystem::{Filesystem, unless_absent};
use std::io;
use std::path::{Path, PathBuf};

/// The directory of links below a pod's, and that of devices below a plugin's.
pub const DEVICES: &str = "volumeDevices";
const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Where a device is for a pod.
pub struct BlockMap {
    /// The file at which it is mounted.
    pub file: PathBuf,
    pub link: PathBuf,
}

impl BlockMap {
    /// Mounts and links a device. It may be there already. The link is made first: it tells a later agent of the mount.
    pub fn map(&self, device: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
        for parent in [&self.link, &self.file].into_iter().filter_map(|it| it.parent()) {
            filesystem.create_dir_all(parent, DIRECTORY_MODE)?;
        }
        match std::fs::read_link(&self.link) {
            Ok(current) if current == device => {}
            Ok(_) => {
                filesystem.remove_file(&self.link)?;
                filesystem.symlink(device, &self.link)?;
            }
            Err(_) => filesystem.symlink(device, &self.link)?,
        }
        filesystem.create_file(&self.file, FILE_MODE)?;
        match filesystem.is_mount_point(&self.file)? {
            true => Ok(()),
            false => filesystem.bind(device, &self.file, false),
        }
    }

    /// Ends the mount, and removes the file and then the link, as far as they are there.
    pub fn unmap(&self, filesystem: &dyn Filesystem) -> io::Result<()> {
        if is_mounted(&self.file, filesystem) {
            filesystem.unmount(&self.file)?;
        }
        unless_absent(filesystem.remove_file(&self.file))?;
        unless_absent(filesystem.remove_file(&self.link))
    }
}

/// Whether something is mounted at a path. A mount whose server has gone cannot be looked at, and is one.
pub fn is_mounted(path: &Path, filesystem: &dyn Filesystem) -> bool {
    match filesystem.is_mount_point(path) {
        Ok(is_mounted) => is_mounted,
        Err(why) => !matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}
