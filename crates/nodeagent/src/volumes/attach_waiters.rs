//! Pods that wait for their volumes to be attached, and the receivers of changes about attached volumes.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// See the module. Receivers are set once, after the parts of the agent that they call exist.
#[derive(Default)]
pub struct AttachWaiters {
    /// Uids of pods.
    waiting: Mutex<BTreeSet<String>>,
    in_use: OnceLock<Box<dyn Fn(Vec<String>) + Send + Sync>>,
    changed: OnceLock<Box<dyn Fn(&str) + Send + Sync>>,
}

impl AttachWaiters {
    /// Sets the receiver of the volumes that must not be detached.
    pub fn on_use(&self, receiver: impl Fn(Vec<String>) + Send + Sync + 'static) {
        let _ = self.in_use.set(Box::new(receiver));
    }

    /// Sets the receiver of pods whose volumes may be mounted now.
    pub fn on_change(&self, receiver: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.changed.set(Box::new(receiver));
    }

    pub fn publish_use(&self, volumes: impl FnOnce() -> Vec<String>) {
        if let Some(receiver) = self.in_use.get() {
            receiver(volumes());
        }
    }

    pub fn insert(&self, uid: &str) {
        self.waiting.lock().insert(uid.to_owned());
    }

    pub fn remove(&self, uid: &str) {
        self.waiting.lock().remove(uid);
    }

    pub fn wake(&self, uid: &str) {
        if let Some(changed) = self.changed.get() {
            changed(uid);
        }
    }

    /// The node has changed: volumes may be attached.
    pub fn node_changed(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.iter().for_each(|uid| self.wake(uid));
    }
}
