//! The files of the PKI, on disk or in memory.
//!
//! Invariants: nothing is written before everything was made. A folder that is not there appears
//! complete, by one rename; in one that is, a new key is in place before its certificate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::files;

/// The files of the PKI by name, and the pending writes.
pub(super) struct CertificateStore {
    directory: Option<PathBuf>,
    present: BTreeMap<String, String>,
    pending: Vec<(String, String)>,
}

impl CertificateStore {
    /// A store in memory with these files.
    pub(super) fn in_memory(files: Vec<(String, String)>) -> Self {
        Self { directory: None, present: files.into_iter().collect(), pending: Vec::new() }
    }

    /// The files in `directory`, which may be missing.
    pub(super) fn in_directory(directory: &Path) -> anyhow::Result<Self> {
        let mut store = Self { directory: Some(directory.to_owned()), ..Self::in_memory(Vec::new()) };
        let listed = match fs::read_dir(directory) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(store),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", directory.display())),
        };
        for entry in listed {
            let entry = entry.with_context(|| format!("cannot read {}", directory.display()))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if let Some(".crt" | ".key" | ".pub" | ".token") = name.rfind('.').and_then(|dot| name.get(dot..))
            {
                let text = files::read(&entry.path())?;
                store.present.extend(text.map(|text| (name, text)));
            }
        }
        Ok(store)
    }

    /// The content of a file.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.present.get(name).cloned()
    }

    /// The content of a file, also of one that is not written yet.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let pending = self.pending.iter().rev().find(|(pending, _)| pending == name);
        pending.map(|(_, content)| content.clone()).or_else(|| self.get(name))
    }

    /// All files, written or not.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let mut files = self.present.clone();
        files.extend(self.pending.iter().cloned());
        files.into_iter().collect()
    }

    /// Adds a file that was made elsewhere.
    pub(super) fn adopt(&mut self, name: String, content: String) {
        self.pending.push((name.clone(), content.clone()));
        self.present.insert(name, content);
    }

    /// Adds a file, written by `commit`.
    pub(super) fn put(&mut self, name: String, content: &str) {
        self.pending.push((name, content.to_owned()));
    }

    /// The path of a file, for messages.
    pub(super) fn path(&self, name: &str) -> String {
        self.directory.as_deref().unwrap_or(Path::new("")).join(name).display().to_string()
    }

    /// Writes the pending files.
    pub(super) fn commit(self) -> anyhow::Result<()> {
        let Some(directory) = self.directory.as_deref().filter(|_| !self.pending.is_empty()) else {
            return Ok(());
        };
        let written = match directory.exists() {
            true => add_to(directory, &self.pending),
            false => make(directory, &self.pending),
        };
        written.with_context(|| format!("cannot write certificates to {}", directory.display()))
    }
}

fn add_to(directory: &Path, pending: &[(String, String)]) -> std::io::Result<()> {
    pending.iter().try_for_each(|(name, content)| files::replace(&directory.join(name), content.as_bytes()))
}

fn make(directory: &Path, pending: &[(String, String)]) -> std::io::Result<()> {
    let unfinished = directory.with_extension("new");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    files::private_directory(&unfinished)?;
    for (name, content) in pending {
        files::replace(&unfinished.join(name), content.as_bytes())?;
    }
    files::sync_directory(&unfinished)?;
    fs::rename(&unfinished, directory)?;
    files::sync_directory(directory.parent().unwrap_or(Path::new(".")))
}
