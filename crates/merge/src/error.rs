//! Why a patch was refused.

/// The text of an [`Error`] is what the client reads; the [`Rejection`] behind it is for logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is not of the form that its media type asks for.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    #[error(
        "Request entity too large: The allowed maximum operations in a JSON patch is {max}, got {0}",
        max = crate::json_patch::MAX_OPERATIONS
    )]
    TooManyOperations(usize),
    /// The patch is well formed and does not apply.
    #[error("the server rejected our request due to an error in our request")]
    Rejected(#[source] Rejection),
    /// A strategic merge patch is not an object, or a directive in it is not of its form.
    #[error("{0}")]
    BadPatch(String),
    /// A strategic merge patch does not go together with the object. Clients know this as a 500.
    #[error("{0}")]
    Unmergeable(String),
    /// The patched object does not have the form of its type: the patch as clients see it, and what is wrong.
    #[error(" \"\" is invalid: patch: Invalid value: {}: {why}", schema::problem::quoted(patch))]
    Misfit { patch: String, why: String },
}

impl Error {
    /// The HTTP status that the error is answered with.
    pub fn code(&self) -> u16 {
        match self {
            Error::Malformed(_) | Error::BadPatch(_) => 400,
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

/// Why a patch does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("operation {0} has an unknown kind: {1:?}")]
    UnknownOperation(usize, String),
    #[error("operation {0} lacks {1:?}")]
    Lacks(usize, &'static str),
    #[error("there is nothing at {0:?}")]
    Missing(String),
    #[error("{0:?} is no index of the list")]
    BadIndex(String),
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
