//! Follows APIServices, and keeps routes and availability up to date.
//!
//! What always holds: the routes are those of the objects that were seen last. Each other server has a task of its own
//! that looks whether it answers: at once when its object, its service or the addresses behind that change, soon after
//! it failed, and now and then otherwise; a change of any other object costs it nothing.

use super::available::{Verdict, was_available};
use super::registered::{self, Wanted};
use super::remote::Remote;
use super::resolve::FAILED;
use super::routes::{Aggregation, Listed, Priority};
use crate::loopback;
use cache::{Event, Interest, Key, Watcher};
use rest::{Api, ApiError, Object, Resource};
use schema::{Value, encode, time};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// How many changes are carried over at a time.
const AT_ONCE: usize = 256;

/// How often a server is looked at when nothing changes, and how soon after it failed at first.
const EVERY: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_millis(250);

/// The objects that there are, and what follows from them.
pub(crate) struct Follower {
    aggregation: Arc<Aggregation>,
    /// The objects themselves, as they are served.
    own: Arc<Resource>,
    watcher: Watcher<Object>,
    known: BTreeMap<String, Known>,
    /// The versions that are served here.
    wanted: BTreeMap<String, Wanted>,
    served: watch::Receiver<u64>,
    tasks: JoinSet<()>,
}

/// What is known of an object.
struct Known {
    /// Stands for what it asks for.
    mark: u64,
    listed: Arc<Listed>,
    tended: Option<Tended>,
}

/// A server that is looked after.
struct Tended {
    task: AbortHandle,
    /// Somebody else said something about it.
    contradicted: Arc<Notify>,
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    /// Passes on what was registered before; what changes from here on is not missed. `None` where there are no such
    /// objects.
    pub fn start(aggregation: &Arc<Aggregation>) -> Option<Self> {
        let api = &aggregation.api;
        let version = format!("{}/v1", api.names.group(registered::OWN_GROUP));
        let own = api.resources().get(&version, "apiservices")?.clone();
        let served = api.exchanges();
        let wanted = registered::wanted(&api.resources());
        let (watcher, snapshot) = own.collection.cache.watch_now(Interest::All);
        let mut all = Follower {
            aggregation: aggregation.clone(),
            own,
            watcher,
            known: BTreeMap::new(),
            wanted,
            served,
            tasks: JoinSet::new(),
        };
        for (_, object) in snapshot.range(None, None) {
            all.look_at(&object.name);
        }
        all.publish();
        Some(all)
    }

    /// Makes the objects of everything that is served here.
    pub async fn begin(&self) {
        registered::begin(&self.aggregation.api, &self.own, &self.wanted).await;
    }

    /// Follows until the watch is ended.
    pub async fn follow(mut self) {
        loop {
            let mut news: Vec<Arc<Event<Object>>> = Vec::new();
            tokio::select! {
                told = poll_fn(|cx| self.watcher.poll_batch(cx, &mut news, AT_ONCE)) => match told {
                    None => return,
                    Some(Ok(_)) => {
                        let names: BTreeSet<&str> = news.iter().map(|event| event.key.name()).collect();
                        self.carry_over(names).await;
                    }
                    Some(Err(_)) => self.begin_anew().await,
                },
                Ok(()) = self.served.changed() => self.serve_otherwise().await,
                // who has come to an end has been replaced
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    async fn carry_over(&mut self, names: BTreeSet<&str>) {
        let mut changed = false;
        for name in &names {
            changed |= self.look_at(name);
        }
        if changed {
            self.publish();
        }
        for name in names {
            registered::settle(&self.aggregation.api, &self.own, name, self.wanted.get(name), false).await;
            self.tell_local(name).await;
        }
    }

    /// Changes were missed: everything is looked at.
    async fn begin_anew(&mut self) {
        let (watcher, snapshot) = self.own.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        let there = snapshot.range(None, None).map(|(_, object)| object.name.to_string());
        let names: BTreeSet<String> = there.chain(self.known.keys().cloned()).collect();
        self.carry_over(names.iter().map(String::as_str).collect()).await;
    }

    /// Other versions are served here than before.
    async fn serve_otherwise(&mut self) {
        let now = registered::wanted(&self.aggregation.api.resources());
        let before = std::mem::replace(&mut self.wanted, now);
        let changed = |name: &&String| before.get(*name) != self.wanted.get(*name);
        let names: BTreeSet<&String> = before.keys().chain(self.wanted.keys()).filter(changed).collect();
        for name in names {
            registered::settle(&self.aggregation.api, &self.own, name, self.wanted.get(name), false).await;
        }
    }

    fn read(&self, name: &str) -> Option<Value> {
        let object = self.own.collection.cache.get("", name)?;
        let read = object.value(&self.own.collection.kind);
        read.inspect_err(|why| tracing::error!(name, %why, "the object of an API version cannot be read"))
            .ok()
    }

    /// Learns what an object asks for now. Says whether that is something else than before.
    fn look_at(&mut self, name: &str) -> bool {
        let Some(object) = self.read(name) else { return self.known.remove(name).is_some() };
        let mark = mark(&object);
        if let Some(known) = self.known.get(name).filter(|known| known.mark == mark) {
            if let Some(tended) = &known.tended {
                tended.contradicted.notify_one();
            }
            return false;
        }
        let listed = Arc::new(self.listed(name, &object));
        let tended = listed.remote.as_ref().map(|remote| {
            let contradicted = Arc::<Notify>::default();
            let (aggregation, own) = (self.aggregation.clone(), self.own.clone());
            let tending = tend(aggregation, own, remote.clone(), contradicted.clone());
            Tended { task: self.tasks.spawn(tending), contradicted }
        });
        self.known.insert(name.to_owned(), Known { mark, listed, tended });
        true
    }

    fn listed(&self, name: &str, object: &Value) -> Listed {
        let empty = Value::map();
        let spec = object.at(&["spec"]).unwrap_or(&empty);
        let number = |field: &str| spec.at(&[field]).and_then(Value::as_int).unwrap_or(0);
        let service = spec.at(&["service"]).filter(|it| !it.is_null() && !self.is_built_in(spec));
        let Aggregation { api, options, .. } = &*self.aggregation;
        let remote = service.map(|service| {
            let remote = Remote::new(name, spec, service, was_available(object), options);
            // what is not there is told by whoever looks after it
            let _ = remote.locate(api, options.to_endpoints);
            Arc::new(remote)
        });
        Listed {
            group: spec.text(&["group"]).to_owned(),
            version: spec.text(&["version"]).to_owned(),
            priority: Priority { group: number("groupPriorityMinimum"), version: number("versionPriority") },
            remote,
        }
    }

    /// Whether this server answers for a version whatever its object says.
    fn is_built_in(&self, spec: &Value) -> bool {
        let (group, version) = (spec.text(&["group"]), spec.text(&["version"]));
        let full = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resources = self.aggregation.api.resources();
        resources.of_version(&full).any(|one| one.kind.kind_first)
    }

    fn publish(&self) {
        self.aggregation.publish(self.known.values().map(|known| known.listed.clone()).collect());
    }

    /// Says of a version that is answered for here that it is.
    async fn tell_local(&self, name: &str) {
        let Some(object) = self.read(name) else { return };
        let Some(known) = self.known.get(name).filter(|known| known.tended.is_none()) else { return };
        let Listed { group, version, .. } = &*known.listed;
        let api = &self.aggregation.api;
        let verdict = match object.at(&["spec", "service"]).filter(|it| !it.is_null()) {
            None => Verdict::local(),
            Some(_) => Verdict::shadows(&format!("{group}/{version}"), &api.names.prefix),
        };
        tell(api, &self.own, name, &verdict).await;
    }
}

/// Stands for everything that an object asks for.
fn mark(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.at(&["spec"]).map(encode::untyped).hash(&mut hasher);
    object.text(&["metadata", "uid"]).hash(&mut hasher);
    hasher.finish()
}

/// Writes what was found out into the status of an object, unless it says so already.
async fn tell(api: &Arc<Api>, own: &Arc<Resource>, name: &str, verdict: &Verdict) {
    let Some(object) = own.collection.cache.get("", name) else { return };
    let Ok(object) = object.value(&own.collection.kind) else { return };
    if verdict.is_told(&object) {
        return;
    }
    let now = time::format_time(env::unix_seconds(&api.world));
    let place = loopback::Place { resource: own, namespace: "", name, subresource: "status" };
    match loopback::write(api, place, &verdict.onto(&object, &now)).await {
        // the change that was faster is looked at next
        Ok(_) | Err(ApiError { code: 404 | 409, .. }) => {}
        Err(why) => tracing::warn!(name, %why, "the status of an API version cannot be written"),
    }
}

/// Looks after one server for as long as its object asks for it.
async fn tend(
    aggregation: Arc<Aggregation>,
    own: Arc<Resource>,
    remote: Arc<Remote>,
    contradicted: Arc<Notify>,
) {
    let api = &aggregation.api;
    let mut after_failure = SOON;
    loop {
        // what changes while it is looked at is not missed
        let (mut service, mut endpoints) =
            (watching(api, "services", &remote), watching(api, "endpoints", &remote));
        let (verdict, resources) = aggregation.examine(&remote).await;
        let before = remote.is_available(verdict.available);
        if let Some(lost) = aggregation.lost.get().filter(|_| before && !verdict.available) {
            lost.of(&[&remote.name, verdict.reason]).inc();
        }
        aggregation.learn(&remote, resources).await;
        let pause = if verdict.reason == FAILED {
            let next = (after_failure * 2).min(EVERY);
            std::mem::replace(&mut after_failure, next)
        } else {
            after_failure = SOON;
            EVERY
        };
        let next = tokio::time::Instant::now() + pause;
        loop {
            tell(api, &own, &remote.name, &verdict).await;
            let going_on = tokio::select! {
                () = tokio::time::sleep_until(next) => break,
                going_on = news(&mut service) => going_on,
                going_on = news(&mut endpoints) => going_on,
                // nothing is asked: it is only said again, if it was said otherwise
                () = contradicted.notified() => continue,
            };
            if !going_on {
                return;
            }
            after_failure = SOON;
            break;
        }
    }
}

/// A watch of one object that a server depends on.
fn watching(api: &Api, plural: &str, remote: &Remote) -> Option<Watcher<Object>> {
    let resources = api.resources();
    let collection = &resources.named(plural)?.collection;
    let key = Key::new(&remote.place.namespace, &remote.place.name);
    Some(collection.cache.watch_now(Interest::Object(key)).0)
}

/// Waits for a change; says whether there may be another.
async fn news(watcher: &mut Option<Watcher<Object>>) -> bool {
    match watcher {
        // one that lagged has news too
        Some(watcher) => watcher.recv().await.is_some(),
        None => std::future::pending().await,
    }
}
