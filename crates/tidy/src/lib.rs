//! Style checks of the repository, as tests over its own files.
//!
//! Invariants: a check names file and line of every breach, and all breaches at once. An exception is one list
//! entry with its reason, and an unused exception is a breach itself. This crate is not linked into the product:
//! outside of tests it is empty.

#[cfg(test)]
mod circles;
#[cfg(test)]
mod code;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod lexer;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod words;
