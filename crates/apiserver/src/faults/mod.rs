//! Faults on request, for clusters of tests: delayed and failed requests, cut connections and watches, failing webhooks.
//!
//! A rule selects requests, or calls to admission webhooks, and says how often which fault meets them. Rules are tried in
//! order; the first that fires counts. Each rule draws from a generator of its own, which follows from the seed: the same
//! requests in the same order meet the same faults.
//!
//! Requests below `/simulation/` meet none, so that faults can always be removed. A server without [`Faults`] has no
//! trace of this but one check per request.

mod active;
mod document;
mod rule;

pub use active::Faults;
pub(crate) use rule::{CutPoint, Effect, Fault, Subject, WatchEnd, WatchEnding};

/// Where the faults of a server are read and replaced.
pub(crate) const PATH: &str = "/simulation/faults";
/// Begins the paths that meet no faults.
pub(crate) const EXEMPT: &str = "/simulation/";
