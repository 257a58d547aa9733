//! What the programs of the ruler share.

pub mod process;
pub mod target;
