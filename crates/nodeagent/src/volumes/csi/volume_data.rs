//! The file that records which volume is mounted in a directory. It is written before a driver is called, so that an agent
//! that restarts can undo the mount from the file alone.

use super::volume::VolumeId;
use crate::filesystem::{Filesystem, unless_absent};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

pub const FILE: &str = "vol_data.json";
/// The file while it is written.
const NEW_FILE: &str = ".vol_data.json.new";
/// The limit of a file's size.
const MAX_SIZE: u64 = 64 << 10;

/// The content of the file: texts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeData(pub BTreeMap<String, String>);

impl VolumeData {
    pub fn new(entries: &[(&str, &str)]) -> Self {
        VolumeData(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    pub fn id(&self) -> VolumeId {
        VolumeId { driver: self.get("driverName").to_owned(), handle: self.get("volumeHandle").to_owned() }
    }

    pub fn is_ephemeral(&self) -> bool {
        self.get("volumeLifecycleMode") == "Ephemeral"
    }

    /// Writes the file of a directory, as a whole.
    pub fn write(&self, directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
        // texts by name are always valid JSON
        let text = serde_json::to_string(&self.0).unwrap_or_default() + "\n";
        let (file, new) = (directory.join(FILE), directory.join(NEW_FILE));
        if std::fs::read(&file).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        filesystem.write(&new, text.as_bytes())?;
        filesystem.rename(&new, &file)
    }

    /// Reads the file of a directory; `None` if there is none.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(FILE);
        let text = match std::fs::metadata(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
            Ok(data) if data.len() > MAX_SIZE => {
                return Err(io::Error::other("the file of volume data is too large"));
            }
            Ok(_) => std::fs::read(&path)?,
        };
        let data = serde_json::from_slice(&text).map(VolumeData).map_err(io::Error::other)?;
        match data.id() {
            VolumeId { driver, handle } if driver.is_empty() || handle.is_empty() => {
                Err(io::Error::other("the file of volume data names no volume"))
            }
            _ => Ok(Some(data)),
        }
    }

    /// Removes the file of a directory, and what is left of its writing.
    pub fn remove(directory: &Path, filesystem: &dyn Filesystem) -> io::Result<()> {
        unless_absent(filesystem.remove_file(&directory.join(NEW_FILE)))?;
        unless_absent(filesystem.remove_file(&directory.join(FILE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::LinuxFilesystem;

    #[test]
    fn volume_data_is_written_as_upstream_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(VolumeData::read(dir.path()).unwrap(), None);
        let data = VolumeData::new(&[("volumeHandle", "h"), ("driverName", "d")]);
        data.write(dir.path(), &LinuxFilesystem).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text, "{\"driverName\":\"d\",\"volumeHandle\":\"h\"}\n");
        assert_eq!(VolumeData::read(dir.path()).unwrap(), Some(data));
        for bad in ["", "{", "[]", "{\"driverName\":1}", "{\"driverName\":\"d\"}"] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            assert!(VolumeData::read(dir.path()).is_err(), "{bad}");
        }
        VolumeData::remove(dir.path(), &LinuxFilesystem).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
