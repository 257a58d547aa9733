//! What the programs of the ruler share.

pub mod in_process;
pub mod process;
pub mod target;
