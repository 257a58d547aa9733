//! The rules of the house that a machine can check, as tests over the repository's own files.
//!
//! What always holds: a rule names file and line of every breach, and all breaches at once. An exception is
//! one entry of a list with its reason beside it, and an exception that nothing needs any more is a breach
//! itself. Nothing here is linked into the product: outside of tests this crate is empty.

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
