//! The names of images: a file of references and what they name, shared by processes.
//!
//! Invariants: a change is one replacement of the file under a lock. A name is a whole reference, with registry and tag
//! or digest.

use super::error::ImageError;
use super::manifest::Descriptor;
use crate::steps::step;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A name and the manifest or index that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    pub name: String,
    pub target: Descriptor,
}

/// See the module.
#[derive(Debug)]
pub struct ImageRecords {
    file: PathBuf,
    lock: PathBuf,
    /// What the file had when it was read last: every container that is made looks for its image.
    read: Mutex<Option<(FileState, Arc<[ImageRecord]>)>>,
}

/// What a replaced file has another of: the number, or one of the times of one whose number was used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(file: &std::fs::Metadata) -> Self {
        FileState {
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl ImageRecords {
    pub fn open(root: &Path) -> Self {
        ImageRecords {
            file: root.join("images.json"),
            lock: root.join("images.lock"),
            read: Mutex::default(),
        }
    }

    pub fn list(&self) -> Result<Arc<[ImageRecord]>, ImageError> {
        let named = match std::fs::metadata(&self.file) {
            Ok(file) => FileState::of(&file),
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(why) => return Err(ImageError::at(&self.file)(why)),
        };
        if let Some((_, records)) = self.read.lock().as_ref().filter(|(state, _)| *state == named) {
            return Ok(records.clone());
        }
        let mut file = File::open(&self.file).map_err(ImageError::at(&self.file))?;
        // by now it may be another one
        let state = FileState::of(&file.metadata().map_err(ImageError::at(&self.file))?);
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(ImageError::at(&self.file))?;
        let records: Arc<[ImageRecord]> = serde_json::from_slice::<Vec<_>>(&text)
            .map_err(|why| ImageError::Invalid(format!("{}: {why}", self.file.display())))?
            .into();
        *self.read.lock() = Some((state, records.clone()));
        Ok(records)
    }

    /// Sets names; a name that exists gets the new target.
    pub fn set(&self, records: &[ImageRecord]) -> Result<(), ImageError> {
        self.change(|present| {
            present.retain(|it| !records.iter().any(|new| new.name == it.name));
            present.extend_from_slice(records);
        })
    }

    pub fn remove(&self, names: &[String]) -> Result<(), ImageError> {
        self.change(|present| present.retain(|it| !names.contains(&it.name)))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<ImageRecord>)) -> Result<(), ImageError> {
        let _lock = lock(&self.lock, FlockOperation::LockExclusive).map_err(ImageError::at(&self.lock))?;
        // times are as coarse as the kernel's ticks, and what is written must be what is there
        *self.read.lock() = None;
        let mut records = self.list()?.to_vec();
        change(&mut records);
        records.sort_by(|one, two| one.name.cmp(&two.name));
        let text = serde_json::to_vec_pretty(&records).map_err(|why| ImageError::Invalid(why.to_string()))?;
        step("write the names of images", &self.file);
        durable_file::replace(&self.file, text, durable_file::PRIVATE).map_err(ImageError::at(&self.file))
    }
}

/// Opens and locks a file; the lock ends with the handle.
pub fn lock(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, operation)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::digest::Digest;
    use super::*;

    #[test]
    fn names_are_set_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let records = ImageRecords::open(folder.path());
        let record = |name: &str, data: &[u8]| ImageRecord {
            name: name.to_owned(),
            target: Descriptor::new("x", Digest::of(data), 1),
        };
        assert!(records.list().unwrap().is_empty());
        records.set(&[record("b:1", b"1"), record("a:1", b"1")]).unwrap();
        records.set(&[record("a:1", b"2")]).unwrap();
        assert_eq!(records.list().unwrap()[..], [record("a:1", b"2"), record("b:1", b"1")]);
        // another process, which sees each change of this one
        let other = ImageRecords::open(folder.path());
        for _ in 0..3 {
            records.remove(&["a:1".to_owned(), "missing".to_owned()]).unwrap();
            assert_eq!(other.list().unwrap()[..], [record("b:1", b"1")]);
            records.set(&[record("a:1", b"3")]).unwrap();
            assert_eq!(other.list().unwrap()[..], [record("a:1", b"3"), record("b:1", b"1")]);
            assert!(Arc::ptr_eq(&other.list().unwrap(), &other.list().unwrap()), "it is read once");
        }
        std::fs::write(folder.path().join("images.json"), "{").unwrap();
        assert!(records.list().is_err() && records.set(&[]).is_err());
    }
}
