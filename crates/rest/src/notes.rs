//! What is noted about a request while it is carried out: warnings for the client, annotations for the record.

use parking_lot::Mutex;

/// Shared by all that work on one request. The same note is kept once, since work may be done again.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<Vec<(String, String)>>,
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
}
