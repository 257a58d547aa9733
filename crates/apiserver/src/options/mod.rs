//! Server options that several modules read.

pub mod deployment;
pub mod gates;
pub mod limits;
pub mod observability;
