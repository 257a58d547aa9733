//! The error of decoding.

use crate::source::SyntaxError;

/// The error of a value that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Syntax(#[from] SyntaxError),
    #[error("{0}")]
    Type(String),
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(String),
}
