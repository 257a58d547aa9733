//! The log interface: makes the committer's batches durable.

use bytes::Bytes;

use crate::record::{Meta, Record, StoredValue};
use crate::{BuildId, Change, Snapshot, StoreError};

/// One batch: the added changes, the removed revisions, and the new meta row.
pub(crate) struct Batch<'a> {
    pub changes: &'a [Change],
    /// The stored details of each change, parallel to `changes`.
    pub details: &'a [ChangeDetails],
    /// Revisions whose records are dropped.
    pub trims: &'a [u64],
    pub meta: &'a Meta,
}

/// Details of a change that are stored and not published.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeDetails {
    pub expires_at: Option<i64>,
    pub encoded_by: Option<BuildId>,
    pub summary: Bytes,
    /// The packed value, if it is stored in place of the value.
    pub packed: Option<Bytes>,
}

impl ChangeDetails {
    /// The value of the change as it is stored.
    pub(crate) fn stored<'a>(&'a self, value: Option<&'a Bytes>) -> Option<StoredValue<'a>> {
        match &self.packed {
            Some(packed) => Some(StoredValue::Packed(packed)),
            None => value.map(|value| StoredValue::Plain(value)),
        }
    }
}

impl<'a> Batch<'a> {
    /// The records to append, in revision order.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'a>> {
        self.changes.iter().zip(self.details).map(|(change, details)| Record {
            revision: change.revision,
            key: &change.key,
            value: details.stored(change.value.as_ref()),
            previous: change.previous,
            at: change.at,
            expires_at: details.expires_at,
            encoded_by: details.encoded_by,
            summary: &details.summary,
        })
    }
}

/// Makes batches durable, each completely or not at all.
pub(crate) trait Log: Send {
    /// Returns once the batch is durable. After an error it is unknown whether it is, and
    /// [`Log::reopen`] must succeed before the next commit.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;

    /// Starts over from the contents of the disk, and returns their meta row.
    fn reopen(&mut self) -> Result<Meta, StoreError>;

    /// Verifies what opening took on trust. After an error [`Log::reopen`] must succeed before the next commit.
    fn verify(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Prepares for an unclean end while there are no writes, so that the next opening takes less time; false if there is
    /// nothing to prepare. After an error [`Log::reopen`] must succeed before the next commit.
    fn rest(&mut self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Whether the disk is full: some page found space only in the reserve.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether the reserve is so small that nothing may grow.
    fn is_low(&self) -> bool {
        false
    }

    /// Tries to free space, also by returning unused pages to the file system; true if the disk is no longer full.
    /// After an error [`Log::reopen`] must succeed before the next commit.
    fn make_room(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// The error of writes that find no space.
    fn full_error(&self) -> StoreError {
        StoreError::Unavailable("there is no space".to_owned())
    }

    /// The values of all keys, as of the last commit.
    fn snapshot(&mut self) -> Result<Snapshot, StoreError>;

    /// The log's size on disk.
    fn file_bytes(&self) -> u64;

    /// Closes the files, cleanly where possible.
    fn close(&mut self);
}
