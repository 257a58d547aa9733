//! Auditing: records the requests that the policy selects.
//!
//! ```text
//! authentication ─ RequestReceived ─ impersonation ─ authorization ─ work ─ ResponseComplete
//!        └ refused: ResponseStarted                                    └ watches: ResponseStarted before it
//! ```
//!
//! A request leaves a [`AuditContext`] while it is carried out. The policy says which requests are recorded and how much
//! of each; what is recorded goes to a log, a webhook, or both.
//!
//! What always holds: without a policy nothing is done per request. What is refused is recorded like what is done.
//! Bodies are in no record below the level `Request`. A request that was received has an end in the record, also
//! when its client goes away or the server makes a mistake.

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
pub use options::{BadAudit, LogOptions, Options, WebhookOptions};
pub use policy::{BadPolicy, Level, Policy, Stage};
pub use recorder::Audit;
pub use sink::{Format, Mode, Truncate};
