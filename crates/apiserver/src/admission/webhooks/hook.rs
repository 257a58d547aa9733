//! One webhook: its rules, its client, and the outcome of a call.

use super::clients::Clients;
use super::metrics::End;
use super::review::{self, Question, Verdict};
use crate::admission::matching::{Meant, Rule, Selected, is_dry_run};
use crate::outgoing::webhook_target::Reached;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use outbound::{Answer, Limits};
use rest::{AdmissionAttributes, ApiError, Shown};
use schema::Value;
use schema::problem::quoted;
use std::time::Duration;

/// An answer holds a patch at most, which is about as large as an object.
const LARGEST_ANSWER: usize = 4 * 1024 * 1024;
/// How often a webhook that asks to be called later is called.
const MOST_CALLS: usize = 10;

pub(super) struct Hook {
    pub name: String,
    pub configuration: String,
    pub rules: Vec<Rule>,
    /// Other versions of what the rules name are meant as well.
    pub equivalent: bool,
    pub selected: Selected,
    pub may_fail: bool,
    /// Wants to see what others make of an object after it.
    pub again: bool,
    /// Changes nothing elsewhere when nothing will be kept.
    dry: bool,
    seconds: i64,
    version: &'static str,
    server: Reached,
}

/// Why a write may not go on.
pub(super) enum Failure {
    /// The webhook says so.
    Denied(ApiError),
    /// There is no answer that means anything; with the code under which it is counted.
    Call(String, u16),
    /// It was not to be called, or its answer cannot be followed.
    Refused(ApiError),
}

impl Hook {
    pub fn of(hook: &Value, configuration: &str, clients: &Clients) -> Self {
        let seconds = hook.at(&["timeoutSeconds"]).and_then(Value::as_int).unwrap_or(10).clamp(1, 30);
        let time = Duration::from_secs(seconds.unsigned_abs());
        let spoken = hook.items(&["admissionReviewVersions"]).iter().filter_map(Value::as_str);
        let spoken = spoken.filter_map(|it| review::VERSIONS.into_iter().find(|known| *known == it));
        let nothing = Value::map();
        let config = hook.at(&["clientConfig"]).unwrap_or(&nothing);
        Hook {
            name: hook.text(&["name"]).to_owned(),
            configuration: configuration.to_owned(),
            rules: hook.items(&["rules"]).iter().map(Rule::of).collect(),
            equivalent: hook.text(&["matchPolicy"]) == "Equivalent",
            selected: Selected::of(hook),
            may_fail: hook.text(&["failurePolicy"]) == "Ignore",
            again: hook.text(&["reinvocationPolicy"]) == "IfNeeded",
            dry: matches!(hook.text(&["sideEffects"]), "None" | "NoneOnDryRun"),
            seconds,
            version: spoken.into_iter().next().unwrap_or(review::VERSIONS[0]),
            server: Reached::of(
                config,
                clients.way.clone(),
                Limits { time, answer: LARGEST_ANSWER },
                &clients.users,
            )
            .counted_in(&clients.calls),
        }
    }

    /// Asks about a write.
    pub async fn ask(
        &self,
        write: &AdmissionAttributes<'_>,
        meant: &Meant,
        (object, old): (&[u8], &[u8]),
        changes: bool,
    ) -> Result<Verdict, Failure> {
        let dry_run = is_dry_run(write);
        if dry_run && !self.dry {
            let why = format!("admission webhook {} does not support dry run", quoted(&self.name));
            return Err(Failure::Refused(ApiError::bad_request(why)));
        }
        let uid = rest::metadata::new_uid(&write.api.world);
        let question = Question { write, meant, version: self.version, uid: &uid, object, old, dry_run };
        let answer = self.call(write, question.json().into()).await;
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
        let verdict = review::read(&answer.body, &question, changes).map_err(|why| match why {
            review::Unreadable::Form(why) => format!("failed to call webhook: {why}"),
            review::Unreadable::Sense(why) => format!("received invalid webhook response: {why}"),
            review::Unreadable::Wish(why) => why,
        });
        let verdict = verdict.map_err(|why| Failure::Call(why, 503))?;
        self.note(write, &verdict);
        match verdict.denied {
            Some(told) => Err(Failure::Denied(review::denial(&self.name, told))),
            None => Ok(verdict),
        }
    }

    async fn call(&self, write: &AdmissionAttributes<'_>, body: Bytes) -> Result<Answer, String> {
        let query = format!("?timeout={}s", self.seconds);
        let calls = async {
            for _ in 1..MOST_CALLS {
                let answer = self.server.post(write.api, &query, body.clone()).await?;
                let Some(wait) = asked_to_wait(&answer) else { return Ok(answer) };
                tokio::time::sleep(wait).await;
            }
            self.server.post(write.api, &query, body.clone()).await
        };
        match tokio::time::timeout(Duration::from_secs(self.seconds.unsigned_abs()), calls).await {
            Ok(answered) => answered,
            Err(_) => Err(format!(
                "Post {}: context deadline exceeded",
                quoted(&format!("{}{query}", self.server.url))
            )),
        }
    }

    /// Keeps what the webhook has to say to the client, and for the record.
    fn note(&self, write: &AdmissionAttributes<'_>, verdict: &Verdict) {
        let notes = &write.user.notes;
        for warning in &verdict.warnings {
            if !warning.is_empty() && !warning.chars().any(char::is_control) {
                notes.warn(warning.as_str());
            }
        }
        if notes.shown() == Shown::Nothing {
            return;
        }
        for (key, value) in &verdict.annotations {
            let key = format!("{}/{key}", self.name);
            if schema::format::qualified_name(&key).is_empty() {
                notes.annotate(key, value.as_str());
            }
        }
    }

    /// Counts a call, and says what its failure means for the write; a webhook that may fail has none.
    pub fn judge<T>(
        &self,
        clients: &Clients,
        (write, manner, began): (&AdmissionAttributes<'_>, &'static str, Duration),
        outcome: Result<T, Failure>,
    ) -> Result<Option<T>, ApiError> {
        let took = clients.world.elapsed().saturating_sub(began);
        write.user.notes.waited_for_webhook(took);
        let (end, judged) = match outcome {
            Ok(verdict) => (End::Allowed, Ok(Some(verdict))),
            Err(Failure::Denied(error)) => (End::Denied(error.code), Err(error)),
            Err(Failure::Refused(error)) => (End::Refused, Err(error)),
            Err(Failure::Call(why, code)) => {
                let why = format!("failed calling webhook {}: {why}", quoted(&self.name));
                tracing::warn!(configuration = self.configuration, may_fail = self.may_fail, "{why}");
                let judged = if self.may_fail { Ok(None) } else { Err(ApiError::internal_error(why)) };
                (End::Failed { code, rejected: !self.may_fail }, judged)
            }
        };
        clients.counters.ended(&self.name, manner, write.operation, end, took);
        judged
    }
}

/// How long to wait before another call, where the answer asks for that.
fn asked_to_wait(answer: &Answer) -> Option<Duration> {
    if answer.status != http::StatusCode::TOO_MANY_REQUESTS && !answer.status.is_server_error() {
        return None;
    }
    let seconds = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
