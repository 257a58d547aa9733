//! Writes the files of a volume so that a container sees all of a change or nothing.
//!
//! ```text
//! volume/..2026_01_02_03_04_05.123456789/   the files, in a directory of their own
//! volume/..data -> ..2026_01_02_03_04_05.123456789
//! volume/a -> ..data/a                       a link for each first part of a path
//! ```
//!
//! A change writes a new directory and renames a link over `..data`. Files that are the same are not written. What a
//! write that broke off has left is removed with the next change.

use super::ownership::{ChangePolicy, set_group};
use super::payload::{Payload, PayloadFile};
use crate::filesystem::{Filesystem, unless_absent};
use api::MicroTime;
use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
const DIRECTORY_MODE: u32 = 0o755;
const PRIVATE_MODE: u32 = 0o600;
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4096;

/// Writes a payload for a group. Returns whether anything changed. `now` and `random` name the new directory.
pub fn write_payload(
    target: &Path,
    payload: &Payload,
    group: Option<u32>,
    (now, random): (SystemTime, u64),
    filesystem: &dyn Filesystem,
) -> io::Result<bool> {
    for path in payload.keys() {
        check_path(path).map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
    }
    let old = match std::fs::read_link(target.join(DATA)) {
        Ok(link) => Some(link),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let existing = old.as_ref().map(|old| files_below(&target.join(old))).transpose()?.unwrap_or_default();
    let links = first_parts(payload.keys().map(Path::new));
    if old.is_some() && existing.len() == payload.len() && is_written(target, payload) {
        return sync_links(target, &links, filesystem);
    }
    let new = directory_name(now, random);
    write_files(&target.join(&new), payload, filesystem)?;
    // before the switch: containers that run may read the files from then on
    if let Some(group) = group {
        set_group(&target.join(&new), group, true, ChangePolicy::Always, filesystem)?;
    }
    let link = target.join(NEW_DATA);
    unless_absent(filesystem.remove_file(&link))?;
    filesystem.symlink(Path::new(&new), &link)?;
    filesystem.rename(&link, &target.join(DATA))?;
    sync_links(target, &links, filesystem)?;
    remove_others(target, &new, filesystem)?;
    Ok(true)
}

/// Makes the links that are missing, and removes the others. Returns whether any were.
fn sync_links(target: &Path, links: &BTreeSet<PathBuf>, filesystem: &dyn Filesystem) -> io::Result<bool> {
    let mut is_changed = false;
    for name in links {
        let link = target.join(name);
        if std::fs::symlink_metadata(&link).is_err() {
            filesystem.symlink(&Path::new(DATA).join(name), &link)?;
            is_changed = true;
        }
    }
    for entry in std::fs::read_dir(target)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let is_link = std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(DATA).join(&name));
        if is_link && !links.contains(&name) {
            unless_absent(filesystem.remove_file(&entry.path()))?;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Removes the directories of earlier payloads.
fn remove_others(target: &Path, current: &str, filesystem: &dyn Filesystem) -> io::Result<()> {
    for entry in std::fs::read_dir(target)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() && name != *current && name.to_string_lossy().starts_with("..") {
            unless_absent(filesystem.remove_dir_all(&entry.path()))?;
        }
    }
    Ok(())
}

/// `..2026_01_02_03_04_05.123456789`
fn directory_name(now: SystemTime, random: u64) -> String {
    // `2026-01-02T03:04:05.000000Z`
    let time = MicroTime::from(now).to_string();
    let time = time.split('.').next().unwrap_or_default();
    let time: String = time.chars().map(|c| if c.is_ascii_digit() { c } else { '_' }).collect();
    format!("..{time}.{:09}", random % 1_000_000_000)
}

fn check_path(path: &str) -> Result<(), String> {
    let mut parts = Path::new(path).components();
    let problem = match () {
        () if path.is_empty() => "invalid path: must not be empty",
        () if path.starts_with('/') => "invalid path: must be relative path",
        () if path.len() > MAX_PATH => "invalid path: must be less than or equal to 4096 characters",
        () if parts.any(|part| part == Component::ParentDir) => "invalid path: must not contain '..'",
        () if path.starts_with("..") => "invalid path: must not start with '..'",
        () if path.split('/').any(|part| part.len() > MAX_NAME) => {
            "invalid path: filenames must be less than or equal to 255 characters"
        }
        () => return Ok(()),
    };
    Err(format!("{problem}: {path}"))
}

/// Whether each file has its content already.
fn is_written(target: &Path, payload: &Payload) -> bool {
    let data = target.join(DATA);
    payload
        .iter()
        .all(|(path, file)| std::fs::read(data.join(path)).is_ok_and(|content| content == file.data))
}

/// The paths of all files below a directory, relative to it.
fn files_below(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(inside) = pending.pop() {
        let entries = match std::fs::read_dir(root.join(&inside)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

fn first_parts<'a>(paths: impl Iterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    paths.filter_map(|path| path.components().next()).map(|part| PathBuf::from(part.as_os_str())).collect()
}

fn write_files(directory: &Path, payload: &Payload, filesystem: &dyn Filesystem) -> io::Result<()> {
    filesystem.create_dir(directory, DIRECTORY_MODE)?;
    // the mode at creation depends on the process
    filesystem.set_mode(directory, DIRECTORY_MODE)?;
    for (path, file) in payload {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            filesystem.create_dir_all(parent, DIRECTORY_MODE)?;
        }
        write_file(&path, file, filesystem)?;
    }
    Ok(())
}

fn write_file(path: &Path, file: &PayloadFile, filesystem: &dyn Filesystem) -> io::Result<()> {
    // no one else reads the file before it has its mode
    filesystem.create_file(path, PRIVATE_MODE)?;
    filesystem.write(path, &file.data)?;
    filesystem.set_mode(path, file.mode)?;
    match file.user {
        Some(user) => filesystem.set_owner(path, Some(user), None),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::time::{Duration, UNIX_EPOCH};

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| PayloadFile { data: text.as_bytes().to_vec(), mode: 0o640, user: None };
        files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_change_is_seen_whole() {
        let dir = tempfile::tempdir().unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let write = |files: &[(&str, &str)], random| {
            write_payload(dir.path(), &payload(files), None, (now, random), &LinuxFilesystem).unwrap()
        };
        assert!(write(&[("a", "1"), ("d/b", "2")], 5));
        let first = "..2023_11_14_22_13_20.000000005";
        assert_eq!(names(dir.path()), [first, "..data", "a", "d"]);
        assert_eq!(std::fs::read_to_string(dir.path().join("d/b")).unwrap(), "2");
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("a"), mode("d"), mode(first)), (0o640, 0o755, 0o755));
        assert!(!write(&[("a", "1"), ("d/b", "2")], 6));
        assert_eq!(std::fs::read_link(dir.path().join("..data")).unwrap(), Path::new(first));
        assert!(write(&[("a", "1"), ("c", "3")], 7));
        assert_eq!(names(dir.path()), ["..2023_11_14_22_13_20.000000007", "..data", "a", "c"]);
        assert!(write(&[], 8));
        assert_eq!(names(dir.path()), ["..2023_11_14_22_13_20.000000008", "..data"]);
        assert!(!write(&[], 9));
    }

    #[test]
    fn the_remains_of_a_crash_are_mended() {
        let dir = tempfile::tempdir().unwrap();
        let write = |files: &[(&str, &str)], random| {
            write_payload(dir.path(), &payload(files), None, (UNIX_EPOCH, random), &LinuxFilesystem).unwrap()
        };
        write(&[("a", "1"), ("b", "2")], 1);
        // the agent ended before it made and removed links
        std::fs::remove_file(dir.path().join("a")).unwrap();
        symlink("..data/old", dir.path().join("old")).unwrap();
        assert!(write(&[("a", "1"), ("b", "2")], 2));
        assert_eq!(names(dir.path()), ["..1970_01_01_00_00_00.000000001", "..data", "a", "b"]);
        // the agent ended before the switch
        std::fs::create_dir(dir.path().join("..1970_01_01_00_00_00.000000009")).unwrap();
        symlink("..1970_01_01_00_00_00.000000009", dir.path().join(NEW_DATA)).unwrap();
        assert!(write(&[("a", "3")], 3));
        assert_eq!(names(dir.path()), ["..1970_01_01_00_00_00.000000003", "..data", "a"]);
    }

    #[test]
    fn paths_stay_inside_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: &str, expected: &str| {
            let files = payload(&[(path, "")]);
            let written = write_payload(dir.path(), &files, None, (UNIX_EPOCH, 0), &LinuxFilesystem);
            let error = written.unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check("../a", "invalid path: must not contain '..': ../a");
        check("a/../b", "invalid path: must not contain '..': a/../b");
        check("..a", "invalid path: must not start with '..': ..a");
        check("/a", "invalid path: must be relative path: /a");
        assert!(names(dir.path()).is_empty());
    }
}
