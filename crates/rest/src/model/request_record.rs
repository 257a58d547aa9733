//! The record of one request: warnings for the client, annotations and objects for the audit log, times of its steps.
//!
//! Invariant: objects are recorded only as far as the audit level requires.

use crate::model::error::ApiError;
use bytes::Bytes;
use parking_lot::Mutex;
use schema::Value;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// How much the audit log shows of a request; each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AuditDetail {
    #[default]
    Nothing,
    /// The reference to the object.
    Reference,
    /// The request object.
    Request,
    /// The response object.
    Response,
}

/// The recorded objects of a request and its response.
#[derive(Debug, Clone, Default)]
pub struct RecordedObjects {
    /// The identity of the request object.
    pub reference: ObjectReference,
    /// The request object, or the patch, as compact JSON.
    pub request: Option<Bytes>,
    /// The response, where it is a `Status`.
    pub status: Option<Bytes>,
    /// The response as compact JSON.
    pub response: Option<Bytes>,
}

/// The identity of an object, by its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl ObjectReference {
    fn of(object: &Value) -> Self {
        let text = |field| object.text(&["metadata", field]).to_owned();
        ObjectReference {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        }
    }
}

/// The steps of a request. A request may skip some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The user is known.
    Authenticated,
    /// The audit event is recorded.
    Recorded,
    /// The impersonated user is known.
    Impersonated,
    /// It has a seat.
    Admissible,
    /// It is authorized.
    Authorized,
    /// Its body is read.
    Received,
    /// Admission has accepted the write.
    Admitted,
    /// The write is durable.
    Stored,
}

impl Step {
    pub const ALL: [Step; 8] = [
        Step::Authenticated,
        Step::Recorded,
        Step::Impersonated,
        Step::Admissible,
        Step::Authorized,
        Step::Received,
        Step::Admitted,
        Step::Stored,
    ];

    /// The name of the work before the step.
    pub fn name(self) -> &'static str {
        match self {
            Step::Authenticated => "authentication",
            Step::Recorded => "audit",
            Step::Impersonated => "impersonation",
            Step::Admissible => "priorityandfairness",
            Step::Authorized => "authorization",
            Step::Received => "body",
            Step::Admitted => "admission",
            Step::Stored => "store",
        }
    }
}

/// The record of one request, shared by its stages. A repeated entry is kept once, since a stage may run again.
#[derive(Debug, Default)]
pub struct RequestRecord {
    warnings: Mutex<Warnings>,
    annotations: Mutex<Vec<(String, String)>>,
    audit_detail: AtomicU8,
    recorded_objects: Mutex<RecordedObjects>,
    /// When each step was reached, in nanoseconds; 0 is never. Of a step that is done again the last time counts.
    steps: [AtomicU64; Step::ALL.len()],
    /// Nanoseconds spent waiting for webhooks.
    webhook_duration: AtomicU64,
    /// Whether its result is no longer awaited.
    given_up: AtomicBool,
}

/// How many characters all warnings together may have before each of them is truncated.
const TOTAL_LIMIT: usize = 4096;
/// How many characters each of them has then.
const ITEM_LIMIT: usize = 256;

/// Warnings for the client, as many as fit into the headers of a response.
#[derive(Debug, Default)]
struct Warnings {
    texts: Vec<String>,
    /// All texts before truncation: each counts once.
    recorded: HashSet<String>,
    /// How many characters the texts have together.
    length: usize,
    truncates: bool,
}

impl Warnings {
    fn add(&mut self, warning: String) {
        if warning.is_empty() || self.is_full() || self.recorded.contains(&warning) {
            return;
        }
        self.recorded.insert(warning.clone());
        self.push(warning);
        if self.length > TOTAL_LIMIT && !self.truncates {
            self.truncates = true;
            self.length = 0;
            std::mem::take(&mut self.texts).into_iter().for_each(|it| self.push(it));
        }
    }

    /// Whether no more warnings are shown.
    fn is_full(&self) -> bool {
        self.truncates && self.length >= TOTAL_LIMIT
    }

    fn push(&mut self, mut warning: String) {
        if self.truncates
            && let Some((at, _)) = warning.char_indices().nth(ITEM_LIMIT)
        {
            warning.truncate(at);
        }
        self.length += warning.chars().count();
        self.texts.push(warning);
    }
}

/// How many of these warnings fit at most, when they come first.
pub fn count_fitting<'a>(warnings: impl Iterator<Item = &'a str>) -> usize {
    let mut length = 0;
    let fits = |text: &&str| {
        let before = length;
        length += text.chars().take(ITEM_LIMIT).count();
        before <= TOTAL_LIMIT
    };
    warnings.take_while(fits).count()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl RequestRecord {
    /// Records the time of a step, by the monotonic clock.
    pub fn reached(&self, step: Step, at: Duration) {
        self.steps[step as usize].store(nanoseconds(at), Ordering::Relaxed);
    }

    /// The steps so far, in order, with their times.
    pub fn steps(&self) -> impl Iterator<Item = (Step, Duration)> {
        let reached = |step: Step| match self.steps[step as usize].load(Ordering::Relaxed) {
            0 => None,
            at => Some((step, Duration::from_nanos(at))),
        };
        Step::ALL.into_iter().filter_map(reached)
    }

    /// The result is no longer awaited: its client is gone, or its time is over.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// An error where the result is no longer awaited. The write pipeline checks it between stages.
    pub fn check_awaited(&self) -> Result<(), ApiError> {
        match self.given_up.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(ApiError::timeout("Timeout: request did not complete within the allotted timeout")),
        }
    }

    /// Adds time spent waiting for a webhook.
    pub fn add_webhook_duration(&self, long: Duration) {
        self.webhook_duration.fetch_add(nanoseconds(long), Ordering::Relaxed);
    }

    /// The total time spent waiting for webhooks.
    pub fn webhook_duration(&self) -> Duration {
        Duration::from_nanos(self.webhook_duration.load(Ordering::Relaxed))
    }

    /// Adds a warning for the client.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.lock().add(warning.into());
    }

    /// Adds warnings in front of those recorded so far.
    pub fn warn_first(&self, first: Vec<String>) {
        if first.is_empty() {
            return;
        }
        let mut warnings = self.warnings.lock();
        let later = std::mem::take(&mut *warnings).texts;
        first.into_iter().chain(later).for_each(|warning| warnings.add(warning));
    }

    /// Adds an annotation for the audit log; the first value of a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let (key, mut annotations) = (key.into(), self.annotations.lock());
        if !annotations.iter().any(|(there, _)| *there == key) {
            annotations.push((key, value.into()));
        }
    }

    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock()).texts
    }

    pub fn take_annotations(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.annotations.lock())
    }

    /// The annotations so far.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.annotations.lock().clone()
    }

    /// Sets the level of the audit log.
    pub fn set_audit_detail(&self, detail: AuditDetail) {
        self.audit_detail.store(detail as u8, Ordering::Relaxed);
    }

    pub fn audit_detail(&self) -> AuditDetail {
        const ALL: [AuditDetail; 4] =
            [AuditDetail::Nothing, AuditDetail::Reference, AuditDetail::Request, AuditDetail::Response];
        ALL[usize::from(self.audit_detail.load(Ordering::Relaxed)).min(3)]
    }

    /// Records the request object; `json` is called only at a sufficient level.
    pub fn record_object(&self, object: &Value, json: impl FnOnce() -> Bytes) {
        if self.audit_detail() >= AuditDetail::Reference {
            self.recorded_objects.lock().reference = ObjectReference::of(object);
        }
        self.record_request(|| Some(json()));
    }

    /// Records a request body that is no object; `json` is called only at a sufficient level.
    pub fn record_request(&self, json: impl FnOnce() -> Option<Bytes>) {
        if self.audit_detail() >= AuditDetail::Request {
            let json = json();
            self.recorded_objects.lock().request = json;
        }
    }

    /// Records the response.
    pub fn record_response(&self, json: &Bytes) {
        if self.audit_detail() >= AuditDetail::Response {
            self.recorded_objects.lock().response = Some(json.clone());
        }
    }

    /// Records a response that is a `Status`.
    pub fn record_status(&self, json: &Bytes) {
        if self.audit_detail() >= AuditDetail::Reference {
            self.recorded_objects.lock().status = Some(json.clone());
        }
        self.record_response(json);
    }

    /// Takes the recorded objects.
    pub fn take_objects(&self) -> RecordedObjects {
        std::mem::take(&mut self.recorded_objects.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_unique_and_truncated() {
        let record = RequestRecord::default();
        for text in ["a", "b", "a"] {
            record.warn(text);
        }
        assert_eq!(record.take_warnings(), ["a", "b"]);
        record.warn("é".repeat(4000));
        record.warn("short");
        for nth in 0..10_000 {
            record.warn(format!("{nth} {}", "x".repeat(1000)));
        }
        let formatted = record.take_warnings();
        assert_eq!((formatted[0].as_str(), formatted[1].as_str()), ("é".repeat(256).as_str(), "short"));
        assert!(formatted.iter().all(|it| it.chars().count() <= 256));
        let length: usize = formatted.iter().map(|it| it.chars().count()).sum();
        assert!((4096..4096 + 256).contains(&length), "{length}");
    }
}
