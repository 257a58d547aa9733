//! Files that are replaced at once and survive a crash of the machine: states, certificates, kubeconfigs.
//!
//! The new content is written beside the file and reaches the disk before it takes the file's name: a reader finds the
//! former content or the new one, never a part. A link at the path is replaced, not followed.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, remove_file, rename};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// The mode of files that only their owner reads.
pub const PRIVATE: u32 = 0o600;
/// The mode of files that all users read.
pub const READABLE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Replaces a file, or makes it and its directory.
pub fn replace(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    install(path, |temporary| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
        file.write_all(content.as_ref())?;
        file.sync_all()
    })
}

/// Replaces a symbolic link, or makes it and its directory.
pub fn replace_link(path: &Path, target: &Path) -> io::Result<()> {
    install(path, |temporary| symlink(target, temporary))
}

/// Makes a file under another name and moves it to its path.
fn install(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    let temporary = temporary_path(path)?;
    // an agent that ended meanwhile may have left one, with another mode
    remove_if_present(&temporary)?;
    let made = make(&temporary).and_then(|()| rename(&temporary, path));
    if made.is_err() {
        // a part of a file must not take space on a full disk
        let _ = remove_file(&temporary);
    }
    made?;
    File::open(directory)?.sync_all()
}

fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".tmp");
    Ok(path.with_file_name(hidden))
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read, read_dir, read_link, write};
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/state");
        replace(&path, "1", PRIVATE).unwrap();
        assert_eq!((read(&path).unwrap(), mode(&path)), (b"1".to_vec(), 0o600));
        // an agent ended while it wrote, and its file was longer and readable
        write(path.with_file_name(".state.tmp"), "12345").unwrap();
        // a process that has opened the file keeps the former content
        let mut before = File::open(&path).unwrap();
        replace(&path, "23", PRIVATE).unwrap();
        assert_eq!((read(&path).unwrap(), mode(&path)), (b"23".to_vec(), 0o600));
        assert_eq!(io::read_to_string(&mut before).unwrap(), "1");
        assert_eq!(read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("current"), folder.path().join("one"));
        replace(&target, "1", PRIVATE).unwrap();
        replace_link(&link, &target).unwrap();
        replace_link(&link, &folder.path().join("two")).unwrap();
        assert_eq!(read_link(&link).unwrap(), folder.path().join("two"));
        replace_link(&link, &target).unwrap();
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
}
