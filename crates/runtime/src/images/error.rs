//! Errors of images.

use std::io;
use std::path::Path;

/// Why an image cannot be stored, unpacked, pulled or read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image, its name or an archive breaks a rule.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}: not found")]
    NotFound(String),
    /// The registry refuses the credentials, or needs some.
    #[error("{0}")]
    Denied(String),
    /// The registry does not answer, or answers with an error.
    #[error("{0}")]
    Registry(String),
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

impl ImageError {
    /// For `map_err`: an error about a file.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> ImageError {
        let path = path.display().to_string();
        move |why| ImageError::Io(path, why)
    }

    /// For `map_err`: an error about an action.
    pub fn during<E: Into<io::Error>>(action: &str) -> impl FnOnce(E) -> ImageError {
        move |why| ImageError::Io(action.to_owned(), why.into())
    }
}
