//! Post-start hooks: work between opening the port and the first request.
//!
//! What always holds: a request that needs any of it waits until all of it is done; health is told meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::watch;

/// A piece of that work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// The namespaces of every cluster, and the service by which pods reach the server.
    Bootstrap,
    /// The roles of every cluster, and the policy made from them.
    Roles,
    /// The priority classes of every cluster.
    PriorityClasses,
    /// The flow schemas and priority levels of every cluster.
    Fairness,
    /// The objects of the API versions that are served here.
    Registration,
}

impl Hook {
    pub const ALL: [Hook; 5] =
        [Hook::Bootstrap, Hook::Roles, Hook::PriorityClasses, Hook::Fairness, Hook::Registration];

    /// What its health checks are called.
    pub fn checks(self) -> &'static [&'static str] {
        match self {
            Hook::Bootstrap => &["poststarthook/bootstrap-controller"],
            Hook::Roles => &["poststarthook/rbac/bootstrap-roles"],
            Hook::PriorityClasses => &["poststarthook/scheduling/bootstrap-system-priority-classes"],
            Hook::Fairness => &["poststarthook/priority-and-fairness-config-producer"],
            Hook::Registration => &[
                "poststarthook/apiservice-registration-controller",
                "poststarthook/apiservice-status-available-controller",
                "autoregister-completion",
                "poststarthook/apiservice-openapi-controller",
                "poststarthook/apiservice-openapiv3-controller",
            ],
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// How far the start has come.
#[derive(Debug)]
pub struct Start {
    left: AtomicU32,
    over: watch::Sender<bool>,
}

impl Default for Start {
    fn default() -> Self {
        let left = Hook::ALL.iter().fold(0, |left, hook| left | hook.bit());
        Start { left: AtomicU32::new(left), over: watch::Sender::new(false) }
    }
}

impl Start {
    pub fn finish(&self, hook: Hook) {
        let before = self.left.fetch_and(!hook.bit(), Ordering::AcqRel);
        if before & !hook.bit() == 0 {
            self.over.send_replace(true);
        }
    }

    pub fn is_finished(&self, hook: Hook) -> bool {
        self.left.load(Ordering::Acquire) & hook.bit() == 0
    }

    pub fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Waits until everything is done.
    pub async fn over(&self) {
        if !self.is_over() {
            // the error would mean that the sender is gone, but `self` holds it
            let _ = self.over.subscribe().wait_for(|over| *over).await;
        }
    }
}
