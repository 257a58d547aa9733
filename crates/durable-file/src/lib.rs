//! Files that are replaced at once and survive a crash of the machine: states, certificates, kubeconfigs, records.
//!
//! The new content is written beside the file and reaches the disk before it takes the file's name: a reader finds the
//! former content or the new one, never a part. A link at the path is replaced, not followed. Several processes may
//! replace one file: they take turns, and what one of them left when it was killed is removed by the next.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, remove_file, rename, symlink_metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// The mode of files that only their owner reads.
pub const PRIVATE: u32 = 0o600;
/// The mode of files that all users read.
pub const READABLE: u32 = 0o644;
/// The mode of directories that were missing.
const DIRECTORY_MODE: u32 = 0o755;

/// Makes a directory and those above it, where they are missing.
pub fn directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// The directory that a file is in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes renames and new files in a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Replaces a file, or makes it and its directory.
pub fn replace(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    directory(directory_of(path), DIRECTORY_MODE)?;
    let temporary = temporary_path(path)?;
    let mut file = claim(&temporary, mode)?;
    let written = file.write_all(content.as_ref()).and_then(|()| file.sync_all());
    install(written, &temporary, path)
}

/// Replaces a file, unless it has this content and mode already: then a full disk does not matter.
pub fn replace_if_changed(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    let has_mode = |file: std::fs::Metadata| file.is_file() && file.mode() & 0o777 == mode;
    let is_same = symlink_metadata(path).is_ok_and(has_mode)
        && std::fs::read(path).is_ok_and(|present| present == content.as_ref());
    if is_same { Ok(()) } else { replace(path, content, mode) }
}

/// Replaces a symbolic link, or makes it and its directory.
pub fn replace_link(path: &Path, target: &Path) -> io::Result<()> {
    directory(directory_of(path), DIRECTORY_MODE)?;
    let temporary = temporary_path(path)?;
    remove(&temporary)?;
    install(symlink(target, &temporary), &temporary, path)
}

/// Removes a file; one that is not there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Gives a file that is complete its name.
fn install(made: io::Result<()>, temporary: &Path, path: &Path) -> io::Result<()> {
    made.and_then(|()| rename(temporary, path)).inspect_err(|_| {
        // a part of a file must not take space on a full disk
        let _ = remove_file(temporary);
    })?;
    sync_directory(directory_of(path))
}

/// Makes an empty file that no other process writes to. The lock is released with the file.
fn claim(path: &Path, mode: u32) -> io::Result<File> {
    loop {
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
            Ok(file) => {
                file.lock()?;
                // another process may have taken it for one that was left, before it was locked
                if is_at(&file, path)? {
                    return Ok(file);
                }
            }
            Err(why) if why.kind() == ErrorKind::AlreadyExists => remove_left(path)?,
            Err(why) => return Err(why),
        }
    }
}

/// Waits for the process that writes a file, and removes the file if the process left it.
fn remove_left(path: &Path) -> io::Result<()> {
    if symlink_metadata(path).is_ok_and(|file| !file.is_file()) {
        return remove(path);
    }
    match File::open(path) {
        Ok(file) => {
            file.lock()?;
            if is_at(&file, path)? { remove(path) } else { Ok(()) }
        }
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
    }
}

/// Whether a file has this name still.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Programs that read all files of a directory leave out those with such names.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, read, read_dir, read_link, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/state");
        directory(&folder.path().join("a"), 0o700).unwrap();
        replace(&path, "1", PRIVATE).unwrap();
        assert_eq!((mode(&folder.path().join("a")), mode(directory_of(&path))), (0o700, 0o755));
        assert_eq!((read(&path).unwrap(), mode(&path)), (b"1".to_vec(), 0o600));
        // a process was killed while it wrote, and its file was longer and readable
        write(path.with_file_name(".state.new"), "12345").unwrap();
        // a process that has opened the file keeps the former content
        let mut before = File::open(&path).unwrap();
        replace(&path, "23", PRIVATE).unwrap();
        assert_eq!((read(&path).unwrap(), mode(&path)), (b"23".to_vec(), 0o600));
        assert_eq!(io::read_to_string(&mut before).unwrap(), "1");
        assert_eq!(read_dir(directory_of(&path)).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn unchanged_files_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let inode = || path.metadata().unwrap().ino();
        replace_if_changed(&path, "same", PRIVATE).unwrap();
        let first = inode();
        replace_if_changed(&path, "same", PRIVATE).unwrap();
        assert_eq!(inode(), first);
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        replace_if_changed(&path, "same", PRIVATE).unwrap();
        assert_eq!(mode(&path), 0o600);
        replace_if_changed(&path, "other", PRIVATE).unwrap();
        assert_eq!(read(&path).unwrap(), b"other");
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("current"), folder.path().join("one"));
        replace(&target, "1", PRIVATE).unwrap();
        replace_link(&link, &target).unwrap();
        replace_link(&link, &folder.path().join("two")).unwrap();
        assert_eq!(read_link(&link).unwrap(), folder.path().join("two"));
        // a link under the name of the next content is no file to write to
        symlink(&target, folder.path().join(".current.new")).unwrap();
        replace(&link, "3", PRIVATE).unwrap();
        assert_eq!((read(&link).unwrap(), read(&target).unwrap()), (b"3".to_vec(), b"1".to_vec()));
    }

    #[test]
    fn a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).unwrap();
        write(path.join("inside"), "1").unwrap();
        assert!(replace(&path, "2", PRIVATE).is_err());
        assert_eq!(read(path.join("inside")).unwrap(), b"1");
        assert_eq!(read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(Path::new("/"), "2", PRIVATE).is_err());
    }

    #[test]
    fn writers_of_one_file_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("state");
        std::thread::scope(|threads| {
            for writer in 0..4u8 {
                threads.spawn(move || {
                    for round in 0..50u8 {
                        // contents of different lengths: a mixture would be seen
                        replace(path, vec![writer; 1000 + usize::from(round)], PRIVATE).unwrap();
                        let content = read(path).unwrap();
                        assert!(content.len() >= 1000 && content.iter().all(|byte| *byte == content[0]));
                    }
                });
            }
        });
        assert_eq!(read_dir(folder.path()).unwrap().count(), 1);
    }
}
