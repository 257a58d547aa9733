//! Follows APIServices, and keeps routes and availability up to date.
//!
//! Invariants: the routes are those of the last observed objects. Each aggregated server has a task that
//! checks its availability: at once when its APIService, Service or Endpoints change, with a backoff after a
//! failure, and periodically otherwise; changes of other objects cost it nothing.

use super::aggregated_server::AggregatedServer;
use super::available::{Availability, was_available};
use super::local_api_services::{self, LocalVersion};
use super::resolve::FAILED;
use super::routes::{Aggregation, Priority, RouteEntry};
use crate::loopback;
use cache::{Event, Interest, Key, Watcher};
use env::io::RealInstant;
use rest::{Api, ApiError, Object, Resource};
use schema::table::Kind;
use schema::{Value, encode, time};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Changes that are applied per turn.
const MAX_CHANGES: usize = 256;

/// Interval of availability checks, and the first retry delay after a failure.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// The APIServices, and their routes and tasks.
pub(crate) struct Reflector {
    aggregation: Arc<Aggregation>,
    /// The resource of APIServices.
    own: Arc<Resource>,
    watcher: Watcher<Object>,
    states: BTreeMap<String, ApiServiceState>,
    /// The versions that are served locally.
    local_versions: BTreeMap<String, LocalVersion>,
    served: watch::Receiver<u64>,
    tasks: JoinSet<()>,
}

/// The state of an APIService.
struct ApiServiceState {
    /// Hash of its spec.
    spec_hash: u64,
    entry: Arc<RouteEntry>,
    task: Option<ServerTask>,
}

/// The task of an aggregated server.
struct ServerTask {
    task: AbortHandle,
    /// Notified when the status was changed by another writer.
    status_changed: Arc<Notify>,
}

impl Drop for ServerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reflector {
    /// Publishes the routes of the current objects; later changes are not missed. `None` if APIServices are
    /// not served.
    pub fn start(aggregation: &Arc<Aggregation>) -> Option<Self> {
        let api = &aggregation.api;
        let version = format!("{}/v1", api.names.group(local_api_services::OWN_GROUP));
        let own = api.resources().get(&version, "apiservices")?.clone();
        let served = api.exchanges();
        let local_versions = local_api_services::local_versions(&api.resources());
        let (watcher, snapshot) = own.collection.cache.watch_now(Interest::All);
        let mut all = Reflector {
            aggregation: aggregation.clone(),
            own,
            watcher,
            states: BTreeMap::new(),
            local_versions,
            served,
            tasks: JoinSet::new(),
        };
        for (_, object) in snapshot.range(None, None) {
            all.update(&object.name);
        }
        all.publish();
        Some(all)
    }

    /// Creates the APIServices of all local versions.
    pub async fn begin(&self) {
        local_api_services::begin(&self.aggregation.api, &self.own, &self.local_versions).await;
    }

    /// Follows changes until the watch ends.
    pub async fn follow(mut self) {
        loop {
            let mut changes: Vec<Arc<Event<Object>>> = Vec::new();
            tokio::select! {
                biased;
                result = self.watcher.recv_batch(&mut changes, MAX_CHANGES) => match result {
                    None => return,
                    Some(Ok(_)) => {
                        let names: BTreeSet<&str> = changes.iter().map(|event| event.key.name()).collect();
                        self.apply(names).await;
                    }
                    Some(Err(_)) => self.reload().await,
                },
                Ok(()) = self.served.changed() => self.update_local_versions().await,
                // finished tasks have been replaced
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    async fn apply(&mut self, names: BTreeSet<&str>) {
        let mut changed = false;
        for name in &names {
            changed |= self.update(name);
        }
        if changed {
            self.publish();
        }
        for name in names {
            self.reconcile_local(name).await;
            self.write_local_status(name).await;
        }
    }

    /// Reloads everything, after missed changes.
    async fn reload(&mut self) {
        let (watcher, snapshot) = self.own.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        let existing = snapshot.range(None, None).map(|(_, object)| object.name.to_string());
        let names: BTreeSet<String> = existing.chain(self.states.keys().cloned()).collect();
        self.apply(names.iter().map(String::as_str).collect()).await;
    }

    /// The set of local versions changed.
    async fn update_local_versions(&mut self) {
        let now = local_api_services::local_versions(&self.aggregation.api.resources());
        let before = std::mem::replace(&mut self.local_versions, now);
        let changed = |name: &&String| before.get(*name) != self.local_versions.get(*name);
        let names: BTreeSet<&String> =
            before.keys().chain(self.local_versions.keys()).filter(changed).collect();
        for name in names {
            self.reconcile_local(name).await;
        }
    }

    /// Creates, updates or deletes the APIService of a local version.
    async fn reconcile_local(&self, name: &str) {
        let version = self.local_versions.get(name);
        local_api_services::reconcile(&self.aggregation.api, &self.own, name, version, false).await;
    }

    fn read(&self, name: &str) -> Option<Value> {
        let object = self.own.collection.cache.get("", name)?;
        let read = object.value(&self.own.collection.kind);
        read.inspect_err(|why| tracing::error!(name, %why, "an APIService could not be decoded")).ok()
    }

    /// Reads an APIService; returns whether its spec changed.
    fn update(&mut self, name: &str) -> bool {
        let Some(object) = self.read(name) else { return self.states.remove(name).is_some() };
        let spec_hash = spec_hash(&object);
        if let Some(state) = self.states.get(name).filter(|state| state.spec_hash == spec_hash) {
            if let Some(task) = &state.task {
                task.status_changed.notify_one();
            }
            return false;
        }
        let entry = Arc::new(self.entry(name, &object));
        let task = entry.remote.as_ref().map(|remote| {
            let status_changed = Arc::<Notify>::default();
            let (aggregation, own) = (self.aggregation.clone(), self.own.clone());
            let tending = check_periodically(aggregation, own, remote.clone(), status_changed.clone());
            ServerTask { task: self.tasks.spawn(tending), status_changed }
        });
        self.states.insert(name.to_owned(), ApiServiceState { spec_hash, entry, task });
        true
    }

    fn entry(&self, name: &str, object: &Value) -> RouteEntry {
        let empty = Value::map();
        let spec = object.at(&["spec"]).unwrap_or(&empty);
        let number = |field: &str| spec.at(&[field]).and_then(Value::as_int).unwrap_or(0);
        let service = spec.at(&["service"]).filter(|it| !it.is_null() && !self.is_built_in(spec));
        let Aggregation { api, options, .. } = &*self.aggregation;
        let remote = service.map(|service| {
            let remote = AggregatedServer::new(name, spec, service, was_available(object), options);
            // a missing service is reported by the task of the server
            let _ = remote.locate(api, options.to_endpoints);
            Arc::new(remote)
        });
        RouteEntry {
            group: spec.text(&["group"]).to_owned(),
            version: spec.text(&["version"]).to_owned(),
            priority: Priority { group: number("groupPriorityMinimum"), version: number("versionPriority") },
            remote,
        }
    }

    /// Whether the version is built in, whatever its APIService says.
    fn is_built_in(&self, spec: &Value) -> bool {
        let (group, version) = (spec.text(&["group"]), spec.text(&["version"]));
        let full = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resources = self.aggregation.api.resources();
        let is_fixed = |kind: &Kind| kind.kind_first && !local_api_services::is_replaceable(kind);
        resources.of_version(&full).any(|one| is_fixed(&one.kind))
    }

    fn publish(&self) {
        self.aggregation.publish(self.states.values().map(|state| state.entry.clone()).collect());
    }

    /// Writes the condition of a local version.
    async fn write_local_status(&self, name: &str) {
        let Some(object) = self.read(name) else { return };
        let Some(state) = self.states.get(name).filter(|state| state.task.is_none()) else { return };
        let RouteEntry { group, version, .. } = &*state.entry;
        let api = &self.aggregation.api;
        let availability = match object.at(&["spec", "service"]).filter(|it| !it.is_null()) {
            None => Availability::local(),
            Some(_) => Availability::built_in(&format!("{group}/{version}"), &api.names.prefix),
        };
        write_status(api, &self.own, name, &availability).await;
    }
}

/// Hash of the spec of an APIService.
fn spec_hash(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.at(&["spec"]).map(encode::untyped).hash(&mut hasher);
    object.text(&["metadata", "uid"]).hash(&mut hasher);
    hasher.finish()
}

/// Writes the condition into the status, unless it is there already.
async fn write_status(api: &Arc<Api>, own: &Arc<Resource>, name: &str, availability: &Availability) {
    let Some(object) = own.collection.cache.get("", name) else { return };
    let Ok(object) = object.value(&own.collection.kind) else { return };
    if availability.is_current(&object) {
        return;
    }
    let now = time::format_time(env::unix_seconds(&api.world));
    let target = loopback::WriteTarget { resource: own, namespace: "", name, subresource: "status" };
    match loopback::write(api, target, &availability.apply_to(&object, &now)).await {
        // the concurrent change is handled next
        Ok(_) | Err(ApiError { code: 404 | 409, .. }) => {}
        Err(why) => tracing::warn!(name, %why, "the status of an APIService could not be written"),
    }
}

/// Checks one server for as long as its APIService exists.
async fn check_periodically(
    aggregation: Arc<Aggregation>,
    own: Arc<Resource>,
    remote: Arc<AggregatedServer>,
    status_changed: Arc<Notify>,
) {
    let api = &aggregation.api;
    let mut after_failure = RETRY_DELAY;
    loop {
        // subscribe first: changes during the check are not missed
        let (mut service, mut endpoints) =
            (watch_object(api, "services", &remote), watch_object(api, "endpoints", &remote));
        let (availability, resources) = aggregation.examine(&remote).await;
        let before = remote.set_available(availability.available);
        if let Some(lost) = aggregation.lost.get().filter(|_| before && !availability.available) {
            lost.of(&[&remote.name, availability.reason]).inc();
        }
        aggregation.update_discovery(&remote, resources).await;
        let pause = if availability.reason == FAILED {
            let next = (after_failure * 2).min(CHECK_INTERVAL);
            std::mem::replace(&mut after_failure, next)
        } else {
            after_failure = RETRY_DELAY;
            CHECK_INTERVAL
        };
        let next = RealInstant::after(pause);
        loop {
            write_status(api, &own, &remote.name, &availability).await;
            let going_on = tokio::select! {
                biased;
                () = next.sleep() => break,
                going_on = changes(&mut service) => going_on,
                going_on = changes(&mut endpoints) => going_on,
                // only the status is written again, if another writer changed it
                () = status_changed.notified() => continue,
            };
            if !going_on {
                return;
            }
            after_failure = RETRY_DELAY;
            break;
        }
    }
}

/// A watch of one object that a server depends on.
fn watch_object(api: &Api, plural: &str, remote: &AggregatedServer) -> Option<Watcher<Object>> {
    let resources = api.resources();
    let collection = &resources.named(plural)?.collection;
    let key = Key::new(&remote.reference.namespace, &remote.reference.name);
    Some(collection.cache.watch_now(Interest::Object(key)).0)
}

/// Waits for a change; returns whether there may be another.
async fn changes(watcher: &mut Option<Watcher<Object>>) -> bool {
    match watcher {
        // a lagged watch counts as a change
        Some(watcher) => watcher.recv().await.is_some(),
        None => std::future::pending().await,
    }
}
