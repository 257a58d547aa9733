//! Errors of reconciliations, and of requests to the API server.

/// An error of a reconciliation; the key is retried with backoff.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Whether the server answered with this status code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Failure::Api(kube::Error::Api(answer)) if answer.code == code)
    }

    /// The message for users: that of the `Status` where the server sent one.
    pub fn message(&self) -> String {
        match self {
            Failure::Api(kube::Error::Api(answer)) => answer.message.clone(),
            other => other.to_string(),
        }
    }
}

/// Turns an answer with this status code into `None`: deleting an object that is gone (404) counts as success.
pub fn unless<T>(code: u16, answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(answer)) if answer.code == code => Ok(None),
        Err(why) => Err(why),
    }
}

/// Whether a write was refused because its namespace is terminating or gone.
pub fn is_terminating(why: &kube::Error) -> bool {
    matches!(why, kube::Error::Api(answer)
        if answer.code == 404 || answer.code == 403 && answer.message.contains("is being terminated"))
}
