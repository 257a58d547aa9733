//! Admission webhooks: MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
//!
//! Invariants: webhooks are called in the order of their configurations' names, and within one as listed; a
//! write without a matching webhook costs one lookup. An unreachable webhook, a timeout or an invalid
//! response denies the write, unless `failurePolicy` is `Ignore`. Webhook configurations themselves are
//! exempt, so that a webhook that blocks everything can be removed.

mod clients;
mod dispatcher;
mod fault_injection;
mod hook;
mod metrics;
mod mutating;
mod review;
mod table;
mod validating;

pub(crate) use metrics::Counters;
pub(super) use mutating::Mutating;
pub(super) use validating::Validating;
