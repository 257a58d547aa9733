//! Watch: the events of a collection from a revision on that a selector matches.

use crate::model::error::ApiError;
use crate::model::object::Object;
use crate::model::options::ListOptions;
use crate::model::selector::Selector;
use crate::pipeline::api::Api;
use crate::storage::freshness::parse_revision;
use crate::storage::resource::Resource;
use cache::{Event, Interest, Key, Lagged, Watcher};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The type of an event for a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }
}

/// One event for a watcher.
pub enum WatchEvent {
    /// An object that existed when the watch began.
    Initial(Arc<Object>),
    /// The shared event, whose encodings are shared too.
    Event(Change, Arc<Event<Object>>),
    /// An object that the selector no longer matches: the last state that it matched, under the new revision.
    Left(Arc<Object>),
}

impl WatchEvent {
    /// The object of the event.
    pub fn object(&self) -> &Arc<Object> {
        match self {
            WatchEvent::Initial(object) | WatchEvent::Left(object) => object,
            WatchEvent::Event(_, event) => &event.entry,
        }
    }
}

/// A running watch.
pub struct Watch {
    initial: VecDeque<Arc<Object>>,
    watcher: Watcher<Object>,
    selector: Selector,
    closed: bool,
}

impl Api {
    /// Begins a watch. Watches of one `group` are woken together: those of a connection have the same.
    pub async fn watch(
        &self,
        resource: &Resource,
        namespace: &str,
        options: &ListOptions,
        group: u64,
    ) -> Result<Watch, ApiError> {
        let collection = &resource.collection;
        let selector = resource.selector(&options.label_selector, &options.field_selector)?;
        let interest = interest(&selector, namespace, resource);
        if options.resource_version.is_empty() {
            self.catch_up().await?;
        }
        if matches!(&*options.resource_version, "" | "0") {
            let (watcher, snapshot) = collection.cache.watch_now_in(group, interest);
            let within = (!namespace.is_empty()).then_some(namespace);
            let initial = snapshot
                .range(within, None)
                .map(|(_, object)| object)
                .filter(|object| selector.matches(object));
            return Ok(Watch { initial: initial.cloned().collect(), watcher, selector, closed: false });
        }
        let from = parse_revision(&options.resource_version)?;
        let watcher = collection
            .cache
            .watch_after_in(group, from, interest)
            .map_err(|gone| ApiError::gone(too_old(resource, from, gone.oldest)))?;
        Ok(Watch { initial: VecDeque::new(), watcher, selector, closed: false })
    }
}

/// The message of a watch from a revision that is no longer known. Upstream has no watch cache for objects that expire,
/// and reports them with the words of its store.
fn too_old(resource: &Resource, from: u64, oldest: u64) -> String {
    match resource.hooks.storage.lifetime_seconds {
        Some(_) => "The resourceVersion for the provided watch is too old.".to_owned(),
        None => format!("too old resource version: {from} ({oldest})"),
    }
}

/// The part of the selector that the hub indexes.
fn interest(selector: &Selector, namespace: &str, resource: &Resource) -> Interest {
    let namespace = if namespace.is_empty() && resource.kind.namespaced {
        selector.namespace().unwrap_or("")
    } else {
        namespace
    };
    let term = resource.collection.indexed.and_then(|at| selector.field(at));
    match (selector.name(), term) {
        (Some(name), _) if !namespace.is_empty() || !resource.kind.namespaced => {
            Interest::Object(Key::new(namespace, name))
        }
        (_, Some(term)) if namespace.is_empty() => Interest::Term(term.into()),
        (_, Some(term)) => Interest::TermIn { namespace: namespace.into(), term: term.into() },
        _ if namespace.is_empty() => Interest::All,
        _ => Interest::Namespace(namespace.into()),
    }
}

impl Watch {
    /// Ends the watch: no event follows.
    pub fn close(&mut self) {
        self.initial.clear();
        self.closed = true;
    }

    /// The next event. `Ready(None)`: the server ends the watch; `Err`: the client was too slow.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent, Lagged>>> {
        if self.closed {
            return Poll::Ready(None);
        }
        if let Some(object) = self.initial.pop_front() {
            return Poll::Ready(Some(Ok(WatchEvent::Initial(object))));
        }
        loop {
            match std::task::ready!(self.watcher.poll_recv(cx)) {
                None => return Poll::Ready(None),
                Some(Err(lagged)) => return Poll::Ready(Some(Err(lagged))),
                Some(Ok(event)) => {
                    if let Some(seen) = select(&self.selector, event) {
                        return Poll::Ready(Some(Ok(seen)));
                    }
                }
            }
        }
    }

    /// How many initial objects are still to be delivered.
    pub fn initial(&self) -> usize {
        self.initial.len()
    }

    /// The initial objects that are still to be delivered.
    pub fn initial_objects(&self) -> Vec<Arc<Object>> {
        self.initial.iter().cloned().collect()
    }

    /// The revision up to which everything has been delivered, for a bookmark.
    pub fn progress(&self) -> Option<u64> {
        if self.initial.is_empty() { self.watcher.delivered_up_to() } else { None }
    }
}

/// The event for a watcher with this selector; `None` where it is unaffected.
fn select(selector: &Selector, event: Arc<Event<Object>>) -> Option<WatchEvent> {
    if selector.is_empty() {
        let change = match (event.deleted, &event.previous) {
            (true, _) => Change::Deleted,
            (false, None) => Change::Added,
            (false, Some(_)) => Change::Modified,
        };
        return Some(WatchEvent::Event(change, event));
    }
    let before = event.previous.as_ref().is_some_and(|previous| selector.matches(previous));
    let after = !event.deleted && selector.matches(&event.entry);
    match (before, after) {
        (true, true) => Some(WatchEvent::Event(Change::Modified, event)),
        (false, true) => Some(WatchEvent::Event(Change::Added, event)),
        (true, false) if event.deleted => Some(WatchEvent::Event(Change::Deleted, event)),
        (true, false) => {
            event.previous.as_ref().map(|previous| WatchEvent::Left(previous.restamped(event.revision)))
        }
        (false, false) => None,
    }
}
