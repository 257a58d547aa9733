//! What the committer needs of the thing that makes batches durable.

use crate::record::{Meta, Record};
use crate::{Change, StoreError};

/// One batch: what comes, what goes, and what the log then says of itself.
pub(crate) struct Batch<'a> {
    pub changes: &'a [Change],
    /// The expiry of each change, side by side with `changes`.
    pub expiries: &'a [Option<i64>],
    /// Revisions whose records are no longer needed.
    pub trims: &'a [u64],
    pub meta: &'a Meta,
}

impl<'a> Batch<'a> {
    /// The records to append, in revision order.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'a>> {
        self.changes.iter().zip(self.expiries).map(|(change, expires_at)| Record {
            revision: change.revision,
            key: &change.key,
            value: change.value.as_deref(),
            previous: change.previous,
            at: change.at,
            expires_at: *expires_at,
        })
    }
}

/// Makes batches durable, each whole or not at all.
pub(crate) trait Log: Send {
    /// Returns once the batch is durable. After an error it is unknown whether it is, and
    /// [`Log::reopen`] must succeed before the next commit.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;

    /// Starts over from what is on disk, and says what that is.
    fn reopen(&mut self) -> Result<Meta, StoreError>;

    /// Whether the disk is full: some page found no space but what was set aside.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether so little is set aside that nothing may grow.
    fn is_low(&self) -> bool {
        false
    }

    /// Looks for space, also by giving unused pages back to the file system; true if the disk is no longer full. After
    /// an error [`Log::reopen`] must succeed before the next commit.
    fn make_room(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// The error of writes that find no space.
    fn full_error(&self) -> StoreError {
        StoreError::Unavailable("there is no space".to_owned())
    }

    /// What the log takes on disk.
    fn file_bytes(&self) -> u64;

    /// Lets go of the files, leaving them tidy where possible.
    fn close(&mut self);
}
