//! Stages of kwok: changes of pods and nodes after a delay, chosen by selectors.
//!
//! | module | what it is |
//! |---|---|
//! | [`stage`] | a stage, read from a document |
//! | [`fields`] | its reader: all mistakes, no unknown fields |
//! | [`expression`] | paths in selectors and delays |
//! | [`template`] | the text of a status |
//! | [`functions`] | the general functions of templates |
//! | [`runner`] | chooses stages for objects, waits, and writes |
//!
//! Where there are stages for pods, they alone change the pods of simulated nodes; likewise for nodes, whose leases are
//! renewed in any case.

pub mod expression;
pub mod fields;
pub mod functions;
pub mod runner;
pub mod stage;
pub mod template;

pub use runner::{StageFacts, StageRunner};
pub use stage::{Stage, StageKind};
