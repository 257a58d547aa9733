//! Log files of containers, as runtimes write them: reading, rotation, links.
//!
//! A line of a file is `TIME STREAM TAG TEXT`: the tag `F` ends a line of output, the tag `P` is a part of one.
//!
//! ```text
//! 2026-01-02T03:04:05.000000006Z stdout F hello
//! 2026-01-02T03:04:05.000000007Z stderr P a long li
//! ```

pub mod line;
pub mod links;
pub mod memory;
pub mod options;
pub mod reader;
pub mod rotation;
mod tail;
#[cfg(test)]
mod text_sink;

pub use memory::read_text;
pub use options::LogOptions;
pub use reader::read;
