//! Keeps the RBAC policy up to date with roles and bindings.
//!
//! Invariant: the policy is the state of each of the four kinds at some revision, and follows every change
//! shortly. A change is applied incrementally: its cost depends on its namespace, hardly on the total. Only
//! aggregated cluster roles are recomputed when a cluster role changes.

use super::read::{self, ParsedRole};
use auth::rbac::{Binding, Policy, Rbac};
use cache::{Event, Interest, Key, Snapshot, Watcher};
use rest::{Api, Collection, Object};
use schema::Value;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// Changes of a kind that are applied per turn.
const MAX_CHANGES: usize = 256;

/// The parsed objects of a collection, and its watch.
struct TrackedCollection<T> {
    collection: Arc<Collection>,
    watcher: Watcher<Object>,
    objects: BTreeMap<Key, (u64, Arc<T>)>,
    read: fn(&Value) -> T,
}

impl<T> TrackedCollection<T> {
    fn start(api: &Api, group_version: &str, plural: &str, read: fn(&Value) -> T) -> Option<Self> {
        let collection = api.resources().get(group_version, plural)?.collection.clone();
        let (watcher, snapshot) = collection.cache.watch_now(Interest::All);
        let mut followed = TrackedCollection { collection, watcher, objects: BTreeMap::new(), read };
        followed.load(&snapshot);
        Some(followed)
    }

    /// Reloads everything, after missed changes.
    fn restart(&mut self) {
        let (watcher, snapshot) = self.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        self.load(&snapshot);
    }

    /// Loads a snapshot; unchanged objects are not parsed again.
    fn load(&mut self, snapshot: &Snapshot<Object>) {
        let mut previous = std::mem::take(&mut self.objects);
        for (key, object) in snapshot.range(None, None) {
            let same = previous.remove(key).filter(|(revision, _)| *revision == object.revision);
            let one = same.map(|(_, one)| one).or_else(|| self.decode(key, object));
            self.objects.extend(one.map(|one| (key.clone(), (object.revision, one))));
        }
    }

    fn decode(&self, key: &Key, object: &Object) -> Option<Arc<T>> {
        match object.value(&self.collection.kind) {
            Ok(value) => Some(Arc::new((self.read)(&value))),
            Err(why) => {
                tracing::error!(key = key.path(), %why, "ignoring an RBAC object that cannot be decoded");
                None
            }
        }
    }

    /// Applies an event; returns the object before and after it.
    fn apply_event(&mut self, event: &Event<Object>) -> (Option<Arc<T>>, Option<Arc<T>>) {
        let now = if event.deleted { None } else { self.decode(&event.key, &event.entry) };
        let before = match &now {
            Some(now) => self.objects.insert(event.key.clone(), (event.revision, now.clone())),
            None => self.objects.remove(&event.key),
        };
        (before.map(|(_, one)| one), now)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values().map(|(_, one)| one)
    }
}

/// Follows the four kinds, any of which may not be served.
pub(crate) struct Reflector {
    rbac: Arc<Rbac>,
    cluster_roles: Option<TrackedCollection<ParsedRole>>,
    roles: Option<TrackedCollection<ParsedRole>>,
    cluster_bindings: Option<TrackedCollection<Binding>>,
    bindings: Option<TrackedCollection<Binding>>,
}

/// Pending changes.
#[derive(Default)]
struct Changes {
    cluster_roles: Vec<Arc<Event<Object>>>,
    roles: Vec<Arc<Event<Object>>>,
    bindings: Vec<Arc<Event<Object>>>,
    cluster_bindings: Vec<Arc<Event<Object>>>,
    /// Whether changes were missed.
    lagged: bool,
    ended: bool,
}

impl Changes {
    fn has_any(&self) -> bool {
        let lists = [&self.cluster_roles, &self.roles, &self.bindings, &self.cluster_bindings];
        self.lagged || self.ended || lists.iter().any(|list| !list.is_empty())
    }
}

impl Reflector {
    /// Compiles the current policy; later changes are not missed.
    pub fn start(api: &Api, rbac: Arc<Rbac>) -> Self {
        let version = format!("{}/v1", rbac.group());
        let reflector = Reflector {
            cluster_roles: TrackedCollection::start(api, &version, "clusterroles", read::role),
            roles: TrackedCollection::start(api, &version, "roles", read::role),
            cluster_bindings: TrackedCollection::start(api, &version, "clusterrolebindings", read::binding),
            bindings: TrackedCollection::start(api, &version, "rolebindings", read::binding),
            rbac,
        };
        reflector.compile();
        reflector
    }

    fn cluster_roles(&self) -> Vec<Arc<ParsedRole>> {
        self.cluster_roles.iter().flat_map(TrackedCollection::all).cloned().collect()
    }

    /// Compiles the policy of all objects.
    fn compile(&self) {
        let roles = read::all(&self.cluster_roles());
        let own = self.roles.iter().flat_map(TrackedCollection::all).map(|role| Arc::new(role.alone()));
        let bindings = [&self.cluster_bindings, &self.bindings];
        let bindings = bindings.into_iter().flatten().flat_map(TrackedCollection::all).cloned();
        self.rbac.replace(Policy::compile(roles.into_iter().chain(own), bindings));
    }

    /// Follows changes until the watches end.
    pub async fn follow(mut self) {
        loop {
            let changes = self.changes().await;
            if changes.ended {
                return;
            }
            if changes.lagged {
                self.restart();
            } else {
                self.apply(&changes);
            }
            // yield, so that a stream of changes does not starve requests
            tokio::task::yield_now().await;
        }
    }

    fn restart(&mut self) {
        self.cluster_roles.as_mut().map(TrackedCollection::restart);
        self.roles.as_mut().map(TrackedCollection::restart);
        self.cluster_bindings.as_mut().map(TrackedCollection::restart);
        self.bindings.as_mut().map(TrackedCollection::restart);
        self.compile();
    }

    fn apply(&mut self, changes: &Changes) {
        let mut policy = Policy::clone(&self.rbac.policy());
        for (followed, events) in
            [(&mut self.cluster_roles, &changes.cluster_roles), (&mut self.roles, &changes.roles)]
        {
            let Some(followed) = followed else { continue };
            for event in events {
                match followed.apply_event(event) {
                    (_, Some(role)) => policy.put_role(Arc::new(role.alone())),
                    (_, None) => policy.remove_role(event.key.namespace(), event.key.name()),
                }
            }
        }
        if !changes.cluster_roles.is_empty() {
            read::aggregated(&self.cluster_roles()).into_iter().for_each(|role| policy.put_role(role));
        }
        for (followed, events) in
            [(&mut self.cluster_bindings, &changes.cluster_bindings), (&mut self.bindings, &changes.bindings)]
        {
            let Some(followed) = followed else { continue };
            for event in events {
                let (before, now) = followed.apply_event(event);
                if let Some(before) = before {
                    policy.unbind(&before);
                }
                if let Some(now) = now {
                    policy.bind(now);
                }
            }
        }
        self.rbac.replace(policy);
    }

    /// Waits for changes and takes all that are pending.
    async fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        poll_fn(|cx| {
            let Changes { cluster_roles, roles, bindings, cluster_bindings, lagged, ended } = &mut changes;
            let watchers = [
                (self.cluster_roles.as_mut().map(|it| &mut it.watcher), cluster_roles),
                (self.roles.as_mut().map(|it| &mut it.watcher), roles),
                (self.cluster_bindings.as_mut().map(|it| &mut it.watcher), cluster_bindings),
                (self.bindings.as_mut().map(|it| &mut it.watcher), bindings),
            ];
            for (watcher, into) in watchers {
                let Some(watcher) = watcher else { continue };
                match watcher.poll_batch(cx, into, MAX_CHANGES) {
                    Poll::Pending | Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(None) => *ended = true,
                    Poll::Ready(Some(Err(_))) => *lagged = true,
                }
            }
            if changes.has_any() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        changes
    }
}
