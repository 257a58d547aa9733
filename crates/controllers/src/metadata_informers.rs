//! Metadata informers of every resource that can be deleted.
//!
//! Resources come and go: discovery runs when a definition of a resource changes, and periodically, because another
//! server's resources change without one. They keep no objects; listeners keep what they need. The metadata of a resource
//! comes from the informer that the loops have of it, and from a watch where there is none.
//!
//! Invariants: a new listener receives every object that exists; the others may receive objects again meanwhile.

use api::meta::v1::{ObjectMeta, PartialObjectMetadata};
use bytes::Bytes;
use client::KnownInformers;
use client::discovery::{ApiResources, Discovery, Resource};
use client::informer::MetadataFollower;
use client::key::Key;
use client::reflector::{self, Page, Sink, Source, WatchProgress, list_and_watch};
use client::{Backoff, Client, Error, WatchEvent};
use env::io::RealInstant;
use env::{Upkeep, World};
use names::Names;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The interval of discovery while resources may change without a definition: those of an aggregated server, or some that
/// could not be fetched or listed.
const PERIOD: Duration = Duration::from_secs(30);
/// The interval otherwise.
const LONG_PERIOD: Duration = Duration::from_secs(600);
/// The wait after a definition changes, because several often change together.
const SETTLE: Duration = Duration::from_millis(500);

/// The receiver of changes. Its methods must return soon.
pub trait Listener: Send + Sync + 'static {
    fn put(&self, of: &Arc<Resource>, object: &ObjectMeta);

    fn gone(&self, of: &Arc<Resource>, object: &ObjectMeta);

    /// The resource has been listed: it has these objects and no others.
    fn whole(&self, of: &Arc<Resource>, uids: &HashSet<String>);

    /// A resource is no longer watched.
    fn ended(&self, of: &Arc<Resource>);
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct MetadataInformers {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// The informers of the loops.
    known: KnownInformers,
    world: World,
    discovery: Arc<Discovery>,
    ignored: [(String, &'static str); 2],
    /// The label of API services that the API server serves itself.
    local_service: String,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// The resources that have not been listed yet; `None` before the first discovery.
    unlisted: Mutex<Option<HashSet<Arc<Resource>>>>,
    synced: watch::Sender<bool>,
    /// The number of failed discoveries, and of intervals after which some resource was not listed.
    sync_failures: Arc<AtomicU64>,
    /// Definitions have changed, or there is a new listener.
    poked: Notify,
    /// The API services of aggregated servers, by uid.
    aggregated: Mutex<HashSet<String>>,
}

impl MetadataInformers {
    /// Nothing is watched before [`keep`](Self::keep) runs.
    pub(crate) fn new(
        client: Client,
        known: KnownInformers,
        discovery: Arc<Discovery>,
        names: &Names,
        world: World,
    ) -> Self {
        let shared = Shared {
            client,
            known,
            world,
            discovery,
            // events are many, own nothing and expire
            ignored: [(String::new(), "events"), (names.group("events"), "events")],
            local_service: names.well_known_under(&format!("{}-aggregator", names.prefix), "automanaged"),
            listeners: RwLock::default(),
            unlisted: Mutex::default(),
            synced: watch::Sender::new(false),
            sync_failures: Arc::default(),
            poked: Notify::new(),
            aggregated: Mutex::default(),
        };
        MetadataInformers { shared: Arc::new(shared) }
    }

    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.shared.listeners.write().push(listener);
        self.shared.poked.notify_one();
    }

    /// Drops the listeners, which may hold these informers.
    pub(crate) fn close(&self) {
        let listeners = std::mem::take(&mut *self.shared.listeners.write());
        // dropped without the lock
        drop(listeners);
    }

    /// Whether every resource has been listed.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// The number of failed discoveries, and of intervals after which some resource was not listed. Metrics hold the
    /// counter alone: they outlive the informers, which hold the server.
    pub fn sync_failures(&self) -> Arc<AtomicU64> {
        self.shared.sync_failures.clone()
    }

    fn count_failure(&self) {
        self.shared.sync_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub async fn synced(&self) {
        // the sender lives as long as the informers
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Watches all resources, for ever.
    pub(crate) async fn keep(self) {
        let mut following = RunningInformers::default();
        let mut backoff = Backoff::default();
        loop {
            let is_complete = match self.shared.discovery.since(RealInstant::now()).await {
                Ok(served) => {
                    backoff = Backoff::default();
                    self.follow_served(&mut following, &served);
                    served.failed.is_empty()
                }
                Err(why) => {
                    tracing::warn!(%why, "discovery failed");
                    self.count_failure();
                    env::sleep(&self.shared.world, backoff.pause()).await;
                    continue;
                }
            };
            let is_settled = is_complete && self.is_synced() && self.shared.aggregated.lock().is_empty();
            let period = if is_settled { LONG_PERIOD } else { PERIOD };
            tokio::select! {
                biased;
                () = env::sleep_upkeep(&self.shared.world, Upkeep::check(period)) => {
                    if !self.is_synced() {
                        self.count_failure();
                    }
                }
                () = self.shared.poked.notified() => env::sleep(&self.shared.world, SETTLE).await,
            }
        }
    }

    fn wants(&self, resource: &Resource) -> bool {
        let ignored =
            |(group, plural): &(String, &str)| *group == resource.group && *plural == resource.plural;
        ["delete", "list", "watch"].iter().all(|verb| resource.can(verb))
            && !self.shared.ignored.iter().any(ignored)
    }

    fn follow_served(&self, following: &mut RunningInformers, served: &ApiResources) {
        let wanted: HashSet<&Arc<Resource>> = served.preferred().filter(|it| self.wants(it)).collect();
        let listeners = self.shared.listeners.read();
        let anew = following.listeners != listeners.len();
        following.listeners = listeners.len();
        let mut ended = Vec::new();
        following.tasks.retain(|resource, task| {
            // a group that does not answer may still have the resource
            let stays = wanted.contains(resource) || served.group_failed(&resource.group);
            if !stays || anew {
                task.abort();
            }
            if !stays {
                ended.push(resource.clone());
            }
            stays && !anew
        });
        // listeners queue work: in the same order each time
        ended.sort_by_cached_key(|resource| resource.path(""));
        for resource in &ended {
            listeners.iter().for_each(|listener| listener.ended(resource));
        }
        drop(listeners);
        while following.all.try_join_next().is_some() {}
        let mut seen = HashSet::new();
        let is_new = |it: &&Arc<Resource>| {
            wanted.contains(it) && !following.tasks.contains_key(*it) && seen.insert(Arc::clone(it))
        };
        let new: Vec<_> = served.preferred().filter(is_new).cloned().collect();
        {
            let mut unlisted = self.shared.unlisted.lock();
            let unlisted = unlisted.get_or_insert_default();
            unlisted.retain(|it| following.tasks.contains_key(it));
            unlisted.extend(new.iter().cloned());
            self.shared.synced.send_replace(unlisted.is_empty());
        }
        for resource in new {
            let informer = MetadataInformer { resource: resource.clone(), shared: self.shared.clone() };
            let task = following.all.spawn(follow(informer));
            following.tasks.insert(resource, task);
        }
    }
}

/// Follows a resource, until the future is dropped.
async fn follow(informer: MetadataInformer) {
    let (client, path) = (informer.shared.client.clone(), informer.resource.path(""));
    let (known, is_definition) = (informer.shared.known.clone(), informer.defines_resources());
    let informer = Arc::new(informer);
    let follower: Arc<dyn MetadataFollower> = informer.clone();
    // the informer would not tell a list from a change, after which discovery runs
    if !is_definition && known.follow_metadata(&path, &follower) {
        // it ends with the last reference
        return std::future::pending().await;
    }
    let source = Source { client, path, fields: String::new(), metadata_only: true };
    list_and_watch(source, Box::new(OwnWatch(informer))).await;
}

/// The tasks that follow resources. They end when this is dropped.
#[derive(Default)]
struct RunningInformers {
    all: JoinSet<()>,
    tasks: HashMap<Arc<Resource>, AbortHandle>,
    /// The number of listeners when they began.
    listeners: usize,
}

/// Passes on the metadata of one resource.
struct MetadataInformer {
    resource: Arc<Resource>,
    shared: Arc<Shared>,
}

impl MetadataInformer {
    fn notify(&self, notify: impl Fn(&dyn Listener)) {
        self.shared.listeners.read().iter().for_each(|listener| notify(&**listener));
    }

    /// Starts discovery when an object that defines resources has changed.
    fn rediscover(&self) {
        if self.defines_resources() {
            self.shared.poked.notify_one();
        }
    }

    fn defines_resources(&self) -> bool {
        matches!(&*self.resource.plural, "customresourcedefinitions" | "apiservices")
    }
}

impl MetadataFollower for MetadataInformer {
    fn put(&self, object: &ObjectMeta) {
        if self.resource.plural == "apiservices" && !object.labels.contains_key(&self.shared.local_service) {
            self.shared.aggregated.lock().insert(object.uid.clone());
        }
        self.notify(|listener| listener.put(&self.resource, object));
    }

    fn gone(&self, object: &ObjectMeta) {
        if self.resource.plural == "apiservices" {
            self.shared.aggregated.lock().remove(&object.uid);
        }
        self.notify(|listener| listener.gone(&self.resource, object));
    }

    fn whole(&self, uids: &HashSet<String>) {
        if self.resource.plural == "apiservices" {
            self.shared.aggregated.lock().retain(|uid| uids.contains(uid));
        }
        self.notify(|listener| listener.whole(&self.resource, uids));
        let mut unlisted = self.shared.unlisted.lock();
        if let Some(unlisted) = &mut *unlisted
            && unlisted.remove(&self.resource)
        {
            self.shared.synced.send_replace(unlisted.is_empty());
        }
    }
}

/// The watch of a resource that no loop has an informer of.
struct OwnWatch(Arc<MetadataInformer>);

/// Keys hold the uid alone: the same name may belong to another object later.
impl Sink for OwnWatch {
    fn list_page(&self, text: &[u8], all: &mut HashSet<Key>) -> Result<Page, Error> {
        let (objects, page) = reflector::page::<PartialObjectMetadata>(text)?;
        for object in objects {
            self.0.put(&object.metadata);
            all.insert(Key::new("", object.metadata.uid));
        }
        Ok(page)
    }

    fn list_complete(&self, all: HashSet<Key>, _: &str) {
        self.0.whole(&all.into_iter().map(|key| key.name).collect());
    }

    fn watch_event(&self, line: &Bytes) -> Result<WatchProgress, Error> {
        let object = match WatchEvent::<PartialObjectMetadata>::from_json(line)? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.0.put(&object.metadata);
                object
            }
            WatchEvent::Deleted(object) => {
                self.0.gone(&object.metadata);
                object
            }
            WatchEvent::Bookmark(version) => return Ok(WatchProgress::Reached(version)),
            WatchEvent::Error(status) => return Ok(WatchProgress::Failed(status)),
        };
        self.0.rediscover();
        Ok(WatchProgress::Reached(object.metadata.resource_version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;
    use client::{Body, InformerFactory};
    use http::Response;
    use std::future::ready;

    #[tokio::test(start_paused = true)]
    async fn failed_discoveries_are_counted() {
        let unavailable = || Response::builder().status(503).body(Body::default()).unwrap();
        let client = Client::new(server(move |_| ready(Ok(unavailable()))));
        let discovery = Arc::new(Discovery::new(client.clone()));
        let known = InformerFactory::new(client.clone()).known();
        let metadata_informers =
            MetadataInformers::new(client, known, discovery, &Names::kubernetes(), env::Seeded::new(0, 0));
        let keeping = tokio::spawn(metadata_informers.clone().keep());
        while metadata_informers.sync_failures().load(Ordering::Relaxed) < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!metadata_informers.is_synced());
        keeping.abort();
    }

    /// A listener that records what it receives.
    #[derive(Default)]
    struct Recorded(Mutex<Vec<String>>);

    impl Listener for Recorded {
        fn put(&self, of: &Arc<Resource>, object: &ObjectMeta) {
            self.0.lock().push(format!("{} +{}", of.plural, object.name));
        }

        fn gone(&self, of: &Arc<Resource>, object: &ObjectMeta) {
            self.0.lock().push(format!("{} -{}", of.plural, object.name));
        }

        fn whole(&self, of: &Arc<Resource>, uids: &HashSet<String>) {
            self.0.lock().push(format!("{} ={}", of.plural, uids.len()));
        }

        fn ended(&self, of: &Arc<Resource>) {
            self.0.lock().push(format!("{} ended", of.plural));
        }
    }

    fn resource(plural: &str, kind: &str) -> Arc<Resource> {
        Arc::new(Resource {
            group: String::new(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            preferred: true,
            verbs: Vec::new(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_resource_with_an_informer_is_not_watched_again() {
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let sent = requests.clone();
        let client = Client::new(server(move |request: http::Request<Body>| {
            let accept = request.headers()[http::header::ACCEPT].to_str().unwrap();
            let form = if accept.contains("PartialObjectMetadata") { "metadata" } else { "objects" };
            let is_watch = request.uri().query().is_some_and(|it| it.contains("watch=true"));
            sent.lock().push(format!("{form} {}", request.uri().path()));
            let list =
                r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","uid":"u"}}]}"#;
            async move {
                match is_watch {
                    true => std::future::pending().await,
                    false => Ok(Response::new(Body::from(list))),
                }
            }
        }));
        let factory = InformerFactory::new(client.clone());
        let pods = factory.informer::<api::core::v1::Pod>();
        pods.synced().await;
        let discovery = Arc::new(Discovery::new(client.clone()));
        let world = env::Seeded::new(0, 0);
        let informers =
            MetadataInformers::new(client, factory.known(), discovery, &Names::kubernetes(), world);
        let recorded = Arc::<Recorded>::default();
        informers.listen(recorded.clone());
        let (pods, secrets) = (resource("pods", "Pod"), resource("secrets", "Secret"));
        *informers.shared.unlisted.lock() = Some(HashSet::from([pods.clone(), secrets.clone()]));
        let mut following = JoinSet::new();
        for resource in [pods, secrets] {
            following.spawn(follow(MetadataInformer { resource, shared: informers.shared.clone() }));
        }
        informers.synced().await;
        assert_eq!(*recorded.0.lock(), ["pods +a", "pods =1", "secrets +a", "secrets =1"]);
        let of_pods = requests.lock().iter().filter(|it| *it == "metadata /api/v1/pods").count();
        assert_eq!(of_pods, 0);
        assert!(requests.lock().contains(&"metadata /api/v1/secrets".to_owned()));
    }
}
