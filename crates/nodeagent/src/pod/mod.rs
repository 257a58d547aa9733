//! A pod's life on the node.
//!
//! | module | what it is |
//! |---|---|
//! | [`spec`] | containers of a spec, of all kinds |
//! | [`observation`] | sandboxes and containers as the runtime shows them |
//! | [`plan`] | the next step, as a pure function |
//! | [`backoff`] | delays between restarts |
//! | [`worker`], [`refresh`], [`start`] | the task of a pod, what it reads, and its actions |
//! | [`termination`], [`hooks`] | the end of containers, lifecycle hooks |
//! | [`workers`], [`observer`], [`garbage`] | all workers, the events that wake them, the remains of pods |
//! | [`probing`] | the probe tasks of a pod |
//! | [`setup`], [`events`] | what a worker gets: surroundings of containers, a recorder |

pub mod actions;
pub mod backoff;
pub mod dead_containers;
pub mod events;
#[cfg(test)]
mod fault_tests;
pub mod garbage;
pub mod hooks;
pub mod observation;
pub mod observer;
pub mod plan;
#[cfg(test)]
mod plan_tests;
pub mod probing;
pub mod refresh;
pub mod setup;
pub mod spec;
pub mod start;
pub mod step_error;
pub mod termination;
#[cfg(test)]
pub mod testing;
pub mod worker;
#[cfg(test)]
mod worker_tests;
pub mod workers;
