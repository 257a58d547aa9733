//! Garbage of the image store: removed with an image, and at the start what pulls and removals of an agent before have left.
//!
//! Nothing is removed while an image is pulled or a container is made; then it is tried again until it is done.

use super::record::used_layers;
use super::state::{State, blocking, image_error};
use crate::RuntimeError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time before another attempt.
const DELAY: Duration = Duration::from_secs(1);

impl State {
    /// Removes garbage, now or once the store is not in use.
    pub fn collect_garbage(self: &Arc<Self>) -> Result<(), RuntimeError> {
        if !self.try_to_collect()? {
            self.collect_garbage_later(DELAY);
        }
        Ok(())
    }

    /// Removes garbage in the background, with another attempt each second while the store is in use.
    pub fn collect_garbage_later(self: &Arc<Self>, mut delay: Duration) {
        if self.garbage.is_due.swap(true, Ordering::SeqCst) {
            return;
        }
        let (weak, world) = (Arc::downgrade(self), self.world.clone());
        tokio::spawn(async move {
            loop {
                env::sleep(&world, delay).await;
                delay = DELAY;
                let Some(state) = weak.upgrade() else { return };
                // what is removed from now on may come too late for this attempt
                state.garbage.is_due.store(false, Ordering::SeqCst);
                let attempt = state.clone();
                match blocking(move || attempt.try_to_collect()).await {
                    Ok(true) => return,
                    Ok(false) if state.garbage.is_due.swap(true, Ordering::SeqCst) => return,
                    Ok(false) => {}
                    Err(why) => {
                        tracing::warn!(%why, "unused content and layers of images cannot be removed");
                        return;
                    }
                }
            }
        });
    }

    /// Whether the store was not in use.
    fn try_to_collect(&self) -> Result<bool, RuntimeError> {
        let _attempt = self.garbage.attempt.lock();
        let freed = self.images.collect_garbage(|| used_layers(&self.options.root));
        Ok(freed.map_err(|why| image_error(&why))?.is_some())
    }
}
