//! Errors of a container's configuration.

use std::fmt;

/// Why a container has no configuration. The message is the one of its status and of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerConfigError {
    /// The reason of the waiting state.
    pub reason: &'static str,
    pub message: String,
}

impl ContainerConfigError {
    /// The spec cannot be turned into a configuration.
    pub fn new(message: impl Into<String>) -> Self {
        ContainerConfigError { reason: "CreateContainerConfigError", message: message.into() }
    }

    /// The runtime cannot take the configuration.
    pub fn of_create(message: impl Into<String>) -> Self {
        ContainerConfigError { reason: "CreateContainerError", message: message.into() }
    }
}

impl fmt::Display for ContainerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ContainerConfigError {}

impl From<String> for ContainerConfigError {
    fn from(message: String) -> Self {
        ContainerConfigError::new(message)
    }
}
