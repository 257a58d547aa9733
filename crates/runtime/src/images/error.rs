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
    /// The same error, of a step of something larger.
    pub fn within(self, step: &str) -> Self {
        let text = |it: String| format!("{step}: {it}");
        match self {
            ImageError::Invalid(it) => ImageError::Invalid(text(it)),
            ImageError::NotFound(it) => ImageError::NotFound(text(it)),
            ImageError::Denied(it) => ImageError::Denied(text(it)),
            ImageError::Registry(it) => ImageError::Registry(text(it)),
            ImageError::Io(it, why) => ImageError::Io(text(it), why),
        }
    }

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
