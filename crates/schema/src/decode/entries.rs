//! The fields of a structure while it is decoded.

use crate::table::{Field, Type};
use crate::text::{Text, order};
use crate::value::Value;

/// The decoded fields, sorted by name; they are inserted in any order.
pub(super) struct Entries {
    pub(super) entries: Vec<(Text, Value)>,
    /// The rank of each entry's name, in the same order.
    ranks: [u16; RANKED],
    /// Whether `ranks` is used; a type with more fields compares names.
    ranked: bool,
}

/// The most fields of a type with ranks; larger types are rare.
const RANKED: usize = 64;

impl Entries {
    pub(super) fn new(ty: &Type) -> Self {
        let count = ty.fields.len();
        Entries { entries: Vec::with_capacity(count.min(16)), ranks: [0; RANKED], ranked: count <= RANKED }
    }

    /// The position of a name of this rank, or its insertion point.
    fn find(&self, rank: usize, name: &str) -> Result<usize, usize> {
        if !self.ranked {
            return self.entries.binary_search_by(|(other, _)| order(other, name));
        }
        let ranks = &self.ranks[..self.entries.len()];
        match ranks.iter().rposition(|other| usize::from(*other) <= rank) {
            None => Err(0),
            Some(at) if usize::from(ranks[at]) == rank => Ok(at),
            Some(at) => Err(at + 1),
        }
    }

    pub(super) fn insert(&mut self, rank: usize, field: &Field, value: Value) {
        let count = self.entries.len();
        // fields in order, about half of them, are appended
        if self.ranked && (count == 0 || usize::from(self.ranks[count - 1]) < rank) {
            self.ranks[count] = rank as u16;
            self.entries.push((field.name.clone(), value));
            return;
        }
        let (Ok(at) | Err(at)) = self.find(rank, &field.name);
        if self.ranked {
            self.ranks.copy_within(at..count, at + 1);
            self.ranks[at] = rank as u16;
        }
        self.entries.insert(at, (field.name.clone(), value));
    }

    pub(super) fn remove(&mut self, rank: usize, field: &Field) -> Option<Value> {
        let at = self.find(rank, &field.name).ok()?;
        let count = self.entries.len();
        if self.ranked {
            self.ranks.copy_within(at + 1..count, at);
        }
        Some(self.entries.remove(at).1)
    }
}

/// The fields that are present, as bits.
pub(super) struct FieldBits {
    few: [u64; 2],
    many: Vec<u64>,
}

impl FieldBits {
    pub(super) fn new(count: usize) -> Self {
        FieldBits { few: [0; 2], many: if count > 128 { vec![0; count.div_ceil(64)] } else { Vec::new() } }
    }

    fn words(&mut self) -> &mut [u64] {
        if self.many.is_empty() { &mut self.few } else { &mut self.many }
    }

    pub(super) fn get(&mut self, at: usize) -> bool {
        self.words()[at / 64] & (1 << (at % 64)) != 0
    }

    /// Sets a bit; returns whether it was set before.
    pub(super) fn set(&mut self, at: usize) -> bool {
        let before = self.get(at);
        self.words()[at / 64] |= 1 << (at % 64);
        before
    }

    pub(super) fn clear(&mut self, at: usize) {
        self.words()[at / 64] &= !(1 << (at % 64));
    }
}
