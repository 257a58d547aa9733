//! Errors of the start.

use crate::configuration::StartError;

/// An error of the start, in upstream's form.
pub fn failed(why: impl std::fmt::Display) -> StartError {
    StartError::new(format!("failed to run Kubelet: {why}"))
}
