//! Reasons why a server cannot be called, or did not answer.

use std::time::Duration;

/// Why nobody can be called.
#[derive(Debug, thiserror::Error)]
pub enum BadTarget {
    #[error("{0:?} is not a URL that can be called")]
    Url(String),
    #[error("{what} cannot be used: {why}")]
    Tls { what: &'static str, why: String },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0:?} is not a URL that can be called")]
    Url(String),
    #[error("the token file cannot be read: {0}")]
    Credentials(String),
    #[error("{0}")]
    Connection(String),
    /// There was a connection, and it went away before the answer was there.
    #[error("{0}")]
    Lost(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// A procedure that did not do what was asked, and says so.
    #[error("rpc error: code = {code} desc = {why}")]
    Refused { code: &'static str, why: String },
}
