//! Errors of a store.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Revision;

/// An error of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The write's expectation does not hold; `current` is the key's last write, `None` if there is no key.
    #[error("{key}: the expected state does not hold ({})", describe(*current))]
    Conflict { key: Arc<str>, current: Option<Revision> },
    /// The key or the value is larger than is taken.
    #[error("{key}: {bytes} bytes are more than the {limit} that are taken")]
    TooLarge { key: Arc<str>, bytes: usize, limit: usize },
    /// The disk is full, and the write would take more of it. Deletions are taken, and writes that replace a value by
    /// one that is hardly larger. Once there is space every write is taken again, without a restart.
    #[error("the data directory {} is full: delete objects, or make space on its disk", path.display())]
    Full { path: PathBuf },
    /// The write could not be made durable: an I/O error, or the store is closing. It may be
    /// tried again. If the disk would not even say whether it took the write, the write may still turn up as
    /// a change once the disk works; a retry that expects what the first try expected is then a conflict.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The file does not hold what was written to it. Nothing is served from it.
    #[error("{}: the store is damaged: {what}", path.display())]
    Corrupt { path: PathBuf, what: String },
    /// Another process, or another engine of this one, has the data directory open.
    #[error("{}: the data directory is in use by another process", path.display())]
    Locked { path: PathBuf },
    /// The file was written by a version of a different layout.
    #[error("{}: the store has format {found}, and this version reads format {supported}", path.display())]
    Format { path: PathBuf, found: u8, supported: u8 },
    /// The store is in memory, and has no values: its subscriber has them.
    #[error("a store in memory keeps no values")]
    NoValues,
}

impl StoreError {
    pub(crate) fn closing() -> Self {
        Self::Unavailable("it is closing".to_owned())
    }
}

fn describe(current: Option<Revision>) -> String {
    match current {
        Some(revision) => format!("its last write is {revision}"),
        None => "it does not exist".to_owned(),
    }
}
