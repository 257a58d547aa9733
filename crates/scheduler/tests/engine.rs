//! Tests of the scheduler without its I/O: recorded decisions of upstream, a simulation from seeds, bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod bad_input;
mod recorded;
mod simulation;
