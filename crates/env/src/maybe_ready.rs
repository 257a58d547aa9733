//! A result that is either ready at once or a future.
//!
//! A decision from memory costs no allocation and no turn of the scheduler; a decision that calls another server is
//! a future. The caller need not know which of the two it gets.

use std::pin::Pin;

/// See the module.
pub enum MaybeReady<'a, T> {
    Now(T),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> MaybeReady<'a, T> {
    pub fn later(work: impl Future<Output = T> + Send + 'a) -> Self {
        MaybeReady::Later(Box::pin(work))
    }

    /// The result, if it is ready.
    pub fn now(self) -> Option<T> {
        match self {
            MaybeReady::Now(answer) => Some(answer),
            MaybeReady::Later(_) => None,
        }
    }

    /// Waits for the result.
    pub async fn get(self) -> T {
        match self {
            MaybeReady::Now(answer) => answer,
            MaybeReady::Later(work) => work.await,
        }
    }
}

impl<T> From<T> for MaybeReady<'_, T> {
    fn from(answer: T) -> Self {
        MaybeReady::Now(answer)
    }
}
