//! Options of the server that several of its parts read.

pub mod deployment;
pub mod gates;
pub mod limits;
pub mod observability;
