//! Shutdown phases, which only advance.
//!
//! ```text
//! Serving ──drain──► Draining ──refuse──► Refusing ──stop──► Stopping ──cut──► Cut
//! ```
//!
//! - Draining: requests are served as before, but readiness fails, so that load balancers pick other servers.
//! - Refusing: requests in flight go on, new ones get 429. Optional.
//! - Stopping: no new connections; clients get a GOAWAY; watches end.
//! - Cut: connections that are still open are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// A phase of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not begun.
    Serving,
    /// Announced: still serving, no longer ready.
    Draining,
    /// Serving requests in flight only.
    Refusing,
    /// Finishing requests in flight.
    Stopping,
    /// Closing all remaining connections.
    Cut,
}

/// A shared handle to start the shutdown or to wait for its phases.
#[derive(Debug, Clone)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
    /// The same for checks on every request.
    refusing: Arc<AtomicBool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { phase: Arc::new(watch::Sender::new(Phase::Serving)), refusing: Arc::default() }
    }
}

impl Shutdown {
    /// The initial phase, serving.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces the shutdown.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Refuses new requests.
    pub fn refuse(&self) {
        self.advance(Phase::Refusing);
        self.refusing.store(true, Ordering::Relaxed);
    }

    /// Begins to stop.
    pub fn stop(&self) {
        self.advance(Phase::Stopping);
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.advance(Phase::Cut);
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Whether the shutdown was announced: readiness fails.
    pub fn is_draining(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    /// Whether new requests are refused.
    pub fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// Waits until streams, such as watches, must end.
    pub async fn wait_for_stop(&self) {
        self.wait_for(Phase::Stopping).await;
    }

    /// Waits for `phase` or a later one.
    pub async fn wait_for(&self, phase: Phase) {
        // the sender cannot be gone: `self` holds it
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
    async fn phases_only_advance() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_draining());
        shutdown.stop();
        shutdown.drain();
        assert_eq!(shutdown.phase(), Phase::Stopping);
        shutdown.wait_for_stop().await;
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.wait_for(Phase::Cut).await }
        });
        shutdown.cut();
        waiting.await.unwrap();
    }
}
