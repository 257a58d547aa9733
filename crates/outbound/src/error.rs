//! Errors of targets and calls.

use std::time::Duration;

/// Why a target is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTarget {
    #[error("{0:?} is not a URL that can be called")]
    Url(String),
    #[error("{what} cannot be used: {why}")]
    Tls { what: &'static str, why: String },
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0:?} is not a URL that can be called")]
    Url(String),
    #[error("the token file cannot be read: {0}")]
    Credentials(String),
    #[error("{0}")]
    Connection(String),
    /// The connection was lost before the response.
    #[error("{0}")]
    Lost(String),
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
}
