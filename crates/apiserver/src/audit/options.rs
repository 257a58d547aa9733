//! Options of auditing.

use super::log::{Rotation, Target};
use super::policy::Policy;
use super::sink::{Format, Mode, Truncate};
use std::time::Duration;

/// Policy and backends.
#[derive(Default)]
pub struct Options {
    /// Without a policy nothing is recorded.
    pub policy: Option<Policy>,
    pub log: Option<LogOptions>,
    pub webhook: Option<WebhookOptions>,
}

pub struct LogOptions {
    pub target: Target,
    pub format: Format,
    pub rotation: Rotation,
    pub mode: Mode,
    pub truncate: Option<Truncate>,
}

pub struct WebhookOptions {
    /// The URL and credentials of the receiver.
    pub receiver: outbound::Target,
    pub initial_backoff: Duration,
    pub mode: Mode,
    pub truncate: Option<Truncate>,
}

/// Why auditing cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("the audit log cannot be written: {0}")]
    Log(std::io::Error),
    #[error("the receiver of audit events cannot be called: {0}")]
    Webhook(outbound::InvalidTarget),
}
