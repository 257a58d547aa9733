//! Statuses of pods: from observations, and to the API.
//!
//! | module | what it is |
//! |---|---|
//! | [`containers`] | statuses of containers |
//! | [`conditions`] | conditions and phase |
//! | [`generate`] | the whole status, as a pure function |
//! | [`termination_message`] | the last words of a container |
//! | [`writer`] | writes statuses to the API |

pub mod conditions;
pub mod containers;
pub mod generate;
pub mod termination_message;
pub mod writer;
#[cfg(test)]
mod writer_tests;
