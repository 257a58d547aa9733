//! YAML in and out.
//!
//! Reading follows the rules of the API: a plain scalar is what YAML 1.1 makes of it (`y` is a truth,
//! `0777` a number), keys become text, merge keys are merged, only the first document counts. JSON is read
//! too, being a part of YAML. Every input is bounded: its size, its depth and what its aliases may copy.
//!
//! Writing gives the block form that the API answers with, to the letter: sorted keys, two spaces, dashes in
//! the column of their key, long text folded at eighty columns.

mod read;
mod refusal;
mod resolve;
mod write;

pub use read::{Document, Limits, YamlError, parse};
pub use write::{ListWriter, emit};

#[cfg(test)]
mod tests;
