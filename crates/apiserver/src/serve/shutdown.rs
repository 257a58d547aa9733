//! Phases of a shutdown, as one value that only moves forward.
//!
//! ```text
//! Serving ──drain──► Draining ──refuse──► Refusing ──stop──► Stopping ──cut──► Cut
//! ```
//!
//! Draining: requests are answered as ever, but readiness says no, so that balancers look elsewhere.
//! Refusing: what is going on goes on, but new requests are told to come back later. May be left out.
//! Stopping: no new connections, clients are told to send no further requests, watches end.
//! Cut: what has not ended by now is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not begun.
    Serving,
    /// Announced: still answering, no longer ready.
    Draining,
    /// Still answering, but no new requests.
    Refusing,
    /// Finishing what is going on.
    Stopping,
    /// Closing whatever is left.
    Cut,
}

/// The handle that everybody who starts, or waits for, the end holds a clone of.
#[derive(Debug, Clone)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
    /// The same for those who look at every request.
    refusing: Arc<AtomicBool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { phase: Arc::new(watch::Sender::new(Phase::Serving)), refusing: Arc::default() }
    }
}

impl Shutdown {
    /// A server that serves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces the end.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Lets no new requests in.
    pub fn refuse(&self) {
        self.advance(Phase::Refusing);
        self.refusing.store(true, Ordering::Relaxed);
    }

    /// Begins the end.
    pub fn stop(&self) {
        self.advance(Phase::Stopping);
    }

    /// Closes whatever is still open.
    pub fn cut(&self) {
        self.advance(Phase::Cut);
    }

    /// How far the end has come.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether the end was announced: readiness is then denied.
    pub fn is_draining(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    /// Whether new requests are turned away.
    pub fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// Waits until streams without an end of their own, such as watches, are to end.
    pub async fn stopping(&self) {
        self.reached(Phase::Stopping).await;
    }

    /// Waits until `phase` or a later one.
    pub async fn reached(&self, phase: Phase) {
        // the error would mean that the sender is gone, but `self` holds it
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|now| {
            let later = to > *now;
            *now = (*now).max(to);
            later
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_only_comes_nearer() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_draining());
        shutdown.stop();
        shutdown.drain();
        assert_eq!(shutdown.phase(), Phase::Stopping);
        shutdown.stopping().await;
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.reached(Phase::Cut).await }
        });
        shutdown.cut();
        waiting.await.unwrap();
    }
}
