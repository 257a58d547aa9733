//! Keeps the policy as roles and bindings are.
//!
//! What always holds: the policy is the state of each of the four kinds at some revision, and follows every
//! change shortly. A change is carried over by itself: what it costs depends on the namespace that it is in and
//! hardly on how much there is. Only roles that gather others are put together anew when a role of the cluster
//! changes.

use super::read::{self, Read};
use auth::rbac::{Binding, Policy, Rbac};
use cache::{Event, Interest, Key, Snapshot, Watcher};
use rest::{Api, Collection, Object};
use schema::Value;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// How many changes of a kind are carried over at a time.
const AT_ONCE: usize = 256;

/// What was read of a collection, and what changes it.
struct Followed<T> {
    collection: Arc<Collection>,
    watcher: Watcher<Object>,
    objects: BTreeMap<Key, (u64, Arc<T>)>,
    read: fn(&Value) -> T,
}

impl<T> Followed<T> {
    fn start(api: &Api, group_version: &str, plural: &str, read: fn(&Value) -> T) -> Option<Self> {
        let collection = api.resources().get(group_version, plural)?.collection.clone();
        let (watcher, snapshot) = collection.cache.watch_now(Interest::All);
        let mut followed = Followed { collection, watcher, objects: BTreeMap::new(), read };
        followed.load(&snapshot);
        Some(followed)
    }

    /// Begins anew, for when changes were missed.
    fn restart(&mut self) {
        let (watcher, snapshot) = self.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        self.load(&snapshot);
    }

    /// Everything there is; what has not changed is not read again.
    fn load(&mut self, snapshot: &Snapshot<Object>) {
        let mut known = std::mem::take(&mut self.objects);
        for (key, object) in snapshot.range(None, None) {
            let same = known.remove(key).filter(|(revision, _)| *revision == object.revision);
            let one = same.map(|(_, one)| one).or_else(|| self.decode(key, object));
            self.objects.extend(one.map(|one| (key.clone(), (object.revision, one))));
        }
    }

    fn decode(&self, key: &Key, object: &Object) -> Option<Arc<T>> {
        match object.value(&self.collection.kind) {
            Ok(value) => Some(Arc::new((self.read)(&value))),
            Err(why) => {
                tracing::error!(key = key.path(), %why, "permits nothing, because it cannot be read");
                None
            }
        }
    }

    /// What was there before a change, and what is there now.
    fn take(&mut self, event: &Event<Object>) -> (Option<Arc<T>>, Option<Arc<T>>) {
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

/// The four kinds, of which any may not be served.
pub(crate) struct Follower {
    rbac: Arc<Rbac>,
    cluster_roles: Option<Followed<Read>>,
    roles: Option<Followed<Read>>,
    cluster_bindings: Option<Followed<Binding>>,
    bindings: Option<Followed<Binding>>,
}

/// What has changed.
#[derive(Default)]
struct News {
    cluster_roles: Vec<Arc<Event<Object>>>,
    roles: Vec<Arc<Event<Object>>>,
    bindings: Vec<Arc<Event<Object>>>,
    cluster_bindings: Vec<Arc<Event<Object>>>,
    /// Changes were missed.
    lagged: bool,
    ended: bool,
}

impl News {
    fn is_something(&self) -> bool {
        let lists = [&self.cluster_roles, &self.roles, &self.bindings, &self.cluster_bindings];
        self.lagged || self.ended || lists.iter().any(|list| !list.is_empty())
    }
}

impl Follower {
    /// With the policy as it is now; what changes from here on is not missed.
    pub fn start(api: &Api, rbac: Arc<Rbac>) -> Self {
        let version = format!("{}/v1", rbac.group());
        let follower = Follower {
            cluster_roles: Followed::start(api, &version, "clusterroles", read::role),
            roles: Followed::start(api, &version, "roles", read::role),
            cluster_bindings: Followed::start(api, &version, "clusterrolebindings", read::binding),
            bindings: Followed::start(api, &version, "rolebindings", read::binding),
            rbac,
        };
        follower.compile();
        follower
    }

    fn cluster_roles(&self) -> Vec<Arc<Read>> {
        self.cluster_roles.iter().flat_map(Followed::all).cloned().collect()
    }

    /// The policy of everything there is.
    fn compile(&self) {
        let roles = read::all(&self.cluster_roles());
        let own = self.roles.iter().flat_map(Followed::all).map(|role| Arc::new(role.alone()));
        let bindings = [&self.cluster_bindings, &self.bindings];
        let bindings = bindings.into_iter().flatten().flat_map(Followed::all).cloned();
        self.rbac.replace(Policy::compile(roles.into_iter().chain(own), bindings));
    }

    /// Follows until the watches are ended.
    pub async fn follow(mut self) {
        loop {
            let news = self.news().await;
            if news.ended {
                return;
            }
            if news.lagged {
                self.restart();
            } else {
                self.carry_over(&news);
            }
            // changes without end leave room for who wants to know what they mean
            tokio::task::yield_now().await;
        }
    }

    fn restart(&mut self) {
        self.cluster_roles.as_mut().map(Followed::restart);
        self.roles.as_mut().map(Followed::restart);
        self.cluster_bindings.as_mut().map(Followed::restart);
        self.bindings.as_mut().map(Followed::restart);
        self.compile();
    }

    fn carry_over(&mut self, news: &News) {
        let mut policy = Policy::clone(&self.rbac.policy());
        for (followed, events) in
            [(&mut self.cluster_roles, &news.cluster_roles), (&mut self.roles, &news.roles)]
        {
            let Some(followed) = followed else { continue };
            for event in events {
                match followed.take(event) {
                    (_, Some(role)) => policy.put_role(Arc::new(role.alone())),
                    (_, None) => policy.remove_role(event.key.namespace(), event.key.name()),
                }
            }
        }
        if !news.cluster_roles.is_empty() {
            read::gathered(&self.cluster_roles()).into_iter().for_each(|role| policy.put_role(role));
        }
        for (followed, events) in
            [(&mut self.cluster_bindings, &news.cluster_bindings), (&mut self.bindings, &news.bindings)]
        {
            let Some(followed) = followed else { continue };
            for event in events {
                let (before, now) = followed.take(event);
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

    /// Waits for changes and takes those that wait.
    async fn news(&mut self) -> News {
        let mut news = News::default();
        poll_fn(|cx| {
            let News { cluster_roles, roles, bindings, cluster_bindings, lagged, ended } = &mut news;
            let watchers = [
                (self.cluster_roles.as_mut().map(|it| &mut it.watcher), cluster_roles),
                (self.roles.as_mut().map(|it| &mut it.watcher), roles),
                (self.cluster_bindings.as_mut().map(|it| &mut it.watcher), cluster_bindings),
                (self.bindings.as_mut().map(|it| &mut it.watcher), bindings),
            ];
            for (watcher, into) in watchers {
                let Some(watcher) = watcher else { continue };
                match watcher.poll_batch(cx, into, AT_ONCE) {
                    Poll::Pending | Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(None) => *ended = true,
                    Poll::Ready(Some(Err(_))) => *lagged = true,
                }
            }
            if news.is_something() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        news
    }
}
