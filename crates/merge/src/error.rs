//! Errors of patches.

/// The error of a patch. Its text goes to the client; the [`Rejection`] that it holds goes to logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch does not have the form of its media type.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    #[error(
        "Request entity too large: The allowed maximum operations in a JSON patch is {max}, got {0}",
        max = crate::limits::MAX_OPERATIONS
    )]
    TooManyOperations(usize),
    /// The patch is well formed but does not apply.
    #[error("the server rejected our request due to an error in our request")]
    Rejected(#[source] Rejection),
    /// A strategic merge patch is not an object, or has a malformed directive.
    #[error("{0}")]
    InvalidPatch(String),
    /// A strategic merge patch cannot be merged with the object. The API answers 500.
    #[error("{0}")]
    Unmergeable(String),
    /// The patched object does not have the form of its type: the patch as clients see it, and the reason.
    #[error(" \"\" is invalid: patch: Invalid value: {}: {why}", schema::problem::quoted(patch))]
    Misfit { patch: String, why: String },
}

impl Error {
    /// The HTTP status code of the error.
    pub fn code(&self) -> u16 {
        match self {
            Error::Malformed(_) | Error::InvalidPatch(_) => 400,
            Error::TooManyOperations(_) => 413,
            Error::Rejected(_) | Error::Misfit { .. } => 422,
            Error::Unmergeable(_) => 500,
        }
    }
}

impl From<Rejection> for Error {
    fn from(why: Rejection) -> Self {
        Error::Rejected(why)
    }
}

/// The reason why a well-formed patch does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("operation {0} has an unknown kind: {1:?}")]
    UnknownOperation(usize, String),
    #[error("operation {0} lacks {1:?}")]
    Lacks(usize, &'static str),
    #[error("there is nothing at {0:?}")]
    Missing(String),
    #[error("{0:?} is no index of the list")]
    InvalidIndex(String),
    #[error("the value at {0:?} is another one")]
    TestFailed(String),
    #[error("the patch nests values too deeply")]
    TooDeep,
    #[error("the patch copies too much")]
    TooMuchCopied,
    #[error("the patch moves too many entries of long lists and maps")]
    TooMuchMoved,
    #[error("lists of lists are not supported")]
    ListOfLists,
}
