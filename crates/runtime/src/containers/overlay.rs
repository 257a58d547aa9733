//! Overlays of layers, as trees of mounts that are attached nowhere.

use crate::images::root_dir::RootDir;
use crate::steps::step;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, open_tree, unmount,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The layers of an image.
pub struct Layers<'a> {
    /// The topmost first.
    pub paths: &'a [PathBuf],
    /// An empty directory, where older kernels mount the overlay for a moment.
    pub place: &'a Path,
}

/// The directories for what a container writes.
pub struct Changes<'a> {
    pub upper: &'a Path,
    pub work: &'a Path,
}

impl Layers<'_> {
    /// The image itself, to be read.
    pub fn open(&self) -> io::Result<RootDir> {
        match self.paths {
            // an overlay that nothing is written to has at least two
            [only] => RootDir::open(only),
            _ => Ok(RootDir::of(self.mount(None, true)?)),
        }
    }

    /// The image with the changes; without them it cannot be written to.
    pub fn mount(&self, changes: Option<Changes<'_>>, has_inert_devices: bool) -> Result<OwnedFd, Errno> {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let mut layers = self.paths.iter();
        let first = layers.next().ok_or(Errno::INVAL)?;
        // before 6.5 every option is taken, and refused when the filesystem is made
        let checks_options = fsconfig_set_flag(&context, "no-such-option").is_err();
        // one layer at a time has no limit of length, but older kernels lack it
        if !checks_options || fsconfig_set_string(&context, "lowerdir+", first.as_path()).is_err() {
            return self.mount_by_options(changes, has_inert_devices);
        }
        for layer in layers {
            fsconfig_set_string(&context, "lowerdir+", layer.as_path())?;
        }
        if let Some(Changes { upper, work }) = changes {
            fsconfig_set_string(&context, "upperdir", upper)?;
            fsconfig_set_string(&context, "workdir", work)?;
        }
        fsconfig_create(&context)?;
        let attributes = match has_inert_devices {
            true => MountAttrFlags::MOUNT_ATTR_NODEV,
            false => MountAttrFlags::empty(),
        };
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    }

    /// All layers in one string of at most a page, for kernels before 6.7.
    fn mount_by_options(
        &self,
        changes: Option<Changes<'_>>,
        has_inert_devices: bool,
    ) -> Result<OwnedFd, Errno> {
        let paths: Vec<_> = self.paths.iter().map(|it| it.display().to_string()).collect();
        let mut options = format!("lowerdir={}", paths.join(":"));
        if let Some(Changes { upper, work }) = changes {
            options.push_str(&format!(",upperdir={},workdir={}", upper.display(), work.display()));
        }
        if options.len() > 4000 {
            return Err(Errno::NAMETOOLONG);
        }
        let data = std::ffi::CString::new(options).map_err(|_| Errno::INVAL)?;
        let flags = if has_inert_devices { MountFlags::NODEV } else { MountFlags::empty() };
        step("mount an overlay", self.place);
        mount("overlay", self.place, "overlay", flags, data.as_c_str())?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, self.place, flags);
        unmount(self.place, UnmountFlags::DETACH)?;
        tree
    }
}
