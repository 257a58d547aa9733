//! One webhook: its rules, its client, and the outcome of a call.

use super::clients::Clients;
use super::fault_injection;
use super::metrics::WebhookOutcome;
use super::review::{self, ReviewRequest, ReviewResponse};
use crate::admission::matching::{Match, Rule, Selectors, is_dry_run};
use crate::faults::Faults;
use crate::outgoing::webhook_target::WebhookTarget;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use outbound::{HttpResponse, Limits};
use rest::{AdmissionAttributes, ApiError, AuditDetail};
use schema::Value;
use schema::problem::quoted;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a response, which holds a patch at most.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of calls to a webhook that responds with `Retry-After`.
const MAX_CALLS: usize = 10;

pub(super) struct Hook {
    pub name: String,
    pub configuration: String,
    pub rules: Vec<Rule>,
    /// Whether rules match other versions of their resources, too.
    pub equivalent: bool,
    pub selectors: Selectors,
    pub may_fail: bool,
    /// Whether it is reinvoked when later webhooks change the object.
    pub reinvoke: bool,
    /// Whether it has no side effects in a dry run.
    is_dry_run_safe: bool,
    seconds: i64,
    version: &'static str,
    server: WebhookTarget,
    faults: Option<Arc<Faults>>,
}

/// Why a webhook stops a write.
pub(super) enum Failure {
    /// The webhook denied it.
    Denied(ApiError),
    /// The call failed; with the code for metrics.
    Call(String, u16),
    /// It must not be called, or its response cannot be applied.
    Refused(ApiError),
}

impl Hook {
    pub fn of(hook: &Value, configuration: &str, clients: &Clients) -> Self {
        let seconds = hook.at(&["timeoutSeconds"]).and_then(Value::as_int).unwrap_or(10).clamp(1, 30);
        let time = Duration::from_secs(seconds.unsigned_abs());
        let supported = hook.items(&["admissionReviewVersions"]).iter().filter_map(Value::as_str);
        let supported =
            supported.filter_map(|it| review::VERSIONS.into_iter().find(|version_name| *version_name == it));
        let empty = Value::map();
        let config = hook.at(&["clientConfig"]).unwrap_or(&empty);
        Hook {
            name: hook.text(&["name"]).to_owned(),
            configuration: configuration.to_owned(),
            rules: hook.items(&["rules"]).iter().map(Rule::of).collect(),
            equivalent: hook.text(&["matchPolicy"]) == "Equivalent",
            selectors: Selectors::of(hook),
            may_fail: hook.text(&["failurePolicy"]) == "Ignore",
            reinvoke: hook.text(&["reinvocationPolicy"]) == "IfNeeded",
            is_dry_run_safe: matches!(hook.text(&["sideEffects"]), "None" | "NoneOnDryRun"),
            seconds,
            version: supported.into_iter().next().unwrap_or(review::VERSIONS[0]),
            server: WebhookTarget::of(
                config,
                clients.routing.clone(),
                Limits { time, answer: MAX_RESPONSE_BYTES },
                &clients.users,
            )
            .with_metrics(&clients.calls),
            faults: clients.faults.clone(),
        }
    }

    /// Calls the webhook about a write.
    pub async fn review(
        &self,
        write: &AdmissionAttributes<'_>,
        matched: &Match,
        (object, old): (&[u8], &[u8]),
        changes: bool,
    ) -> Result<ReviewResponse, Failure> {
        let dry_run = is_dry_run(write);
        if dry_run && !self.is_dry_run_safe {
            let why = format!("admission webhook {} does not support dry run", quoted(&self.name));
            return Err(Failure::Refused(ApiError::bad_request(why)));
        }
        let uid = rest::metadata::new_uid(&write.api.world);
        let request =
            ReviewRequest { write, matched, version: self.version, uid: &uid, object, old, dry_run };
        let answer = self.call(write, request.json().into()).await;
        let answer = answer.map_err(|why| Failure::Call(format!("failed to call webhook: {why}"), 503))?;
        if answer.body.is_empty() {
            let code = answer.status.as_u16();
            let media = answer.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
            let why = format!("0-length response with status code: {code} and content type: {media}");
            return Err(Failure::Call(format!("failed to call webhook: {why}"), 503));
        }
        if let Some((code, why)) = review::failure(&answer) {
            return Err(Failure::Call(format!("failed to call webhook: {why}"), code));
        }
        let response = review::read(&answer.body, &request, changes).map_err(|why| match why {
            review::InvalidResponse::Decode(why) => format!("failed to call webhook: {why}"),
            review::InvalidResponse::Protocol(why) => format!("received invalid webhook response: {why}"),
            review::InvalidResponse::Unsupported(why) => why,
        });
        let response = response.map_err(|why| Failure::Call(why, 503))?;
        self.note(write, &response);
        match response.denied {
            Some(status) => Err(Failure::Denied(review::denial(&self.name, status))),
            None => Ok(response),
        }
    }

    async fn call(&self, write: &AdmissionAttributes<'_>, body: Bytes) -> Result<HttpResponse, String> {
        let query = format!("?timeout={}s", self.seconds);
        let calls = async {
            for _ in 1..MAX_CALLS {
                let answer = self.post(write, &query, body.clone()).await?;
                let Some(wait) = retry_after(&answer) else { return Ok(answer) };
                env::io::sleep(wait).await;
            }
            self.post(write, &query, body.clone()).await
        };
        match env::io::timeout(Duration::from_secs(self.seconds.unsigned_abs()), calls).await {
            Ok(answered) => answered,
            Err(_) => Err(format!(
                "Post {}: context deadline exceeded",
                quoted(&format!("{}{query}", self.server.url))
            )),
        }
    }

    async fn post(
        &self,
        write: &AdmissionAttributes<'_>,
        query: &str,
        body: Bytes,
    ) -> Result<HttpResponse, String> {
        let call = self.server.post(write.api, query, body);
        match fault_injection::choose(self.faults.as_deref(), &self.name, write) {
            None => call.await,
            Some(fault) => {
                let url = format!("{}{query}", self.server.url);
                Box::pin(fault_injection::inject(&fault, write, &url, call)).await
            }
        }
    }

    /// Adds the webhook's warnings and audit annotations.
    fn note(&self, write: &AdmissionAttributes<'_>, response: &ReviewResponse) {
        let record = &write.user.record;
        for warning in &response.warnings {
            if !warning.is_empty() && !warning.chars().any(char::is_control) {
                record.warn(warning.as_str());
            }
        }
        if record.audit_detail() == AuditDetail::Nothing {
            return;
        }
        for (key, value) in &response.annotations {
            let key = format!("{}/{key}", self.name);
            if schema::format::qualified_name(&key).is_empty() {
                record.annotate(key, value.as_str());
            }
        }
    }

    /// Counts a call, and turns its failure into an error, unless the webhook ignores failures.
    pub fn conclude<T>(
        &self,
        clients: &Clients,
        (write, manner, began): (&AdmissionAttributes<'_>, &'static str, Duration),
        outcome: Result<T, Failure>,
    ) -> Result<Option<T>, ApiError> {
        let took = clients.world.elapsed().saturating_sub(began);
        write.user.record.add_webhook_duration(took);
        let (end, judged) = match outcome {
            Ok(response) => (WebhookOutcome::Allowed, Ok(Some(response))),
            Err(Failure::Denied(error)) => (WebhookOutcome::Denied(error.code), Err(error)),
            Err(Failure::Refused(error)) => (WebhookOutcome::Refused, Err(error)),
            Err(Failure::Call(why, code)) => {
                let why = format!("failed calling webhook {}: {why}", quoted(&self.name));
                tracing::warn!(configuration = self.configuration, may_fail = self.may_fail, "{why}");
                let judged = if self.may_fail { Ok(None) } else { Err(ApiError::internal_error(why)) };
                (WebhookOutcome::Failed { code, rejected: !self.may_fail }, judged)
            }
        };
        clients.counters.record_call(&self.name, manner, write.operation, end, took);
        judged
    }
}

/// The delay before another call, if the response requests one.
fn retry_after(answer: &HttpResponse) -> Option<Duration> {
    if answer.status != http::StatusCode::TOO_MANY_REQUESTS && !answer.status.is_server_error() {
        return None;
    }
    let seconds = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
