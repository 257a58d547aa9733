//! Auditing: records the requests that the policy selects.
//!
//! ```text
//! authentication ─ RequestReceived ─ impersonation ─ authorization ─ work ─ ResponseComplete
//!        └ refused: ResponseStarted                                    └ watches: ResponseStarted before it
//! ```
//!
//! A request has an [`AuditContext`] while it is handled. The policy selects requests and the level of their
//! events; events go to a log, a webhook, or both.
//!
//! Invariants: without a policy no work is done per request. Refused requests are recorded like others. No
//! body is recorded below the level `Request`. A received request has an end in the log, also when its client
//! disconnects or its handler panics.

mod batch;
mod batch_worker;
mod context;
mod event;
mod json;
mod log;
mod metrics;
mod options;
mod policy;
mod recorder;
mod sink;
#[cfg(test)]
mod tests;
mod webhook;

pub use batch::{Batching, Throttle};
pub(crate) use context::{AuditContext, ID};
pub(crate) use json::patch as patch_body;
pub use log::{Rotation, Target};
pub use metrics::Counters;
pub use options::{AuditError, LogOptions, Options, WebhookOptions};
pub use policy::{InvalidPolicy, Level, Policy, Stage};
pub use recorder::Audit;
pub use sink::{Format, Mode, Truncate};
