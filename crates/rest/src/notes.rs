//! What is noted about a request while it is carried out: warnings for the client, annotations for the record,
//! and what the record shows of the objects that go in and out.
//!
//! What always holds: no more is kept than the record wants, and nothing unless somebody asked for it.

use bytes::Bytes;
use parking_lot::Mutex;
use schema::Value;
use std::sync::atomic::{AtomicU8, Ordering};

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

/// Shared by all that work on one request. The same note is kept once, since work may be done again.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<Vec<(String, String)>>,
    shown: AtomicU8,
    traffic: Mutex<Traffic>,
}

impl Notes {
    /// The client should know this although the request succeeds.
    pub fn warn(&self, warning: impl Into<String>) {
        let (warning, mut warnings) = (warning.into(), self.warnings.lock());
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// The record of the request should say this; what was said first under a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let (key, mut annotations) = (key.into(), self.annotations.lock());
        if !annotations.iter().any(|(there, _)| *there == key) {
            annotations.push((key, value.into()));
        }
    }

    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
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
