//! Config maps, secrets and services from the API, by one of the strategies of the configuration.
//!
//! | strategy | a read answers |
//! |---|---|
//! | [`Strategy::Watch`] | from a watch of that one object, which lives as long as a registered pod refers to it |
//! | [`Strategy::Cache`] | the last answer, for a minute at most |
//! | [`Strategy::Get`] | by a request |
//!
//! An object of a pod that is not registered is read by a request. An immutable object is read once.

use super::{ObjectError, ObjectRead, ObjectSource};
use crate::objects::references::{Reference, ReferenceKind, references};
use api::authentication::v1::{TokenRequest, TokenRequestSpec, TokenRequestStatus};
use api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use api::{Kinded, Resource};
use client::{Api, Client, Informer, InformerFactory, Key};
use env::World;
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How long a read waits for the first answer of a watch.
const SYNC_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer is used by [`Strategy::Cache`].
const TTL: Duration = Duration::from_secs(60);

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

/// See the module.
pub struct ObjectCache {
    client: Client,
    world: World,
    strategy: Strategy,
    services: Option<Informer<Service>>,
    listener: ChangeListener,
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
    /// `services` is the informer of all services, `None` without an API server's services.
    pub fn new(
        client: Client,
        world: World,
        strategy: Strategy,
        services: Option<Informer<Service>>,
        listener: ChangeListener,
    ) -> Self {
        ObjectCache {
            client,
            world,
            strategy,
            services,
            listener,
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
            Read::Request => Arc::new(Api::<K>::namespaced(&self.client, namespace).get(name).await?),
        };
        self.end_read(&key, &object);
        Ok(object)
    }

    fn begin_read<K: Versioned>(&self, key: &Key) -> Read<K> {
        let mut entries = K::entries(self).lock();
        let Some(entry) = entries.get_mut(key) else { return Read::Request };
        match &entry.state {
            State::Immutable(object) => Read::Answer(object.clone()),
            State::Watched(watch) => Read::Watch(watch.informer.clone()),
            State::Cached(object, at) if self.world.elapsed().saturating_sub(*at) < TTL => {
                Read::Answer(object.clone())
            }
            State::Unread if self.strategy == Strategy::Watch => {
                let factory = InformerFactory::new(self.client.clone());
                let selector = format!("metadata.name={}", key.name);
                let informer = factory.informer_of::<K>(&key.namespace, &selector);
                let (users, listener) = (entry.users.clone(), self.listener.clone());
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
        if env::timeout(&self.world, SYNC_TIMEOUT, informer.synced()).await.is_err() {
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
        } else if self.strategy == Strategy::Cache {
            entry.state = State::Cached(object.clone(), self.world.elapsed());
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
        match &self.services {
            Some(services) => services.synced().now_or_never().map(|_| services.all()),
            None => Some(Vec::new()),
        }
    }

    fn claim<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, PersistentVolumeClaim> {
        async move { Ok(Api::namespaced(&self.client, namespace).get(name).await?) }.boxed()
    }

    fn volume<'a>(&'a self, name: &'a str) -> ObjectRead<'a, PersistentVolume> {
        async move { Ok(Api::all(&self.client).get(name).await?) }.boxed()
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
            let accounts: Api<ServiceAccount> = Api::namespaced(&self.client, namespace);
            let answer: TokenRequest = accounts.create_subresource(account, "token", &request).await?;
            Ok(answer.status)
        }
        .boxed()
    }
}
