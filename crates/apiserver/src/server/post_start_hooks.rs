//! Post-start hooks: work between opening the port and the first request.
//!
//! Invariant: API requests wait until all hooks are done; health endpoints respond meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::watch;

/// A post-start hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// System namespaces, and the `kubernetes` Service.
    Bootstrap,
    /// RBAC bootstrap roles, and the compiled policy.
    Roles,
    /// System priority classes.
    PriorityClasses,
    /// Mandatory and suggested flow schemas and priority levels.
    Fairness,
    /// APIServices of the local API versions.
    Registration,
}

impl Hook {
    pub const ALL: [Hook; 5] =
        [Hook::Bootstrap, Hook::Roles, Hook::PriorityClasses, Hook::Fairness, Hook::Registration];

    /// Names of its health checks.
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

/// Progress of the start.
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

    /// Waits until all hooks are done.
    pub async fn over(&self) {
        if !self.is_over() {
            // the sender cannot be gone: `self` holds it
            let _ = self.over.subscribe().wait_for(|over| *over).await;
        }
    }
}
