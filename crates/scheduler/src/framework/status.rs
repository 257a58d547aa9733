//! The statuses that plugins return.

use std::fmt;
use std::sync::Arc;

/// How a plugin rejects a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Removal of other pods might help.
    Unschedulable,
    /// Nothing that preemption does would help.
    UnschedulableAndUnresolvable,
    /// The plugin could not decide.
    Error,
}

/// Why a plugin rejects a pod, as users read it. Texts with parts are formatted only when they are shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    Text(&'static str),
    Insufficient(Arc<str>),
    UntoleratedTaint { key: Arc<str>, value: Arc<str> },
    Other(Arc<str>),
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Text(text) => out.write_str(text),
            Reason::Insufficient(resource) => write!(out, "Insufficient {resource}"),
            Reason::UntoleratedTaint { key, value } => {
                write!(out, "node(s) had untolerated taint {{{key}: {value}}}")
            }
            Reason::Other(text) => out.write_str(text),
        }
    }
}

/// A plugin's refusal of a pod, on one node or altogether.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub code: Code,
    pub reasons: Reasons,
}

/// One or more reasons; one needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reasons {
    One(Reason),
    Many(Vec<Reason>),
}

impl std::ops::Deref for Reasons {
    type Target = [Reason];

    fn deref(&self) -> &[Reason] {
        match self {
            Reasons::One(reason) => std::slice::from_ref(reason),
            Reasons::Many(reasons) => reasons,
        }
    }
}

impl Rejection {
    pub fn new(code: Code, reason: Reason) -> Self {
        Rejection { code, reasons: Reasons::One(reason) }
    }

    pub fn unschedulable(text: &'static str) -> Self {
        Rejection::new(Code::Unschedulable, Reason::Text(text))
    }

    pub fn unresolvable(text: &'static str) -> Self {
        Rejection::new(Code::UnschedulableAndUnresolvable, Reason::Text(text))
    }

    pub fn unresolvable_with(text: String) -> Self {
        Rejection::new(Code::UnschedulableAndUnresolvable, Reason::Other(text.into()))
    }

    pub fn error(text: impl Into<Arc<str>>) -> Self {
        Rejection::new(Code::Error, Reason::Other(text.into()))
    }

    pub fn message(&self) -> String {
        let reasons: Vec<String> = self.reasons.iter().map(Reason::to_string).collect();
        reasons.join(", ")
    }
}

/// The answer of a filter.
pub type FilterResult = Result<(), Rejection>;
