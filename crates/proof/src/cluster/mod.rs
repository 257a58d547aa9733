//! Simulations of whole clusters: server, control loops, scheduler and simulated nodes run under a manual clock. Work and
//! failures follow from a seed. An observer sees every change, and checks the invariants at each.
//!
//! ```text
//!  workload ──► requests ─► cluster (manual clock) ─► every change ─► observer ─► invariants ─► breaches
//!  failures ──► faults, crashes, silent nodes ─┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`workload`], [`objects`] | requests of users, from the seed |
//! | [`failures`] | failures, from the seed |
//! | [`simulation`] | one cluster: work, failures and the clock, then rest |
//! | [`observer`], [`history`], [`fields`] | the changes, in order, and all objects |
//! | [`invariants`] | properties of every history, as folds over the changes |
//! | [`campaign`], [`named`] | clusters one after another, those of known seeds, and the report |
//!
//! Invariants: the run fails if the observer misses a change. A fold reads API objects and the announced actions of the
//! simulation's own clients, nothing else.

mod caller;
pub mod campaign;
mod choice;
mod failures;
pub mod fields;
pub mod history;
pub mod invariants;
pub mod named;
mod objects;
mod observer;
pub mod simulation;
#[cfg(test)]
mod tests;
mod workload;
