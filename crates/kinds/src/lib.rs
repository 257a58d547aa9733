//! (being laid)

pub mod tables;
