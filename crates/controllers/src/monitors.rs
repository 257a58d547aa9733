//! Metadata informers of every resource that can be deleted.
//!
//! Resources come and go: which there are is asked again from time to time, and when a definition of one changes. Nothing
//! is kept here but which resources are followed; who listens keeps what it needs.
//!
//! What always holds: who begins to listen is told of everything there is, and others may be told again meanwhile.

use client::Backoff;
use client::discovery::{ApiResources, Discovery, Resource};
use client::key::Key;
use client::reflector::{self, Page, Sink, Source, WatchProgress, list_and_watch};
use kube::Client;
use kube::api::WatchEvent;
use names::Names;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// How often is asked which resources there are.
const PERIOD: Duration = Duration::from_secs(30);
/// How long is waited when a definition changes: it is seldom alone.
const SETTLE: Duration = Duration::from_millis(500);

/// An object, as far as anybody here looks at it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Object {
    #[serde(default)]
    pub metadata: Metadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub deletion_timestamp: Option<String>,
    pub finalizers: Vec<String>,
    pub owner_references: Vec<Reference>,
}

/// A reference to an owner.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub block_owner_deletion: bool,
}

/// The receiver of changes. Its methods must return soon.
pub trait Listener: Send + Sync + 'static {
    fn put(&self, of: &Arc<Resource>, object: &Metadata);

    fn gone(&self, of: &Arc<Resource>, object: &Metadata);

    /// There are no other objects of this resource.
    fn whole(&self, of: &Arc<Resource>, uids: &HashSet<String>);

    /// A resource is followed no longer.
    fn ended(&self, of: &Arc<Resource>);
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Monitors {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    discovery: Arc<Discovery>,
    ignored: [(String, &'static str); 2],
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// Those that have not been listed yet; nothing before it is known which there are.
    unlisted: Mutex<Option<HashSet<Arc<Resource>>>>,
    synced: watch::Sender<bool>,
    /// How often it could not be found out which there are, or not all of them were listed in time.
    troubles: AtomicU64,
    /// Definitions have changed, or somebody listens anew.
    poked: Notify,
}

impl Monitors {
    /// Nothing is followed before [`keep`](Self::keep) runs.
    pub(crate) fn new(client: Client, discovery: Arc<Discovery>, names: &Names) -> Self {
        let shared = Shared {
            client,
            discovery,
            // they come in numbers, own nothing and go by themselves
            ignored: [(String::new(), "events"), (names.group("events"), "events")],
            listeners: RwLock::default(),
            unlisted: Mutex::default(),
            synced: watch::Sender::new(false),
            troubles: AtomicU64::new(0),
            poked: Notify::new(),
        };
        Monitors { shared: Arc::new(shared) }
    }

    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.shared.listeners.write().push(listener);
        self.shared.poked.notify_one();
    }

    /// Whether everything there is has been told.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// How often it could not be found out which resources there are, or a whole period went by and not all were listed.
    pub fn troubles(&self) -> u64 {
        self.shared.troubles.load(Ordering::Relaxed)
    }

    fn trouble(&self) {
        self.shared.troubles.fetch_add(1, Ordering::Relaxed);
    }

    pub async fn synced(&self) {
        // the sender lives as long as this
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Follows what there is, for ever.
    pub(crate) async fn keep(self) {
        let mut following = Following::default();
        let mut backoff = Backoff::default();
        loop {
            match self.shared.discovery.since(Instant::now()).await {
                Ok(served) => {
                    backoff = Backoff::default();
                    self.follow_served(&mut following, &served);
                }
                Err(why) => {
                    tracing::warn!(%why, "cannot find out which resources there are");
                    self.trouble();
                    tokio::time::sleep(backoff.pause()).await;
                    continue;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {
                    if !self.is_synced() {
                        self.trouble();
                    }
                }
                () = self.shared.poked.notified() => tokio::time::sleep(SETTLE).await,
            }
        }
    }

    fn wants(&self, resource: &Resource) -> bool {
        let ignored =
            |(group, plural): &(String, &str)| *group == resource.group && *plural == resource.plural;
        ["delete", "list", "watch"].iter().all(|verb| resource.can(verb))
            && !self.shared.ignored.iter().any(ignored)
    }

    fn follow_served(&self, following: &mut Following, served: &ApiResources) {
        let wanted: HashSet<&Arc<Resource>> = served.preferred().filter(|it| self.wants(it)).collect();
        let listeners = self.shared.listeners.read();
        let anew = following.listeners != listeners.len();
        following.listeners = listeners.len();
        let mut ended = Vec::new();
        following.tasks.retain(|resource, task| {
            // a group that does not answer may still have it
            let stays = wanted.contains(resource) || served.group_failed(&resource.group);
            if !stays || anew {
                task.abort();
            }
            if !stays {
                ended.push(resource.clone());
            }
            stays && !anew
        });
        for resource in &ended {
            listeners.iter().for_each(|listener| listener.ended(resource));
        }
        drop(listeners);
        while following.all.try_join_next().is_some() {}
        let new: Vec<_> =
            wanted.into_iter().filter(|it| !following.tasks.contains_key(*it)).cloned().collect();
        {
            let mut unlisted = self.shared.unlisted.lock();
            let unlisted = unlisted.get_or_insert_default();
            unlisted.retain(|it| following.tasks.contains_key(it));
            unlisted.extend(new.iter().cloned());
            self.shared.synced.send_replace(unlisted.is_empty());
        }
        for resource in new {
            let (client, path) = (self.shared.client.clone(), resource.path(""));
            let source = Source { client, path, fields: String::new(), bare: true };
            let monitor = Monitor { resource: resource.clone(), shared: self.shared.clone() };
            let work = list_and_watch(source, Box::new(monitor));
            following.tasks.insert(resource, following.all.spawn(work));
        }
    }
}

/// What is followed. All of it ends with this.
#[derive(Default)]
struct Following {
    all: JoinSet<()>,
    tasks: HashMap<Arc<Resource>, AbortHandle>,
    /// How many listened when it began.
    listeners: usize,
}

/// One resource that is followed.
struct Monitor {
    resource: Arc<Resource>,
    shared: Arc<Shared>,
}

impl Monitor {
    fn tell(&self, tell: impl Fn(&dyn Listener)) {
        self.shared.listeners.read().iter().for_each(|listener| tell(&**listener));
    }

    /// Objects of some kinds say which resources there are.
    fn defines(&self) {
        if matches!(&*self.resource.plural, "customresourcedefinitions" | "apiservices") {
            self.shared.poked.notify_one();
        }
    }
}

/// What they are known by is the uid alone: the same name may stand for another object.
impl Sink for Monitor {
    fn list_page(&self, text: &str, all: &mut HashSet<Key>) -> Result<Page, serde_json::Error> {
        let (objects, page) = reflector::page::<Object>(text)?;
        for object in objects {
            self.tell(|listener| listener.put(&self.resource, &object.metadata));
            all.insert(Key::new("", object.metadata.uid));
        }
        Ok(page)
    }

    fn list_complete(&self, all: HashSet<Key>, _: &str) {
        let uids = all.into_iter().map(|key| key.name).collect();
        self.tell(|listener| listener.whole(&self.resource, &uids));
        let mut unlisted = self.shared.unlisted.lock();
        if let Some(unlisted) = &mut *unlisted
            && unlisted.remove(&self.resource)
        {
            self.shared.synced.send_replace(unlisted.is_empty());
        }
    }

    fn watch_event(&self, line: &str) -> Result<WatchProgress, serde_json::Error> {
        let object = match serde_json::from_str::<WatchEvent<Object>>(line)? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.tell(|listener| listener.put(&self.resource, &object.metadata));
                object
            }
            WatchEvent::Deleted(object) => {
                self.tell(|listener| listener.gone(&self.resource, &object.metadata));
                object
            }
            WatchEvent::Bookmark(mark) => return Ok(WatchProgress::Reached(mark.metadata.resource_version)),
            WatchEvent::Error(status) => return Ok(WatchProgress::Failed(status)),
        };
        self.defines();
        Ok(WatchProgress::Reached(object.metadata.resource_version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::task::{Context, Poll};
    use tower_service::Service;

    /// A server that does not say what it has.
    #[derive(Clone)]
    struct Silent;

    impl Service<Request<Body>> for Silent {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            ready(Ok(Response::builder().status(503).body(Body::empty()).unwrap()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_found_out_is_counted() {
        let client = Client::new(Silent, "default");
        let discovery = Arc::new(Discovery::new(client.clone()));
        let monitors = Monitors::new(client, discovery, &Names::kubernetes());
        let keeping = tokio::spawn(monitors.clone().keep());
        while monitors.troubles() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!monitors.is_synced());
        keeping.abort();
    }
}
