//! Follows CustomResourceDefinitions, and serves the resources that they define.
//!
//! Invariants: a definition is served before its status is `Established`, and until its last object is gone.
//! A change is applied incrementally; other definitions are reconsidered only when names of their group
//! become free. Requests in flight during a change continue with the old tables; watches end, and resume with
//! the new ones.

mod cleanup;
mod webhook;

use crate::loopback;
use crate::outgoing::webhook_target::ServiceRouting;
use cache::{Event, Interest, Watcher};
use futures_util::future::join_all;
use kinds::apiextensions::{naming, serve};
use rest::{Api, Collection, Object, Resource};
use schema::{Value, time};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Changes applied per turn: they take effect at the same time, and one batch makes their statuses durable.
const MAX_CHANGES: usize = 32;

/// The definitions, and the resources served for them.
pub(crate) struct Definitions {
    api: Arc<Api>,
    /// The resource of definitions.
    own: Arc<Resource>,
    /// Routing of conversion webhooks.
    routing: ServiceRouting,
    watcher: Watcher<Object>,
    states: BTreeMap<String, DefinitionState>,
    /// The names in use, by group.
    names_in_use: HashMap<String, naming::NameIndex>,
    /// Definitions that wait for names, by group.
    waiting: HashMap<String, HashSet<String>>,
    /// Running deletions of objects.
    cleaning: JoinSet<String>,
    names_in_cleanup: HashSet<String>,
}

/// The state of a definition.
struct DefinitionState {
    group: String,
    accepted: Value,
    serving: Option<Serving>,
    /// The revision of our own status write, which needs no handling.
    settled: Option<u64>,
}

/// The resources served for a definition.
struct Serving {
    inputs: ServingInputs,
    resources: Vec<Arc<Resource>>,
    collection: Arc<Collection>,
}

/// The inputs that decide how a definition is served: the generation of its spec, its accepted names, and
/// whether it is terminating.
#[derive(PartialEq)]
struct ServingInputs {
    uid: String,
    generation: Value,
    accepted: Value,
    is_terminating: bool,
}

impl ServingInputs {
    fn of(definition: &Value, accepted: &Value) -> Self {
        ServingInputs {
            uid: definition.text(&["metadata", "uid"]).to_owned(),
            generation: definition.at(&["metadata", "generation"]).cloned().unwrap_or_default(),
            accepted: accepted.clone(),
            is_terminating: !definition.text(&["metadata", "deletionTimestamp"]).is_empty(),
        }
    }
}

/// The collected results for several definitions, applied together.
#[derive(Default)]
struct Round {
    gone: Vec<Arc<Resource>>,
    new: Vec<Arc<Resource>>,
    /// Statuses to write.
    statuses: BTreeMap<String, Status>,
}

struct Status {
    /// The resourceVersion of the definition that it is based on.
    version: String,
    value: Value,
}

impl Definitions {
    /// Serves existing definitions; later changes are not missed. `None` if definitions are not served.
    pub fn start(api: &Arc<Api>, routing: ServiceRouting) -> Option<Self> {
        let version = format!("{}/v1", api.names.group("apiextensions"));
        let own = api.resources().get(&version, "customresourcedefinitions")?.clone();
        let (watcher, snapshot) = own.collection.cache.watch_now(Interest::All);
        let mut all = Definitions {
            api: api.clone(),
            own,
            routing,
            watcher,
            states: BTreeMap::new(),
            names_in_use: HashMap::new(),
            waiting: HashMap::new(),
            cleaning: JoinSet::new(),
            names_in_cleanup: HashSet::new(),
        };
        let mut new = Vec::new();
        for (_, object) in snapshot.range(None, None) {
            let Some(definition) = all.read(object) else { continue };
            let names = definition.at(&["status", "acceptedNames"]).cloned().unwrap_or_else(Value::map);
            all.accept_names(&object.name, &definition, names.clone());
            if naming::is_true(&definition, "Established") {
                new.extend(all.prepare(&object.name, &definition, &names));
            }
        }
        all.api.exchange(&[], &new);
        Some(all)
    }

    /// Follows changes until the watch ends.
    pub async fn follow(mut self) {
        // finish interrupted deletions, of this server or another
        let names: Vec<String> = self.states.keys().cloned().collect();
        self.update_all(names).await;
        loop {
            let mut changes: Vec<Arc<Event<Object>>> = Vec::new();
            tokio::select! {
                biased;
                Some(Ok(name)) = self.cleaning.join_next() => {
                    self.names_in_cleanup.remove(&name);
                    self.update_all(vec![name]).await;
                }
                result = self.watcher.recv_batch(&mut changes, MAX_CHANGES) => match result {
                    None => return,
                    Some(Ok(_)) => {
                        // in order: the first definition has the first claim to a name
                        let mut names_seen = HashSet::new();
                        let names = changes.iter().filter(|event| !self.is_settled(event));
                        let names = names.map(|event| event.key.name()).filter(|name| names_seen.insert(*name));
                        let names = names.map(str::to_owned).collect();
                        self.update_all(names).await;
                    }
                    Some(Err(_)) => self.reload().await,
                },
            }
        }
    }

    /// Reloads everything, after missed changes.
    async fn reload(&mut self) {
        let (watcher, snapshot) = self.own.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        let existing = snapshot.range(None, None).map(|(_, object)| object.name.to_string());
        let names: HashSet<String> = existing.chain(self.states.keys().cloned()).collect();
        self.update_all(names.into_iter().collect()).await;
    }

    async fn update_all(&mut self, names: Vec<String>) {
        for some in names.chunks(MAX_CHANGES) {
            let mut round = Round::default();
            for name in some {
                self.update(name, &mut round);
                // yield: large definitions take long to parse
                tokio::task::yield_now().await;
            }
            self.commit(round).await;
        }
    }

    fn is_settled(&self, event: &Event<Object>) -> bool {
        let state = self.states.get(event.key.name());
        !event.deleted && state.is_some_and(|state| state.settled == Some(event.revision))
    }

    /// Serves before writing statuses: an established definition must be usable.
    async fn commit(&mut self, round: Round) {
        self.exchange(&round.gone, &round.new);
        let written = round.statuses.iter().map(|(name, status)| self.write_status(name, status));
        let written = join_all(written).await;
        for (name, revision) in round.statuses.into_keys().zip(written) {
            if let Some(state) = self.states.get_mut(&name) {
                state.settled = revision;
            }
        }
    }

    fn exchange(&self, gone: &[Arc<Resource>], new: &[Arc<Resource>]) {
        if gone.is_empty() && new.is_empty() {
            return;
        }
        self.api.exchange(gone, new);
        // watches of removed or changed resources start again
        gone.iter().for_each(|old| old.collection.cache.end_watchers());
    }

    fn read(&self, object: &Object) -> Option<Value> {
        let read = object.value(&self.own.collection.kind);
        read.inspect_err(|why| tracing::error!(name = %object.name, %why, "a CustomResourceDefinition could not be decoded")).ok()
    }

    /// Computes the resources and the status of a definition.
    fn update(&mut self, name: &str, round: &mut Round) {
        let Some(object) = self.own.collection.cache.get("", name) else { return self.remove(name, round) };
        let Some(mut definition) = self.read(&object) else { return };
        let now = time::format_time(env::unix_seconds(&self.api.world));
        let group = definition.text(&["spec", "group"]).to_owned();
        let names_in_use = self.names_in_use.entry(group.clone()).or_default();
        let status = naming::status(&definition, names_in_use, &self.api.names, &now);
        let other = definition.at(&["status"]) != Some(&status);
        definition.set(&["status"], status.clone());
        let accepted = definition.at(&["status", "acceptedNames"]).cloned().unwrap_or_else(Value::map);
        self.accept_names(name, &definition, accepted.clone());
        if naming::is_true(&definition, "NamesAccepted") {
            self.stop_waiting(&group, name);
        } else {
            self.waiting.entry(group).or_default().insert(name.to_owned());
        }
        if naming::is_true(&definition, "Established") {
            self.serve(name, &definition, &accepted, round);
        }
        if cleanup::is_due(&definition, &self.api.names) && self.names_in_cleanup.insert(name.to_owned()) {
            self.clean(name, &definition, &accepted);
        }
        // it may have been handled before in this round, when the names were in use
        round.statuses.remove(name);
        if other {
            let version = definition.text(&["metadata", "resourceVersion"]).to_owned();
            round.statuses.insert(name.to_owned(), Status { version, value: status });
        }
    }

    fn stop_waiting(&mut self, group: &str, name: &str) {
        if let Some(waiting) = self.waiting.get_mut(group) {
            waiting.remove(name);
            if waiting.is_empty() {
                self.waiting.remove(group);
            }
        }
    }

    fn accept_names(&mut self, name: &str, definition: &Value, accepted: Value) {
        let group = definition.text(&["spec", "group"]).to_owned();
        let new =
            || DefinitionState { group: group.clone(), accepted: Value::Null, serving: None, settled: None };
        let state = self.states.entry(name.to_owned()).or_insert_with(new);
        self.names_in_use.entry(group).or_default().change(name, &state.accepted, &accepted);
        state.accepted = accepted;
    }

    /// Handles a deleted definition; others of its group may get its names.
    fn remove(&mut self, name: &str, round: &mut Round) {
        let Some(state) = self.states.remove(name) else { return };
        if let Some(serving) = state.serving {
            self.withdraw(&serving.resources, round);
            self.exchange(&serving.resources, &[]);
            self.api.storage.forget(&serving.collection);
        }
        self.stop_waiting(&state.group, name);
        if let Some(names_in_use) = self.names_in_use.get_mut(&state.group) {
            names_in_use.change(name, &state.accepted, &Value::Null);
            if names_in_use.is_empty() {
                self.names_in_use.remove(&state.group);
            }
        }
        let waiting: Vec<String> = self.waiting.get(&state.group).into_iter().flatten().cloned().collect();
        for other in waiting {
            self.update(&other, round);
        }
    }

    /// Serves a definition, unless its inputs are unchanged.
    fn serve(&mut self, name: &str, definition: &Value, accepted: &Value, round: &mut Round) {
        let before = self.states.get(name).and_then(|state| state.serving.as_ref());
        if before.is_some_and(|before| before.inputs == ServingInputs::of(definition, accepted)) {
            return;
        }
        let gone = before.map(|before| before.resources.clone()).unwrap_or_default();
        self.withdraw(&gone, round);
        round.gone.extend(gone);
        round.new.extend(self.prepare(name, definition, accepted));
    }

    /// Removes resources that were to be served from this round on.
    fn withdraw(&self, gone: &[Arc<Resource>], round: &mut Round) {
        round.new.retain(|new| !gone.iter().any(|gone| Arc::ptr_eq(gone, new)));
    }

    /// Builds the resources of a definition.
    fn prepare(&mut self, name: &str, definition: &Value, accepted: &Value) -> Vec<Arc<Resource>> {
        let converter = webhook::of(definition, &self.api, &self.routing);
        let versions = serve::versions(definition, accepted, &self.fetch(name), converter);
        let existing = self.api.resources();
        let (mut resources, mut collection) = (Vec::new(), None);
        for version in versions {
            let resource = match self.api.make(version.kind, version.stored, version.hooks) {
                Ok(resource) => resource,
                Err(why) => {
                    tracing::error!(name, %why, "a version of a CustomResourceDefinition could not be served");
                    continue;
                }
            };
            collection.get_or_insert_with(|| resource.collection.clone());
            // built-in resources are not redefined
            let built_in = existing
                .get(&resource.api_version, &resource.kind.plural)
                .is_some_and(|it| it.kind.kind_first);
            if version.served && !built_in {
                resources.push(resource);
            }
        }
        if let Some(state) = self.states.get_mut(name) {
            let inputs = ServingInputs::of(definition, accepted);
            let resources = resources.clone();
            state.serving = collection.map(|collection| Serving { inputs, resources, collection });
        }
        resources
    }

    /// The definition is read again when its schema is needed, rather than kept in memory twice.
    fn fetch(&self, name: &str) -> serve::Fetch {
        let (definitions, name) = (self.own.collection.clone(), name.to_owned());
        Arc::new(move || definitions.cache.get("", &name)?.value(&definitions.kind).ok())
    }

    /// Returns the revision of the write.
    async fn write_status(&self, name: &str, status: &Status) -> Option<u64> {
        let target =
            loopback::WriteTarget { resource: &self.own, namespace: "", name, subresource: "status" };
        let change = |definition: &mut Value| {
            definition.set(&["metadata", "resourceVersion"], &*status.version);
            definition.set(&["status"], status.value.clone());
        };
        match loopback::change(&self.api, target, &change).await {
            Ok(written) => written.revision,
            // the concurrent change is handled next
            Err(rest::ApiError { code: 404 | 409, .. }) => None,
            Err(why) => {
                tracing::warn!(name, %why, "the status of a CustomResourceDefinition could not be written");
                None
            }
        }
    }

    /// Deletes all objects of a terminating definition, in the background.
    fn clean(&mut self, name: &str, definition: &Value, accepted: &Value) {
        // the stored version needs no conversion
        let mut versions = serve::versions(definition, accepted, &self.fetch(name), None);
        let stored = versions.iter().position(|it| it.is_stored).map(|at| versions.swap_remove(at));
        let resource = stored.map(|it| self.api.make(it.kind, it.stored, it.hooks));
        let objects = match resource {
            Some(Ok(resource)) => Some(resource),
            _ => None,
        };
        let (api, own, name) = (self.api.clone(), self.own.clone(), name.to_owned());
        self.cleaning.spawn(async move {
            cleanup::run(&api, &own, &name, objects.as_ref()).await;
            name
        });
    }
}
