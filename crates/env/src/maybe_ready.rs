//! An answer that most often is there at once and sometimes takes its time.
//!
//! What is decided from memory costs no allocation and no turn of the scheduler; what must ask another server
//! is a future like any other. Who asks need not know which of the two it is.

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

    /// The answer if it is there.
    pub fn now(self) -> Option<T> {
        match self {
            MaybeReady::Now(answer) => Some(answer),
            MaybeReady::Later(_) => None,
        }
    }

    /// The answer itself.
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
