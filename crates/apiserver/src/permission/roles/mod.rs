//! Roles at work: those that every cluster has, and the policy that follows all of them.
//!
//! What always holds: the policy is compiled from whole snapshots of the four kinds, so it is the state at some
//! revision or between two; it follows every change shortly. An object is read again only when it has changed.

mod bootstrap;
mod defaults;
pub(crate) mod read;

use auth::rbac::{Binding, Policy, Rbac};
use cache::{Interest, Key, Watcher};
use read::Read;
use rest::{Api, Collection, Object};
use schema::Value;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub(crate) use bootstrap::ensure;

/// Policies of so many objects are compiled anew without a pause.
const SMALL: usize = 1000;
/// The pause after a larger one.
const PER_OBJECT: Duration = Duration::from_micros(2);

/// What was read of a collection, with the revision that it was read at.
struct Seen<T> {
    collection: Option<Arc<Collection>>,
    objects: HashMap<Key, (u64, Arc<T>)>,
}

impl<T> Seen<T> {
    fn new(api: &Api, group_version: &str, plural: &str) -> Self {
        let resources = api.resources();
        let collection = resources.get(group_version, plural).map(|it| it.collection.clone());
        Seen { collection, objects: HashMap::new() }
    }

    /// Everything there is, in the order of keys.
    fn look(&mut self, read: impl Fn(&Value) -> T) -> Vec<Arc<T>> {
        let Some(collection) = &self.collection else { return Vec::new() };
        let snapshot = collection.cache.snapshot();
        let mut next = HashMap::with_capacity(snapshot.len());
        let mut all = Vec::with_capacity(snapshot.len());
        for (key, object) in snapshot.range(None, None) {
            let known = self.objects.remove(key).filter(|(revision, _)| *revision == object.revision);
            let one = match known {
                Some((_, one)) => one,
                None => match object.value(&collection.kind) {
                    Ok(value) => Arc::new(read(&value)),
                    Err(why) => {
                        tracing::error!(key = key.path(), %why, "permits nothing, because it cannot be read");
                        continue;
                    }
                },
            };
            next.insert(key.clone(), (object.revision, one.clone()));
            all.push(one);
        }
        self.objects = next;
        all
    }
}

/// Keeps a policy as the objects are.
pub(crate) struct Follower {
    rbac: Arc<Rbac>,
    cluster_roles: Seen<Read>,
    roles: Seen<Read>,
    cluster_bindings: Seen<Binding>,
    bindings: Seen<Binding>,
    watchers: Vec<Watcher<Object>>,
}

impl Follower {
    /// With the policy as it is now; what changes from here on is not missed.
    pub fn start(api: &Api, rbac: Arc<Rbac>) -> Self {
        let version = format!("{}/v1", rbac.group());
        let mut follower = Follower {
            rbac,
            cluster_roles: Seen::new(api, &version, "clusterroles"),
            roles: Seen::new(api, &version, "roles"),
            cluster_bindings: Seen::new(api, &version, "clusterrolebindings"),
            bindings: Seen::new(api, &version, "rolebindings"),
            watchers: Vec::new(),
        };
        follower.watch();
        follower.compile();
        follower
    }

    fn watch(&mut self) {
        let all = [
            &self.cluster_roles.collection,
            &self.roles.collection,
            &self.cluster_bindings.collection,
            &self.bindings.collection,
        ];
        let watch = |collection: &Arc<Collection>| collection.cache.watch_now(Interest::All).0;
        self.watchers = all.into_iter().flatten().map(watch).collect();
    }

    /// Gives the number of objects that it took.
    fn compile(&mut self) -> usize {
        let roles = read::gathered(&self.cluster_roles.look(read::role));
        let own = self.roles.look(read::role);
        let roles = roles.into_iter().chain(own.iter().map(|role| Arc::new(role.alone())));
        let bindings = self.cluster_bindings.look(read::binding);
        let bindings = bindings.into_iter().chain(self.bindings.look(read::binding));
        self.rbac.replace(Policy::compile(roles, bindings));
        self.cluster_roles.objects.len()
            + self.roles.objects.len()
            + self.cluster_bindings.objects.len()
            + self.bindings.objects.len()
    }

    /// Follows until the watches are ended.
    pub async fn follow(mut self) {
        if self.watchers.is_empty() {
            return;
        }
        while let Some(lagged) = changed(&mut self.watchers).await {
            if lagged {
                self.watch();
            }
            let objects = self.compile();
            // a policy takes time in proportion to its size: changes that come in a row are then taken together,
            // and following many of them costs a part of one processor at most
            if objects > SMALL {
                tokio::time::sleep(PER_OBJECT.saturating_mul(u32::try_from(objects).unwrap_or(u32::MAX)))
                    .await;
            }
        }
    }
}

/// Waits for changes and takes all that wait; whether some were missed, or nothing when a watch has ended.
async fn changed(watchers: &mut [Watcher<Object>]) -> Option<bool> {
    let mut taken = Vec::new();
    poll_fn(|cx| {
        let (mut news, mut lagged) = (false, false);
        for watcher in watchers.iter_mut() {
            loop {
                taken.clear();
                match watcher.poll_batch(cx, &mut taken, 256) {
                    Poll::Pending => break,
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(Some(Ok(_))) => news = true,
                    Poll::Ready(Some(Err(_))) => {
                        lagged = true;
                        break;
                    }
                }
            }
        }
        if news || lagged { Poll::Ready(Some(lagged)) } else { Poll::Pending }
    })
    .await
}

/// The rules of a role that every cluster has, as it is made.
pub(crate) fn rules_of_every_cluster(names: &names::Names, role: &str) -> Vec<auth::rbac::Rule> {
    let all = defaults::all(names).into_iter();
    let mut named = all.filter(|one| one.plural == "clusterroles" && one.name == role);
    named.next().map(|one| read::rules(&one.object)).unwrap_or_default()
}

/// The roles and bindings that every cluster has, for tests.
#[cfg(test)]
pub(crate) fn policy_of_every_cluster() -> (Vec<Arc<auth::rbac::Role>>, Vec<Arc<Binding>>) {
    let all = defaults::all(&names::Names::kubernetes());
    let of = |plural: &'static str| all.iter().filter(move |one| one.plural == plural).map(|one| &one.object);
    let roles: Vec<_> = of("clusterroles").map(|object| Arc::new(read::role(object))).collect();
    let bindings = of("clusterrolebindings").map(|object| Arc::new(read::binding(object))).collect();
    (read::gathered(&roles), bindings)
}

#[cfg(test)]
mod tests;
