//! Whole clusters under the clock of a simulation: server, control loops, scheduler and simulated nodes do the work of a
//! seed while components crash, requests fail and nodes fall silent; an observer sees every change, and what must hold is
//! checked at each.
//!
//! ```text
//!  workload ──► requests ─► cluster (manual clock) ─► every change ─► observer ─► invariants ─► breaches
//!  failures ──► faults, crashes, silent nodes ─┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`workload`], [`objects`] | what users request, from the seed |
//! | [`failures`] | what fails, from the seed |
//! | [`simulation`] | one cluster: work, failures and the clock, then rest |
//! | [`observer`], [`history`], [`fields`] | the changes, in order, and all objects |
//! | [`invariants`] | what must hold, as folds over the changes |
//! | [`campaign`] | clusters one after another, and the report |
//!
//! Invariants: an observer misses no change, or the run fails; what a fold knows it has from the API's objects and from
//! what the simulation's own clients said they do.

mod caller;
pub mod campaign;
mod choice;
mod failures;
pub mod fields;
pub mod history;
pub mod invariants;
mod objects;
mod observer;
pub mod simulation;
mod workload;
