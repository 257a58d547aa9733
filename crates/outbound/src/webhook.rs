//! A webhook client: posts an API object and reads the same kind of object from the response.
//!
//! Invariants: a result is an object of the posted kind and version (or without either), from a response with a
//! success status. A server that is overloaded or drops the connection is retried a few times with backoff; a
//! server that is unreachable, times out or sends an invalid response is not. Errors never contain the posted
//! object.

use crate::{CallError, HttpClient, HttpResponse};
use env::{World, random_u64};
use http::StatusCode;
use http::header::RETRY_AFTER;
use schema::{Value, decode, encode};
use std::time::Duration;

/// The number of attempts, and the delays in between.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    /// The factor by which each delay grows.
    pub factor: f64,
    /// The largest random fraction added to a delay.
    pub jitter: f64,
    /// The total number of attempts.
    pub tries: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(500), factor: 1.5, jitter: 0.2, tries: 5 }
    }
}

impl Backoff {
    /// The delay after so many attempts.
    fn wait(&self, tried: u32, world: &World) -> Duration {
        let random = random_u64(world) as f64 / u64::MAX as f64;
        let times =
            self.factor.powi(i32::try_from(tried).unwrap_or(i32::MAX) - 1) * (1.0 + random * self.jitter);
        self.first.mul_f64(times)
    }
}

/// The API version of the review objects that are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    V1,
    /// The default, unless the operator configures another.
    #[default]
    V1beta1,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V1beta1 => "v1beta1",
        }
    }
}

impl std::str::FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [Version::V1, Version::V1beta1].into_iter().find(|it| it.name() == text);
        known.ok_or("unknown version; expected v1 or v1beta1")
    }
}

/// Why a webhook gave no valid result.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the server responded with status {0}")]
    Status(StatusCode),
    #[error("the server's response is not a JSON object")]
    NotAnObject,
    #[error("the server responded with {found} instead of {expected}")]
    OtherKind { found: String, expected: String },
    #[error("{0} in the server's answer is not what it should be")]
    Field(&'static str),
}

/// A webhook server.
pub struct Webhook {
    caller: HttpClient,
    backoff: Backoff,
    world: World,
}

impl Webhook {
    pub fn new(caller: HttpClient, backoff: Backoff, world: World) -> Self {
        Webhook { caller, backoff, world }
    }

    /// Posts an object and returns the one in the response.
    pub async fn ask(&self, question: &Value) -> Result<Value, WebhookError> {
        let body = bytes::Bytes::from(encode::untyped(question));
        let mut tried = 1;
        loop {
            let outcome = self.caller.post("", body.clone()).await;
            if tried < self.backoff.tries && is_transient(&outcome) {
                env::io::sleep(self.backoff.wait(tried, &self.world)).await;
                tried += 1;
                continue;
            }
            return read(outcome?, question);
        }
    }
}

/// Whether a failure may be transient.
fn is_transient(outcome: &Result<HttpResponse, CallError>) -> bool {
    match outcome {
        Ok(answer) => {
            let has_retry_after =
                || answer.status.is_server_error() && answer.headers.contains_key(RETRY_AFTER);
            matches!(
                answer.status,
                StatusCode::INTERNAL_SERVER_ERROR
                    | StatusCode::GATEWAY_TIMEOUT
                    | StatusCode::TOO_MANY_REQUESTS
            ) || has_retry_after()
        }
        Err(why) => matches!(why, CallError::Lost(_)),
    }
}

fn read(answer: HttpResponse, question: &Value) -> Result<Value, WebhookError> {
    if !answer.status.is_success() {
        return Err(WebhookError::Status(answer.status));
    }
    let value = decode::json_untyped(&answer.body).map_err(|_| WebhookError::NotAnObject)?.value;
    if value.as_map().is_none() {
        return Err(WebhookError::NotAnObject);
    }
    let of = |value: &Value| [value.text(&["apiVersion"]).to_owned(), value.text(&["kind"]).to_owned()];
    let (found, expected) = (of(&value), of(question));
    if found.iter().zip(&expected).any(|(found, expected)| !found.is_empty() && found != expected) {
        let message = |[version, kind]: [String; 2]| format!("{kind:?} of {version:?}");
        return Err(WebhookError::OtherKind { found: message(found), expected: message(expected) });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Scripted;
    use crate::{Limits, Target};
    use env::Simulated;

    async fn ask(answers: &[&str]) -> (Result<Value, WebhookError>, usize) {
        let server = Scripted::start(answers).await;
        let target = Target { url: server.url(), ..Target::default() };
        let limits = Limits { time: Duration::from_secs(30), answer: 10_000 };
        let backoff = Backoff { first: Duration::from_millis(1), ..Backoff::default() };
        let caller = HttpClient::new(&target, limits).unwrap();
        let hook = Webhook::new(caller, backoff, Simulated::new(0, 7));
        let mut question = Value::map();
        question.set(&["apiVersion"], "a/v1");
        question.set(&["kind"], "Question");
        let outcome = hook.ask(&question).await;
        (outcome, server.calls())
    }

    const GOOD: &str = "200 {\"apiVersion\":\"a/v1\",\"kind\":\"Question\",\"status\":{\"yes\":true}}";

    #[tokio::test]
    async fn transient_errors_are_retried() {
        for is_transient in ["500 x", "429 x", "504 x", "503 retry-after", "lost"] {
            let (outcome, calls) = ask(&[is_transient, is_transient, GOOD]).await;
            assert_eq!(outcome.unwrap().at(&["status", "yes"]), Some(&true.into()), "{is_transient}");
            assert_eq!(calls, 3, "{is_transient}");
        }
        let (outcome, calls) = ask(&["500 x"; 9]).await;
        assert!(matches!(outcome, Err(WebhookError::Status(status)) if status == 500) && calls == 5);
    }

    #[tokio::test]
    async fn invalid_responses_are_not_retried() {
        let large = format!("200 {{\"x\":\"{}\"}}", "x".repeat(20_000));
        for (answer, part) in [
            ("503 x", "status 503"),
            ("404 {}", "status 404"),
            ("302 {}", "status 302"),
            ("200 <html>hello</html>", "not a JSON object"),
            ("200 []", "not a JSON object"),
            ("200 ", "not a JSON object"),
            ("200 {\"kind\":\"Question\"} {}", "not a JSON object"),
            ("200 {\"apiVersion\":\"a/v2\",\"kind\":\"Question\"}", "\"Question\" of \"a/v2\""),
            ("200 {\"apiVersion\":\"a/v1\",\"kind\":\"Pod\"}", "\"Pod\" of \"a/v1\""),
            (&large, "larger than 10000 bytes"),
        ] {
            let (outcome, calls) = ask(&[answer, GOOD]).await;
            let message = outcome.unwrap_err().to_string();
            assert!(message.contains(part) && calls == 1, "{answer}: {message} after {calls}");
        }
        // an object without a kind is accepted
        assert!(ask(&["201 {\"status\":{}}"]).await.0.is_ok());
    }

    #[test]
    fn waits_grow() {
        let world: World = Simulated::new(0, 7);
        let waits: Vec<_> = (1..5).map(|tried| Backoff::default().wait(tried, &world)).collect();
        for (wait, least) in waits.iter().zip([500, 750, 1125, 1687]) {
            let least = Duration::from_millis(least);
            assert!(*wait >= least && *wait <= least.mul_f64(1.21), "{waits:?}");
        }
    }
}
