//! What a merge may still use: nesting, and work for items that a patch names repeatedly.

use crate::error::Rejection;
use crate::limits::{MAX_DEPTH, MAX_MERGED_AGAIN};
use schema::{Map, Value};
use std::cell::Cell;

/// The nesting that is left at one place, and the work that is left for the whole patch.
#[derive(Clone, Copy)]
pub(super) struct Room<'w> {
    depth: usize,
    work: &'w Cell<usize>,
}

impl<'w> Room<'w> {
    /// The work that a patch may cause.
    pub(super) fn work() -> Cell<usize> {
        Cell::new(MAX_MERGED_AGAIN)
    }

    pub(super) fn new(work: &'w Cell<usize>) -> Self {
        Room { depth: MAX_DEPTH, work }
    }

    /// The room inside of a map or list.
    pub(super) fn below(self) -> Result<Self, Rejection> {
        let depth = self.depth.checked_sub(1).ok_or(Rejection::TooDeep)?;
        Ok(Room { depth, ..self })
    }

    /// Takes the work of merging into an item that the same patch has changed before: many of them would be quadratic.
    pub(super) fn merge_again(self, item: &Map) -> Result<(), Rejection> {
        let left = self.work.get();
        let left = if left == 0 { None } else { left.checked_sub(entries(item)) };
        self.work.set(left.unwrap_or(0));
        left.map(drop).ok_or(Rejection::TooMuchMoved)
    }
}

/// The entries of a map, and those of all maps and lists in it.
fn entries(map: &Map) -> usize {
    map.iter().map(|(_, value)| 1 + entries_of(value)).sum()
}

fn entries_of(value: &Value) -> usize {
    match value {
        Value::Map(map) => entries(map),
        Value::List(items) => items.iter().map(|item| 1 + entries_of(item)).sum(),
        _ => 0,
    }
}
