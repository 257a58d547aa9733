//! The plugin set of a profile, the statuses of plugins, and the diagnosis of a failed pod.

pub mod diagnosis;
pub mod features;
pub mod profile;
pub mod status;

pub use diagnosis::Diagnosis;
pub use features::Features;
pub use profile::{Plugin, Profile};
pub use status::{Code, FilterResult, Reason, Reasons, Rejection};

/// The highest score that a plugin gives a node.
pub const MAX_NODE_SCORE: i64 = 100;
