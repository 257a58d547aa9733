//! Types of events before they are written: type, reason, message, and the object that they are about.

use api::core::v1::{EventSource, ObjectReference};
use std::sync::Arc;

/// The `type` of an event: `Warning` asks for attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

/// An event that a pure decision yields; [`Recorder::note`](super::Recorder::note) records it about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub event_type: EventType,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Note { event_type: EventType::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Note { event_type: EventType::Warning, reason, message: message.into() }
    }
}

/// An event to be written.
pub(super) struct Record {
    pub source: Arc<EventSource>,
    pub about: ObjectReference,
    pub event_type: EventType,
    pub reason: String,
    pub message: String,
}
