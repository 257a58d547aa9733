//! Why a step of a pod ended early.

use crate::runtime::RuntimeError;

#[derive(Debug)]
pub enum StepError {
    /// The pod is to end, or to end sooner.
    Interrupted,
    /// The runtime does not answer, or refuses to end a container.
    Runtime(RuntimeError),
}

impl From<RuntimeError> for StepError {
    fn from(why: RuntimeError) -> Self {
        StepError::Runtime(why)
    }
}
