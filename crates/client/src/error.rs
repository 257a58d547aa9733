//! Errors of requests to the API server, and of reconciliations.

use api::meta::v1::Status;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error.
    #[error("{}", format_value(.0))]
    Api(Box<Status>),
    /// The server was not reached, or its answer broke off.
    #[error("the server cannot be reached: {0}")]
    Transport(BoxError),
    /// The response has an unexpected form.
    #[error("the answer cannot be read: {0}")]
    Decode(String),
    /// The request cannot be sent, for instance because a name is empty.
    #[error("the request cannot be made: {0}")]
    Request(String),
}

/// The message of an error, with its reason where it is there.
fn format_value(status: &Status) -> String {
    match (&*status.message, &*status.reason) {
        (message, "") => message.to_owned(),
        ("", reason) => reason.to_owned(),
        (message, reason) => format!("{message}: {reason}"),
    }
}

impl Error {
    /// Whether the server answered with this status code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Error::Api(status) if status.code == i32::from(code))
    }

    pub fn is_not_found(&self) -> bool {
        self.is(404)
    }

    /// Whether the object has changed, or a create met an object of the same name.
    pub fn is_conflict(&self) -> bool {
        self.is(409)
    }

    /// Whether a create met an object of the same name.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
    }

    /// The message for users: that of the `Status` where the server sent one.
    pub fn message(&self) -> String {
        match self {
            Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }
    }

    /// The `Status` that the server sent.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Error::Api(status) => Some(status),
            _ => None,
        }
    }
}

impl From<api::ReadError> for Error {
    fn from(error: api::ReadError) -> Self {
        Error::Decode(error.to_string())
    }
}

/// An error of a reconciliation; the key is retried with backoff.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Whether the server answered with this status code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Failure::Api(error) if error.is(code))
    }

    /// The message for users: that of the `Status` where the server sent one.
    pub fn message(&self) -> String {
        match self {
            Failure::Api(error) => error.message(),
            Failure::Other(message) => message.clone(),
        }
    }
}

/// Turns an answer with this status code into `None`: deleting an object that is gone (404) counts as success.
pub fn unless<T>(code: u16, answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is(code) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a write was refused because its namespace is terminating or gone.
pub fn is_terminating(error: &Error) -> bool {
    error.is(404) || error.is(403) && error.message().contains("is being terminated")
}
