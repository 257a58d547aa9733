//! Errors of a container runtime.

use std::fmt;

/// The kind of an error: the gRPC code of a runtime behind a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeCode {
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    /// The runtime does not answer.
    Unavailable,
}

impl RuntimeCode {
    /// The name, as Go programs write it.
    pub fn name(self) -> &'static str {
        match self {
            RuntimeCode::Unknown => "Unknown",
            RuntimeCode::InvalidArgument => "InvalidArgument",
            RuntimeCode::DeadlineExceeded => "DeadlineExceeded",
            RuntimeCode::NotFound => "NotFound",
            RuntimeCode::AlreadyExists => "AlreadyExists",
            RuntimeCode::PermissionDenied => "PermissionDenied",
            RuntimeCode::ResourceExhausted => "ResourceExhausted",
            RuntimeCode::FailedPrecondition => "FailedPrecondition",
            RuntimeCode::Unimplemented => "Unimplemented",
            RuntimeCode::Internal => "Internal",
            RuntimeCode::Unavailable => "Unavailable",
        }
    }
}

/// Why a call of the runtime failed. Its display is the text that events and statuses quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeError {
    pub code: RuntimeCode,
    pub message: String,
}

impl RuntimeError {
    pub fn new(code: RuntimeCode, message: impl Into<String>) -> Self {
        RuntimeError { code, message: message.into() }
    }

    pub fn is_not_found(&self) -> bool {
        self.code == RuntimeCode::NotFound
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code.name(), self.message)
    }
}

impl std::error::Error for RuntimeError {}
