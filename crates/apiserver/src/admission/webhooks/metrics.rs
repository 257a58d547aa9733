//! Metrics of webhook calls.

use metrics::{Counter, Descriptor, Family, Histogram, Registry, seconds};
use rest::Operation;
use std::time::Duration;

const TOOK: Descriptor = Descriptor::stable(
    "apiserver_admission_webhook_admission_duration_seconds",
    "Time that a webhook took to answer.",
)
.by(&["name", "type", "operation", "rejected"])
.seconds(&seconds([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0]));
const CALLS: Descriptor =
    Descriptor::alpha("apiserver_admission_webhook_request_total", "Calls of webhooks, by how they ended.")
        .by(&["name", "type", "operation", "code", "rejected"]);
const REJECTIONS: Descriptor = Descriptor::alpha(
    "apiserver_admission_webhook_rejection_count",
    "Writes that were refused because of a webhook, and why.",
)
.by(&["name", "type", "operation", "error_type", "rejection_code"]);
const FAIL_OPEN: Descriptor = Descriptor::alpha(
    "apiserver_admission_webhook_fail_open_count",
    "Failed calls of webhooks that may fail.",
)
.by(&["name", "type"]);

/// Higher codes are counted as this one.
const HIGHEST_CODE: u16 = 600;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebhookOutcome {
    Allowed,
    /// Denied by the webhook, with this code.
    Denied(u16),
    /// The call failed; the write is rejected unless failures are ignored.
    Failed {
        code: u16,
        rejected: bool,
    },
    /// Rejected before or after the call.
    Refused,
}

#[derive(Clone)]
pub(crate) struct Counters {
    took: Family<Histogram>,
    calls: Family<Counter>,
    rejections: Family<Counter>,
    fail_open: Family<Counter>,
}

impl Counters {
    pub fn new(registry: &Registry) -> Self {
        Counters {
            took: registry.family(TOOK),
            calls: registry.family(CALLS),
            rejections: registry.family(REJECTIONS),
            fail_open: registry.family(FAIL_OPEN),
        }
    }

    pub(super) fn record_call(
        &self,
        name: &str,
        kind: &'static str,
        operation: Operation,
        end: WebhookOutcome,
        took: Duration,
    ) {
        let (code, rejected, why) = match end {
            WebhookOutcome::Allowed => (200, false, ""),
            WebhookOutcome::Denied(code) => (code, true, "no_error"),
            WebhookOutcome::Failed { code, rejected } => (code, rejected, "calling_webhook_error"),
            WebhookOutcome::Refused => (0, true, "apiserver_internal_error"),
        };
        let code = code.min(HIGHEST_CODE).to_string();
        let (operation, rejected_label) = (operation.name(), if rejected { "true" } else { "false" });
        self.took.of(&[name, kind, operation, rejected_label]).took(took);
        self.calls.of(&[name, kind, operation, &code, rejected_label]).inc();
        if rejected {
            self.rejections.of(&[name, kind, operation, why, &code]).inc();
        }
        if matches!(end, WebhookOutcome::Failed { rejected: false, .. }) {
            self.fail_open.of(&[name, kind]).inc();
        }
    }
}
