//! Steps of the runtime: one trace event before each change of files, mounts, control groups and processes.
//!
//! They are for people who follow what the runtime does (by the target), and for the test that
//! ends the process at every one of them.

use std::path::Path;

/// The target of the events.
pub const TARGET: &str = "runtime::step";

/// Reports a change that is about to be made.
pub fn step(change: &str, path: impl AsRef<Path>) {
    tracing::trace!(target: TARGET, change, path = %path.as_ref().display());
}
