//! Watches flow schemas and priority levels.

use cache::{Interest, Watcher};
use rest::{Collection, Object};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Changes of several collections, merged: the receiver reads the whole state each time.
pub(crate) struct Changes {
    collections: Vec<Arc<Collection>>,
    watchers: Vec<Watcher<Object>>,
}

impl Changes {
    /// Watches from now on.
    pub fn of(collections: Vec<Arc<Collection>>) -> Self {
        let mut changes = Changes { collections, watchers: Vec::new() };
        changes.watch();
        changes
    }

    fn watch(&mut self) {
        let watch = |collection: &Arc<Collection>| collection.cache.watch_now(Interest::All).0;
        self.watchers = self.collections.iter().map(watch).collect();
    }

    /// Waits for changes and takes all that are pending; `false` when there will be no more.
    pub async fn next(&mut self) -> bool {
        match next(&mut self.watchers).await {
            None => false,
            Some(missed) => {
                if missed {
                    self.watch();
                }
                true
            }
        }
    }
}

/// Whether changes were missed; `None` when a watch has ended.
async fn next(watchers: &mut [Watcher<Object>]) -> Option<bool> {
    if watchers.is_empty() {
        return None;
    }
    let mut events = Vec::new();
    poll_fn(|cx| {
        let (mut changed, mut missed) = (false, false);
        for watcher in watchers.iter_mut() {
            loop {
                events.clear();
                match watcher.poll_batch(cx, &mut events, 256) {
                    Poll::Pending => break,
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(Some(Ok(_))) => changed = true,
                    Poll::Ready(Some(Err(_))) => {
                        missed = true;
                        break;
                    }
                }
            }
        }
        if changed || missed { Poll::Ready(Some(missed)) } else { Poll::Pending }
    })
    .await
}
