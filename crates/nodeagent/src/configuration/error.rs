//! The error of a start.

/// Why the agent does not start. The text is the whole message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    pub message: String,
    pub exit_status: u8,
}

impl StartError {
    pub fn new(message: impl Into<String>) -> Self {
        StartError { message: message.into(), exit_status: 1 }
    }
}
