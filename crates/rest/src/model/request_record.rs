//! What is noted about a request while it is carried out: warnings for the client, annotations for the record,
//! and what the record shows of the objects that go in and out.
//!
//! What always holds: no more is kept than the record wants, and nothing unless somebody asked for it.

use crate::model::error::ApiError;
use bytes::Bytes;
use parking_lot::Mutex;
use schema::Value;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// How much the record of a request shows; each holds what those before it do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Shown {
    #[default]
    Nothing,
    /// Which object was meant.
    Reference,
    /// What was sent.
    Request,
    /// What was answered.
    Response,
}

/// What was seen of a request and its answer, as far as it is shown.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    /// What the object that was sent says of itself.
    pub named: Named,
    /// The object that was sent, or the patch, as compact JSON.
    pub request: Option<Bytes>,
    /// The answer, where it is a `Status`.
    pub status: Option<Bytes>,
    /// The answer as compact JSON.
    pub response: Option<Bytes>,
}

/// What an object says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl Named {
    fn of(object: &Value) -> Self {
        let text = |field| object.text(&["metadata", field]).to_owned();
        Named {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        }
    }
}

/// Where a request is on its way. Those that it does not come by are not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is known who asks.
    Authenticated,
    /// It is in the record.
    Recorded,
    /// It is known whom it is for.
    Impersonated,
    /// It is its turn.
    Admissible,
    /// It is permitted.
    Authorized,
    /// All of it is here.
    Received,
    /// Nobody has anything against the write.
    AdmissionAttributes,
    /// What was written is durable.
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
        Step::AdmissionAttributes,
        Step::Stored,
    ];

    /// What is done until it is reached.
    pub fn name(self) -> &'static str {
        match self {
            Step::Authenticated => "authentication",
            Step::Recorded => "audit",
            Step::Impersonated => "impersonation",
            Step::Admissible => "priorityandfairness",
            Step::Authorized => "authorization",
            Step::Received => "body",
            Step::AdmissionAttributes => "admission",
            Step::Stored => "store",
        }
    }
}

/// Shared by all that work on one request. The same note is kept once, since work may be done again.
#[derive(Debug, Default)]
pub struct RequestRecord {
    warnings: Mutex<Warnings>,
    annotations: Mutex<Vec<(String, String)>>,
    shown: AtomicU8,
    traffic: Mutex<Traffic>,
    /// When each step was reached, in nanoseconds; 0 is never. Of a step that is done again the last time counts.
    steps: [AtomicU64; Step::ALL.len()],
    /// Nanoseconds spent waiting for webhooks.
    elsewhere: AtomicU64,
    /// Whether its result is no longer awaited.
    given_up: AtomicBool,
}

/// How many characters all warnings together may have before each of them is truncated.
const TOTAL_LIMIT: usize = 4096;
/// How many characters each of them has then.
const ITEM_LIMIT: usize = 256;

/// What the client should know, as much as fits into the head of an answer.
#[derive(Debug, Default)]
struct Warnings {
    texts: Vec<String>,
    /// All texts as they came: each counts once.
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

/// How many of these warnings can be shown at most, when they come first.
pub fn count_shown<'a>(warnings: impl Iterator<Item = &'a str>) -> usize {
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
    /// A step is behind the request, by the clock that never goes back.
    pub fn reached(&self, step: Step, at: Duration) {
        self.steps[step as usize].store(nanoseconds(at), Ordering::Relaxed);
    }

    /// The steps that are behind it, in order, and when they were.
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

    /// An error where the result is no longer awaited. Long work asks between its stages.
    pub fn check_awaited(&self) -> Result<(), ApiError> {
        match self.given_up.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(ApiError::timeout("Timeout: request did not complete within the allotted timeout")),
        }
    }

    /// So long the request has waited for a webhook.
    pub fn waited_for_webhook(&self, long: Duration) {
        self.elsewhere.fetch_add(nanoseconds(long), Ordering::Relaxed);
    }

    /// How long it has waited for webhooks in all.
    pub fn elsewhere(&self) -> Duration {
        Duration::from_nanos(self.elsewhere.load(Ordering::Relaxed))
    }

    /// The client should know this although the request succeeds.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.lock().add(warning.into());
    }

    /// The client should know these before everything that is recorded so far.
    pub fn warn_first(&self, first: Vec<String>) {
        if first.is_empty() {
            return;
        }
        let mut warnings = self.warnings.lock();
        let later = std::mem::take(&mut *warnings).texts;
        first.into_iter().chain(later).for_each(|warning| warnings.add(warning));
    }

    /// The record of the request should say this; what was said first under a key stays.
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

    /// What has been said for the record so far.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.annotations.lock().clone()
    }

    /// Says how much the record shows.
    pub fn show(&self, shown: Shown) {
        self.shown.store(shown as u8, Ordering::Relaxed);
    }

    pub fn shown(&self) -> Shown {
        const ALL: [Shown; 4] = [Shown::Nothing, Shown::Reference, Shown::Request, Shown::Response];
        ALL[usize::from(self.shown.load(Ordering::Relaxed)).min(3)]
    }

    /// The object that was sent; `json` is made only where it is shown.
    pub fn saw_object(&self, object: &Value, json: impl FnOnce() -> Bytes) {
        if self.shown() >= Shown::Reference {
            self.traffic.lock().named = Named::of(object);
        }
        self.saw_request(|| Some(json()));
    }

    /// What was sent that is no object; `json` is made only where it is shown.
    pub fn saw_request(&self, json: impl FnOnce() -> Option<Bytes>) {
        if self.shown() >= Shown::Request {
            let json = json();
            self.traffic.lock().request = json;
        }
    }

    /// What is answered.
    pub fn saw_response(&self, json: &Bytes) {
        if self.shown() >= Shown::Response {
            self.traffic.lock().response = Some(json.clone());
        }
    }

    /// What is answered, where that is a `Status`.
    pub fn saw_status(&self, json: &Bytes) {
        if self.shown() >= Shown::Reference {
            self.traffic.lock().status = Some(json.clone());
        }
        self.saw_response(json);
    }

    /// Gives all that was seen.
    pub fn take_traffic(&self) -> Traffic {
        std::mem::take(&mut self.traffic.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_told_once_and_cut_when_they_are_long() {
        let notes = RequestRecord::default();
        for text in ["a", "b", "a"] {
            notes.warn(text);
        }
        assert_eq!(notes.take_warnings(), ["a", "b"]);
        notes.warn("é".repeat(4000));
        notes.warn("short");
        for nth in 0..10_000 {
            notes.warn(format!("{nth} {}", "x".repeat(1000)));
        }
        let told = notes.take_warnings();
        assert_eq!((told[0].as_str(), told[1].as_str()), ("é".repeat(256).as_str(), "short"));
        assert!(told.iter().all(|it| it.chars().count() <= 256));
        let length: usize = told.iter().map(|it| it.chars().count()).sum();
        assert!((4096..4096 + 256).contains(&length), "{length}");
    }
}
