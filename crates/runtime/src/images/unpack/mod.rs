//! Unpacks a layer into a directory of its own, in the form of overlayfs.
//!
//! A deleted file is a character device 0:0, and a directory that hides those below has the attribute
//! `trusted.overlay.opaque`. Directories that the layer uses without an entry of their own get the owner and mode that
//! they have in the layers below.
//!
//! Invariants: no entry is created outside of the directory: parents are resolved by [`RootDir`], and the last component
//! is created anew, never followed. An entry replaces an earlier one of its name. Attributes of overlayfs in a layer are
//! ignored, as they could point to other layers. Bytes and entries have limits.

use super::error::ImageError;
use super::root_dir::{Place, RootDir, file_type, make_directory, read_xattrs, set_xattr};
use super::tar::{Entry, EntryKind, TarReader};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chmodat, chownat, linkat, makedev,
    mknodat, openat, readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE_MARKER: &[u8] = b".wh..wh..opq";
/// Files of the storage driver that made the layer.
const DRIVER_PREFIX: &[u8] = b".wh..wh.";
pub const OPAQUE: &[u8] = b"trusted.overlay.opaque";
/// Attributes by which overlayfs is steered.
const STEERING: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];
const PATH_LIMIT: usize = 4095;
/// Links that are followed to make one directory.
const LINK_LIMIT: usize = 40;

/// Bounds of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Bytes of the uncompressed archive.
    pub bytes: u64,
    pub entries: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        UnpackLimits { bytes: 64 << 30, entries: 4_000_000 }
    }
}

/// Unpacks an archive into an empty directory. `lower` are the directories of the layers below, the topmost first.
pub fn unpack<R: Read>(
    archive: R,
    directory: &Path,
    lower: &[PathBuf],
    limits: UnpackLimits,
) -> Result<R, ImageError> {
    let root = RootDir::open(directory).map_err(ImageError::at(directory))?;
    let lower = lower.iter().map(|it| RootDir::open(it).map_err(ImageError::at(it)));
    let unpacker = Unpacker {
        root,
        lower: lower.collect::<Result<_, _>>()?,
        limits,
        entries: 0,
        directories: Vec::new(),
    };
    unpacker.run(archive)
}

struct Unpacker {
    root: RootDir,
    lower: Vec<RootDir>,
    limits: UnpackLimits,
    entries: u64,
    /// Directories and the times that they get at the end, when nothing is added to them any more.
    directories: Vec<(Vec<u8>, (i64, u32))>,
}

fn refused(entry: &Entry, why: &str) -> ImageError {
    ImageError::Invalid(format!("the layer's entry {:?} {why}", String::from_utf8_lossy(&entry.path)))
}

fn failed(entry: &Entry) -> impl Fn(io::Error) -> ImageError {
    let path = String::from_utf8_lossy(&entry.path).into_owned();
    move |why| ImageError::Io(format!("unpack {path:?}"), why)
}

/// The components of a path without `.` and `..`; `None` if the path leads out of its root.
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let mut clean = Vec::new();
    for component in path.split(|it| *it == b'/') {
        match component {
            b"" | b"." => {}
            b".." => drop(clean.pop()?),
            name => clean.push(name),
        }
    }
    Some(clean)
}

/// The path that a link names, seen from the root; `..` ends there.
fn link_target(parents: &[&[u8]], link: &[u8]) -> Vec<Vec<u8>> {
    let base = if link.starts_with(b"/") { &[] } else { parents };
    let mut target: Vec<Vec<u8>> = base.iter().map(|it| it.to_vec()).collect();
    for component in link.split(|it| *it == b'/') {
        match component {
            b"" | b"." => {}
            b".." => drop(target.pop()),
            name => target.push(name.to_vec()),
        }
    }
    target
}

impl Unpacker {
    fn run<R: Read>(mut self, archive: R) -> Result<R, ImageError> {
        let mut reader = TarReader::new(archive);
        while let Some(entry) = reader.next_entry()? {
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(ImageError::Invalid(format!(
                    "the layer has more than {} entries",
                    self.limits.entries
                )));
            }
            if entry.kind == EntryKind::File && entry.size > self.limits.bytes {
                return Err(refused(&entry, "is larger than the limit"));
            }
            self.unpack_entry(&entry, &mut reader)?;
        }
        self.set_directory_times()?;
        Ok(reader.into_inner())
    }

    fn unpack_entry<R: Read>(&mut self, entry: &Entry, reader: &mut TarReader<R>) -> Result<(), ImageError> {
        if entry.path.len() > PATH_LIMIT || entry.path.contains(&0) || entry.link.contains(&0) {
            return Err(refused(entry, "has an invalid path"));
        }
        let path = components(&entry.path).ok_or_else(|| refused(entry, "leads out of its root"))?;
        let Some((name, parents)) = path.split_last() else { return self.unpack_root(entry) };
        if name.starts_with(WHITEOUT) {
            return self.unpack_whiteout(entry, parents, name);
        }
        let parent = self.ensure_directory(parents).map_err(|why| failed(entry)(why))?;
        let place = Place { parent, name: name.to_vec() };
        let hides_lower = self.clear_place(entry, &place).map_err(failed(entry))?;
        match entry.kind {
            EntryKind::HardLink => return self.hard_link(entry, &place),
            EntryKind::File => write_file(&place, reader).map_err(failed(entry))?,
            EntryKind::Directory => make_directory(&place, 0o700).map_err(|why| failed(entry)(why.into()))?,
            EntryKind::Symlink => {
                symlinkat(&*entry.link, &place.parent, &*place.name)
                    .map_err(|why| failed(entry)(why.into()))?;
            }
            EntryKind::CharDevice => make_node(entry, &place, FileType::CharacterDevice)?,
            EntryKind::BlockDevice => make_node(entry, &place, FileType::BlockDevice)?,
            EntryKind::Fifo => make_node(entry, &place, FileType::Fifo)?,
        }
        set_metadata(entry, &place)?;
        if entry.kind == EntryKind::Directory {
            if hides_lower {
                set_xattr(&place.proc_path(), OPAQUE, b"y").map_err(|why| failed(entry)(why.into()))?;
            }
            self.directories.push((path.join(&b'/'), entry.modified));
        }
        Ok(())
    }

    /// The entry of the root gives it an owner and a mode.
    fn unpack_root(&mut self, entry: &Entry) -> Result<(), ImageError> {
        if entry.kind != EntryKind::Directory {
            return Err(refused(entry, "replaces the root"));
        }
        let parent = self.root.directory(b"").map_err(|why| failed(entry)(why.into()))?;
        set_metadata(entry, &Place { parent, name: b".".to_vec() })
    }

    /// A marker of something deleted; it has no effect on the entries of its own layer.
    fn unpack_whiteout(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Result<(), ImageError> {
        let failed = failed(entry);
        if name != OPAQUE_MARKER && name.starts_with(DRIVER_PREFIX) {
            return Ok(());
        }
        let deleted = &name[WHITEOUT.len()..];
        if name != OPAQUE_MARKER && matches!(deleted, b"" | b"." | b"..") {
            return Err(refused(entry, "deletes no name"));
        }
        let parent = self.ensure_directory(parents).map_err(&failed)?;
        if name == OPAQUE_MARKER {
            let place = Place { parent, name: b".".to_vec() };
            return set_xattr(&place.proc_path(), OPAQUE, b"y").map_err(|why| failed(why.into()));
        }
        let place = Place { parent, name: deleted.to_vec() };
        match place.stat().map_err(|why| failed(why.into()))? {
            None => mknodat(&place.parent, deleted, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))
                .map_err(|why| failed(why.into())),
            Some(found) if file_type(&found) == FileType::Directory => {
                set_xattr(&place.proc_path(), OPAQUE, b"y").map_err(|why| failed(why.into()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Opens a directory of the layer, and makes it if it is missing, with the attributes that it has below.
    fn ensure_directory(&mut self, path: &[&[u8]]) -> io::Result<OwnedFd> {
        self.ensure_directory_within(path, LINK_LIMIT)
    }

    fn ensure_directory_within(&mut self, path: &[&[u8]], links: usize) -> io::Result<OwnedFd> {
        let joined = path.join(&b'/');
        match self.root.directory(&joined) {
            Err(Errno::NOENT) => {}
            other => return Ok(other?),
        }
        let Some((name, parents)) = path.split_last() else { return Err(Errno::NOENT.into()) };
        let parent = self.ensure_directory_within(parents, links)?;
        let place = Place { parent, name: name.to_vec() };
        if place.stat()?.is_some() {
            // a link to a directory that only the layers below have
            let links = links.checked_sub(1).ok_or(Errno::LOOP)?;
            let link = readlinkat(&place.parent, &*place.name, Vec::new())?.into_bytes();
            let target = link_target(parents, &link);
            let target: Vec<&[u8]> = target.iter().map(Vec::as_slice).collect();
            self.ensure_directory_within(&target, links)?;
        } else {
            make_directory(&place, 0o755)?;
            self.copy_attributes(&joined, &place)?;
        }
        Ok(self.root.directory(&joined)?)
    }

    fn copy_attributes(&self, path: &[u8], place: &Place) -> io::Result<()> {
        let mut mode = 0o755;
        for lower in &self.lower {
            let Ok(directory) = lower.directory(path) else { continue };
            let stat = statat(&directory, ".", AtFlags::empty())?;
            set_owner(place, stat.st_uid, stat.st_gid)?;
            mode = stat.st_mode & 0o7777;
            let source = Place { parent: directory, name: b".".to_vec() };
            for (name, value) in read_xattrs(&source.proc_path())? {
                if !is_steering(&name) {
                    set_xattr(&place.proc_path(), &name, &value)?;
                }
            }
            break;
        }
        // the mode of a new directory depends on the umask
        chmodat(&place.parent, &*place.name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        Ok(())
    }

    /// Removes an earlier entry of the name, except a directory that stays one. Returns whether a deletion was there.
    fn clear_place(&self, entry: &Entry, place: &Place) -> io::Result<bool> {
        let Some(found) = place.stat()? else { return Ok(false) };
        if file_type(&found) == FileType::Directory && entry.kind == EntryKind::Directory {
            return Ok(false);
        }
        place.remove()?;
        Ok(file_type(&found) == FileType::CharacterDevice && found.st_rdev == makedev(0, 0))
    }

    /// Links to an entry of the same layer.
    fn hard_link(&self, entry: &Entry, place: &Place) -> Result<(), ImageError> {
        let target = components(&entry.link).filter(|it| !it.is_empty());
        let target = target.ok_or_else(|| refused(entry, "links out of its root"))?;
        let missing = || refused(entry, "links to a file that the layer does not have");
        let source = self.root.place(&target).map_err(|_| missing())?;
        match linkat(&source.parent, &*source.name, &place.parent, &*place.name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(missing()),
            Err(why) => Err(failed(entry)(why.into())),
        }
    }

    fn set_directory_times(&self) -> Result<(), ImageError> {
        for (path, modified) in self.directories.iter().rev() {
            // a later entry may have replaced the directory
            let Ok(directory) = self.root.directory(path) else { continue };
            let place = Place { parent: directory, name: b".".to_vec() };
            set_time(&place, *modified).map_err(ImageError::during("set the time of a directory"))?;
        }
        Ok(())
    }
}

fn write_file<R: Read>(place: &Place, reader: &mut TarReader<R>) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&place.parent, &*place.name, flags, Mode::from_raw_mode(0o600))?;
    io::copy(reader, &mut std::fs::File::from(file))?;
    Ok(())
}

fn make_node(entry: &Entry, place: &Place, kind: FileType) -> Result<(), ImageError> {
    let device = makedev(entry.device.0, entry.device.1);
    mknodat(&place.parent, &*place.name, kind, Mode::from_raw_mode(0o600), device)
        .map_err(|why| failed(entry)(why.into()))
}

/// Owner, attributes, mode and time: a change of the owner clears mode bits and capabilities, so it comes first.
fn set_metadata(entry: &Entry, place: &Place) -> Result<(), ImageError> {
    let failed = failed(entry);
    let id = |id: u64| u32::try_from(id).ok().filter(|it| *it != u32::MAX);
    let (Some(uid), Some(gid)) = (id(entry.uid), id(entry.gid)) else {
        return Err(refused(entry, "has an invalid owner"));
    };
    set_owner(place, uid, gid).map_err(|why| failed(why.into()))?;
    if entry.kind != EntryKind::Symlink {
        let mode = Mode::from_raw_mode(entry.mode);
        chmodat(&place.parent, &*place.name, mode, AtFlags::empty()).map_err(|why| failed(why.into()))?;
    }
    for (name, value) in entry.xattrs.iter().filter(|(name, _)| !is_steering(name)) {
        if name.is_empty() || name.contains(&0) {
            return Err(refused(entry, "has an invalid attribute"));
        }
        set_xattr(&place.proc_path(), name, value).map_err(|why| failed(why.into()))?;
    }
    set_time(place, entry.modified).map_err(|why| failed(why.into()))
}

fn set_owner(place: &Place, uid: u32, gid: u32) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    chownat(&place.parent, &*place.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn set_time(place: &Place, (seconds, nanos): (i64, u32)) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanos) };
    let times = Timestamps { last_access: time, last_modification: time };
    match utimensat(&place.parent, &*place.name, &times, AtFlags::SYMLINK_NOFOLLOW) {
        // a time that the filesystem cannot store
        Err(Errno::INVAL | Errno::OVERFLOW) => Ok(()),
        other => other,
    }
}

fn is_steering(name: &[u8]) -> bool {
    STEERING.iter().any(|it| name.starts_with(it))
}

#[cfg(test)]
mod tests;
