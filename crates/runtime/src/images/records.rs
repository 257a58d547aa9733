//! The names of images: a file of references and what they name, shared by processes.
//!
//! Invariants: a change is one replacement of the file under a lock. A name is a whole reference, with registry and tag
//! or digest.

use super::error::ImageError;
use super::manifest::Descriptor;
use crate::steps::step;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A name and the manifest or index that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    pub name: String,
    pub target: Descriptor,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ImageRecords {
    file: PathBuf,
    lock: PathBuf,
}

impl ImageRecords {
    pub fn open(root: &Path) -> Self {
        ImageRecords { file: root.join("images.json"), lock: root.join("images.lock") }
    }

    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        match std::fs::read(&self.file) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|why| ImageError::Invalid(format!("{}: {why}", self.file.display()))),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(why) => Err(ImageError::at(&self.file)(why)),
        }
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
        let mut records = self.list()?;
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
        assert_eq!(records.list().unwrap(), [record("a:1", b"2"), record("b:1", b"1")]);
        records.remove(&["a:1".to_owned(), "missing".to_owned()]).unwrap();
        assert_eq!(records.list().unwrap(), [record("b:1", b"1")]);
        std::fs::write(folder.path().join("images.json"), "{").unwrap();
        assert!(records.list().is_err() && records.set(&[]).is_err());
    }
}
