//! Config maps, secrets and services from the API, by one of the strategies of the configuration.
//!
//! | strategy | a read answers |
//! |---|---|
//! | [`Strategy::Watch`] | from a watch of that one object, which lives as long as a registered pod refers to it |
//! | [`Strategy::Cache`] | the last answer, for as many seconds as the node's annotation says, or a minute; longer while the server fails |
//! | [`Strategy::Get`] | by a request |
//!
//! An object of a pod that is not registered is read by a request. An immutable object is read once.

use super::{ObjectError, ObjectRead, ObjectSource};
use crate::objects::references::{Reference, ReferenceKind, references};
use api::authentication::v1::{TokenRequest, TokenRequestSpec, TokenRequestStatus};
use api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use api::{Kinded, Resource};
use client::{Api, Client, Informer, InformerFactory, Key};
use env::World;
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a read waits for the first answer of a watch.
const SYNC_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer is used by [`Strategy::Cache`], unless the node says it.
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// How changes of config maps and secrets are noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    #[default]
    Watch,
    Cache,
    Get,
}

/// Called with the uid of a pod when an object that it refers to has changed.
pub type ChangeListener = Arc<dyn Fn(&str) + Send + Sync>;

/// What a cache is made from.
pub struct CacheOptions {
    pub client: Client,
    pub world: World,
    pub strategy: Strategy,
    /// The informer of all services; `None` without an API server's services.
    pub services: Option<Informer<Service>>,
    pub node: watch::Receiver<Arc<Node>>,
    /// The annotation of the node with the seconds for which [`Strategy::Cache`] uses an answer.
    pub ttl_annotation: String,
    pub listener: ChangeListener,
}

/// See the module.
pub struct ObjectCache {
    options: CacheOptions,
    config_maps: Mutex<HashMap<Key, Entry<ConfigMap>>>,
    secrets: Mutex<HashMap<Key, Entry<Secret>>>,
    /// The references of registered pods, by uid.
    pods: Mutex<HashMap<String, BTreeSet<Reference>>>,
}

/// The pods that refer to an object, shared with the listener of its watch.
type Users = Arc<Mutex<BTreeSet<String>>>;

/// An object that registered pods refer to.
struct Entry<K> {
    users: Users,
    state: State<K>,
}

/// A watch, which ends when its factory is dropped.
struct Watch<K> {
    informer: Informer<K>,
    _factory: InformerFactory,
}

enum State<K> {
    /// No read yet.
    Unread,
    Watched(Watch<K>),
    Cached(Arc<K>, Duration),
    /// It never changes.
    Immutable(Arc<K>),
}

/// A kind with the flag `immutable`.
trait Versioned: Resource {
    /// The resource in messages.
    const RESOURCE: &'static str;
    fn is_immutable(&self) -> bool;
    fn entries(cache: &ObjectCache) -> &Mutex<HashMap<Key, Entry<Self>>>;
}

impl Versioned for ConfigMap {
    const RESOURCE: &'static str = "configmap";
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
    fn entries(cache: &ObjectCache) -> &Mutex<HashMap<Key, Entry<Self>>> {
        &cache.config_maps
    }
}

impl Versioned for Secret {
    const RESOURCE: &'static str = "secret";
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
    fn entries(cache: &ObjectCache) -> &Mutex<HashMap<Key, Entry<Self>>> {
        &cache.secrets
    }
}

/// The next step of a read.
enum Read<K> {
    Answer(Arc<K>),
    Watch(Informer<K>),
    Request,
}

impl ObjectCache {
    pub fn new(options: CacheOptions) -> Self {
        ObjectCache {
            options,
            config_maps: Mutex::default(),
            secrets: Mutex::default(),
            pods: Mutex::default(),
        }
    }

    /// Keeps the objects that a pod refers to, until [`ObjectCache::unregister`].
    pub fn register(&self, pod: &Pod) {
        let new = references(pod);
        let old = self.pods.lock().insert(pod.metadata.uid.clone(), new.clone()).unwrap_or_default();
        for reference in new.difference(&old) {
            match reference.kind {
                ReferenceKind::ConfigMap => self.add_user::<ConfigMap>(reference, &pod.metadata.uid),
                ReferenceKind::Secret => self.add_user::<Secret>(reference, &pod.metadata.uid),
            }
        }
        self.release(&pod.metadata.uid, old.difference(&new));
    }

    pub fn unregister(&self, uid: &str) {
        let old = self.pods.lock().remove(uid).unwrap_or_default();
        self.release(uid, old.iter());
    }

    fn release<'a>(&self, uid: &str, references: impl Iterator<Item = &'a Reference>) {
        for reference in references {
            match reference.kind {
                ReferenceKind::ConfigMap => self.remove_user::<ConfigMap>(reference, uid),
                ReferenceKind::Secret => self.remove_user::<Secret>(reference, uid),
            }
        }
    }

    fn add_user<K: Versioned>(&self, reference: &Reference, uid: &str) {
        let mut entries = K::entries(self).lock();
        let new = || Entry { users: Users::default(), state: State::Unread };
        let entry = entries.entry(reference.key()).or_insert_with(new);
        entry.users.lock().insert(uid.to_owned());
        // a new pod sees the newest state
        if let State::Cached(..) = entry.state {
            entry.state = State::Unread;
        }
    }

    fn remove_user<K: Versioned>(&self, reference: &Reference, uid: &str) {
        let mut entries = K::entries(self).lock();
        let key = reference.key();
        let is_last = entries.get(&key).is_some_and(|entry| {
            let mut users = entry.users.lock();
            users.remove(uid);
            users.is_empty()
        });
        if is_last {
            entries.remove(&key);
        }
    }

    async fn read<K: Versioned>(&self, namespace: &str, name: &str) -> Result<Arc<K>, ObjectError> {
        let key = Key::new(namespace, name);
        let object = match self.begin_read::<K>(&key) {
            Read::Answer(object) => return Ok(object),
            Read::Watch(informer) => self.await_watch(&informer, &key).await?,
            Read::Request => match Api::<K>::namespaced(&self.options.client, namespace).get(name).await {
                Ok(object) => Arc::new(object),
                Err(error) if error.is_not_found() => {
                    self.forget::<K>(&key);
                    return Err(error.into());
                }
                Err(error) => return self.last_answer::<K>(&key).ok_or_else(|| error.into()),
            },
        };
        self.end_read(&key, &object);
        Ok(object)
    }

    /// How long an answer is used.
    fn ttl(&self) -> Duration {
        let node = self.options.node.borrow();
        let seconds = node.metadata.annotations.get(&self.options.ttl_annotation);
        let seconds = seconds.and_then(|it| it.parse::<i64>().ok());
        // an answer is not used at all for a time that is negative
        seconds.map_or(DEFAULT_TTL, |it| Duration::from_secs(u64::try_from(it).unwrap_or(0)))
    }

    /// An answer that is too old, for a server that does not give a newer one.
    fn last_answer<K: Versioned>(&self, key: &Key) -> Option<Arc<K>> {
        match &K::entries(self).lock().get(key)?.state {
            State::Cached(object, _) => Some(object.clone()),
            _ => None,
        }
    }

    /// Forgets the answer about an object that is gone.
    fn forget<K: Versioned>(&self, key: &Key) {
        if let Some(entry) = K::entries(self).lock().get_mut(key)
            && let State::Cached(..) = entry.state
        {
            entry.state = State::Unread;
        }
    }

    fn begin_read<K: Versioned>(&self, key: &Key) -> Read<K> {
        let mut entries = K::entries(self).lock();
        let Some(entry) = entries.get_mut(key) else { return Read::Request };
        match &entry.state {
            State::Immutable(object) => Read::Answer(object.clone()),
            State::Watched(watch) => Read::Watch(watch.informer.clone()),
            State::Cached(object, at) if self.options.world.elapsed().saturating_sub(*at) < self.ttl() => {
                Read::Answer(object.clone())
            }
            State::Unread if self.options.strategy == Strategy::Watch => {
                let factory = InformerFactory::new(self.options.client.clone());
                let selector = format!("metadata.name={}", key.name);
                let informer = factory.informer_of::<K>(&key.namespace, &selector);
                let (users, listener) = (entry.users.clone(), self.options.listener.clone());
                informer.listen(move |_| {
                    let users = users.lock().clone();
                    users.iter().for_each(|uid| listener(uid));
                });
                entry.state = State::Watched(Watch { informer: informer.clone(), _factory: factory });
                Read::Watch(informer)
            }
            _ => Read::Request,
        }
    }

    async fn await_watch<K: Versioned>(
        &self,
        informer: &Informer<K>,
        key: &Key,
    ) -> Result<Arc<K>, ObjectError> {
        if env::timeout(&self.options.world, SYNC_TIMEOUT, informer.synced()).await.is_err() {
            let resource = K::RESOURCE;
            let message = format!("failed to sync {resource} cache: timed out waiting for the condition");
            return Err(ObjectError::Other(message));
        }
        informer
            .get(key)
            .ok_or_else(|| ObjectError::NotFound(format!("{} \"{}\" not found", K::RESOURCE, key.name)))
    }

    fn end_read<K: Versioned>(&self, key: &Key, object: &Arc<K>) {
        let mut entries = K::entries(self).lock();
        let Some(entry) = entries.get_mut(key) else { return };
        if object.is_immutable() {
            entry.state = State::Immutable(object.clone());
        } else if self.options.strategy == Strategy::Cache {
            entry.state = State::Cached(object.clone(), self.options.world.elapsed());
        }
    }
}

impl ObjectSource for ObjectCache {
    fn config_map<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, Arc<ConfigMap>> {
        self.read(namespace, name).boxed()
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, Arc<Secret>> {
        self.read(namespace, name).boxed()
    }

    fn services(&self) -> Option<Vec<Arc<Service>>> {
        match &self.options.services {
            Some(services) => services.synced().now_or_never().map(|_| services.all()),
            None => Some(Vec::new()),
        }
    }

    fn node(&self) -> Arc<Node> {
        self.options.node.borrow().clone()
    }

    fn claim<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, PersistentVolumeClaim> {
        async move { Ok(Api::namespaced(&self.options.client, namespace).get(name).await?) }.boxed()
    }

    fn volume<'a>(&'a self, name: &'a str) -> ObjectRead<'a, PersistentVolume> {
        async move { Ok(Api::all(&self.options.client).get(name).await?) }.boxed()
    }

    fn token<'a>(
        &'a self,
        namespace: &'a str,
        account: &'a str,
        spec: TokenRequestSpec,
    ) -> ObjectRead<'a, TokenRequestStatus> {
        async move {
            let (kind, api_version) = (TokenRequest::kind().name.to_string(), TokenRequest::api_version());
            let request = TokenRequest { kind, api_version, spec, ..TokenRequest::default() };
            let accounts: Api<ServiceAccount> = Api::namespaced(&self.options.client, namespace);
            let answer: TokenRequest = accounts.create_subresource(account, "token", &request).await?;
            Ok(answer.status)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::object;
    use crate::volumes::csi::testing::ObjectServer;
    use env::Simulated;
    use serde_json::json;

    const PATH: &str = "/api/v1/namespaces/n/configmaps/m";
    const TTL: &str = "node.alpha.kubernetes.io/ttl";

    struct Fixture {
        server: ObjectServer,
        clock: Arc<Simulated>,
        node: watch::Sender<Arc<Node>>,
        cache: ObjectCache,
    }

    impl Fixture {
        fn new(strategy: Strategy) -> Self {
            let (server, clock) = (ObjectServer::default(), Simulated::new(0, 1));
            let (node, receiver) = watch::channel(Arc::default());
            let cache = ObjectCache::new(CacheOptions {
                client: server.client(),
                world: clock.clone(),
                strategy,
                services: None,
                node: receiver,
                ttl_annotation: TTL.to_owned(),
                listener: Arc::new(|_: &str| {}),
            });
            let fixture = Fixture { server, clock, node, cache };
            fixture.cache.register(&fixture.pod("u"));
            fixture
        }

        fn pod(&self, uid: &str) -> Pod {
            object(&format!(
                r#"{{"metadata":{{"name":"p","namespace":"n","uid":"{uid}"}},
                    "spec":{{"volumes":[{{"name":"v","configMap":{{"name":"m"}}}}]}}}}"#
            ))
        }

        fn set_ttl(&self, seconds: &str) {
            let node = format!(r#"{{"metadata":{{"annotations":{{"{TTL}":"{seconds}"}}}}}}"#);
            self.node.send_replace(Arc::new(object(&node)));
        }

        /// Writes a new state of the config map.
        fn put(&self, text: &str) {
            self.server.put(PATH, json!({"metadata":{"name":"m","namespace":"n"},"data":{"k":text}}));
        }

        async fn read(&self) -> Result<String, ObjectError> {
            Ok(self.cache.config_map("n", "m").await?.data["k"].clone())
        }

        async fn check(&self, expected: &str) {
            assert_eq!(self.read().await.unwrap(), expected);
        }

        fn pass(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }
    }

    #[tokio::test]
    async fn a_cached_config_map_is_as_old_as_the_annotation_of_the_node_says() {
        let fixture = Fixture::new(Strategy::Cache);
        fixture.put("1");
        fixture.check("1").await;
        fixture.put("2");
        // without the annotation, a minute
        fixture.pass(59);
        fixture.check("1").await;
        fixture.pass(1);
        fixture.check("2").await;
        fixture.set_ttl("300");
        fixture.put("3");
        fixture.pass(299);
        fixture.check("2").await;
        fixture.pass(1);
        fixture.check("3").await;
        for now in ["0", "-1"] {
            fixture.set_ttl(now);
            fixture.put(now);
            fixture.check(now).await;
        }
        fixture.set_ttl("soon");
        fixture.put("4");
        fixture.check("-1").await;
    }

    #[tokio::test]
    async fn a_cached_config_map_is_read_anew_for_a_new_pod() {
        let fixture = Fixture::new(Strategy::Cache);
        fixture.put("1");
        fixture.check("1").await;
        fixture.put("2");
        fixture.check("1").await;
        fixture.cache.register(&fixture.pod("w"));
        fixture.check("2").await;
        // no pod refers to it any more
        fixture.put("3");
        fixture.cache.unregister("u");
        fixture.check("2").await;
        fixture.cache.unregister("w");
        fixture.check("3").await;
    }

    #[tokio::test]
    async fn a_cached_config_map_outlives_a_server_that_fails() {
        let fixture = Fixture::new(Strategy::Cache);
        fixture.put("1");
        fixture.check("1").await;
        fixture.pass(60);
        fixture.server.fail(true);
        fixture.check("1").await;
        fixture.server.fail(false);
        fixture.put("2");
        fixture.check("2").await;
        // one that is gone is gone
        fixture.pass(60);
        fixture.server.remove(PATH);
        assert!(fixture.read().await.unwrap_err().is_not_found());
        fixture.server.fail(true);
        assert!(!fixture.read().await.unwrap_err().is_not_found());
    }

    #[tokio::test]
    async fn an_immutable_config_map_is_read_once() {
        for strategy in [Strategy::Cache, Strategy::Get] {
            let fixture = Fixture::new(strategy);
            let metadata = json!({"name":"m","namespace":"n"});
            fixture.server.put(PATH, json!({"metadata":metadata,"immutable":true,"data":{"k":"1"}}));
            fixture.check("1").await;
            fixture.server.remove(PATH);
            fixture.pass(3600);
            fixture.check("1").await;
        }
    }

    #[tokio::test]
    async fn a_config_map_is_read_each_time_by_the_strategy_get() {
        let fixture = Fixture::new(Strategy::Get);
        for text in ["1", "2"] {
            fixture.put(text);
            fixture.check(text).await;
        }
        fixture.server.fail(true);
        assert!(!fixture.read().await.unwrap_err().is_not_found());
    }
}
