//! Follows CustomResourceDefinitions, and serves the resources that they define.
//!
//! What always holds: a definition is served from before its status says that it is established until its last
//! object is gone. A change of a definition is carried over by itself; other definitions are looked at again only
//! where names of their group have become free. Requests that are under way when a definition changes go on with
//! the tables that they began with; watches end, and go on with the new ones when they come back.

mod cleanup;
mod webhook;

use crate::loopback;
use crate::outgoing::webhook_target::Way;
use cache::{Event, Interest, Watcher};
use futures_util::future::join_all;
use kinds::apiextensions::{naming, serve};
use rest::{Api, Collection, Object, Resource};
use schema::{Value, time};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many changes are carried over at a time: they are served from the same moment, and their statuses become durable
/// together.
const AT_ONCE: usize = 32;

/// The definitions that there are, and what is served because of them.
pub(crate) struct Definitions {
    api: Arc<Api>,
    /// The definitions themselves, as they are served.
    own: Arc<Resource>,
    /// How those are reached that convert.
    way: Way,
    watcher: Watcher<Object>,
    known: BTreeMap<String, Known>,
    /// The names that the definitions of each group have.
    taken: HashMap<String, naming::NameIndex>,
    /// Those that wait for names, by their group.
    waiting: HashMap<String, HashSet<String>>,
    /// Objects are being deleted for these definitions.
    cleaning: JoinSet<String>,
    being_cleaned: HashSet<String>,
}

/// What is known of a definition.
struct Known {
    group: String,
    accepted: Value,
    serving: Option<Serving>,
    /// The revision at which its status was written here: nothing follows from that.
    settled: Option<u64>,
}

/// What is served because of a definition.
struct Serving {
    mark: Mark,
    resources: Vec<Arc<Resource>>,
    collection: Arc<Collection>,
}

/// Everything of a definition that decides how it is served: its specification, which has another generation when it
/// changes, the names that it was given, and whether it goes away.
#[derive(PartialEq)]
struct Mark {
    uid: String,
    generation: Value,
    accepted: Value,
    going: bool,
}

impl Mark {
    fn of(definition: &Value, accepted: &Value) -> Self {
        Mark {
            uid: definition.text(&["metadata", "uid"]).to_owned(),
            generation: definition.at(&["metadata", "generation"]).cloned().unwrap_or_default(),
            accepted: accepted.clone(),
            going: !definition.text(&["metadata", "deletionTimestamp"]).is_empty(),
        }
    }
}

/// What looking at definitions has led to, and is done for all of them at once.
#[derive(Default)]
struct Round {
    gone: Vec<Arc<Resource>>,
    new: Vec<Arc<Resource>>,
    /// Definitions whose status must be another.
    statuses: BTreeMap<String, Status>,
}

struct Status {
    /// The version of the definition that led to it.
    version: String,
    value: Value,
}

impl Definitions {
    /// Serves what was defined before; what changes from here on is not missed. `None` where there are no definitions.
    pub fn start(api: &Arc<Api>, way: Way) -> Option<Self> {
        let version = format!("{}/v1", api.names.group("apiextensions"));
        let own = api.resources().get(&version, "customresourcedefinitions")?.clone();
        let (watcher, snapshot) = own.collection.cache.watch_now(Interest::All);
        let mut all = Definitions {
            api: api.clone(),
            own,
            way,
            watcher,
            known: BTreeMap::new(),
            taken: HashMap::new(),
            waiting: HashMap::new(),
            cleaning: JoinSet::new(),
            being_cleaned: HashSet::new(),
        };
        let mut new = Vec::new();
        for (_, object) in snapshot.range(None, None) {
            let Some(definition) = all.read(object) else { continue };
            let names = definition.at(&["status", "acceptedNames"]).cloned().unwrap_or_else(Value::map);
            all.learn(&object.name, &definition, names.clone());
            if naming::is_true(&definition, "Established") {
                new.extend(all.prepare(&object.name, &definition, &names));
            }
        }
        all.api.exchange(&[], &new);
        Some(all)
    }

    /// Follows until the watch is ended.
    pub async fn follow(mut self) {
        // what was left undone, by this server or another
        let names: Vec<String> = self.known.keys().cloned().collect();
        self.look_at_all(names).await;
        loop {
            let mut news: Vec<Arc<Event<Object>>> = Vec::new();
            tokio::select! {
                told = poll_fn(|cx| self.watcher.poll_batch(cx, &mut news, AT_ONCE)) => match told {
                    None => return,
                    Some(Ok(_)) => {
                        // in their order: who came first has the first right to a name
                        let mut seen = HashSet::new();
                        let names = news.iter().filter(|event| !self.is_settled(event));
                        let names = names.map(|event| event.key.name()).filter(|name| seen.insert(*name));
                        let names = names.map(str::to_owned).collect();
                        self.look_at_all(names).await;
                    }
                    Some(Err(_)) => self.begin_anew().await,
                },
                Some(Ok(name)) = self.cleaning.join_next() => {
                    self.being_cleaned.remove(&name);
                    self.look_at_all(vec![name]).await;
                }
            }
        }
    }

    /// Changes were missed: everything is looked at.
    async fn begin_anew(&mut self) {
        let (watcher, snapshot) = self.own.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        let there = snapshot.range(None, None).map(|(_, object)| object.name.to_string());
        let names: HashSet<String> = there.chain(self.known.keys().cloned()).collect();
        self.look_at_all(names.into_iter().collect()).await;
    }

    async fn look_at_all(&mut self, names: Vec<String>) {
        for some in names.chunks(AT_ONCE) {
            let mut round = Round::default();
            for name in some {
                self.look_at(name, &mut round);
                // there is much to read in some, and others wait for this thread, too
                tokio::task::yield_now().await;
            }
            self.conclude(round).await;
        }
    }

    fn is_settled(&self, event: &Event<Object>) -> bool {
        let known = self.known.get(event.key.name());
        !event.deleted && known.is_some_and(|known| known.settled == Some(event.revision))
    }

    /// Serves first: who sees that a definition is established may use it.
    async fn conclude(&mut self, round: Round) {
        self.exchange(&round.gone, &round.new);
        let written = round.statuses.iter().map(|(name, status)| self.write_status(name, status));
        let written = join_all(written).await;
        for (name, revision) in round.statuses.into_keys().zip(written) {
            if let Some(known) = self.known.get_mut(&name) {
                known.settled = revision;
            }
        }
    }

    fn exchange(&self, gone: &[Arc<Resource>], new: &[Arc<Resource>]) {
        if gone.is_empty() && new.is_empty() {
            return;
        }
        self.api.exchange(gone, new);
        // who watches what is no longer there, or is there in another form, begins again
        gone.iter().for_each(|old| old.collection.cache.end_watchers());
    }

    fn read(&self, object: &Object) -> Option<Value> {
        let read = object.value(&self.own.collection.kind);
        read.inspect_err(|why| tracing::error!(name = %object.name, %why, "a definition cannot be read")).ok()
    }

    /// Finds out what is to be served, and what its status is to say, because of what the definition asks for now.
    fn look_at(&mut self, name: &str, round: &mut Round) {
        let Some(object) = self.own.collection.cache.get("", name) else { return self.forget(name, round) };
        let Some(mut definition) = self.read(&object) else { return };
        let now = time::format_time(env::unix_seconds(&self.api.world));
        let group = definition.text(&["spec", "group"]).to_owned();
        let taken = self.taken.entry(group.clone()).or_default();
        let status = naming::status(&definition, taken, &self.api.names, &now);
        let other = definition.at(&["status"]) != Some(&status);
        definition.set(&["status"], status.clone());
        let accepted = definition.at(&["status", "acceptedNames"]).cloned().unwrap_or_else(Value::map);
        self.learn(name, &definition, accepted.clone());
        if naming::is_true(&definition, "NamesAccepted") {
            self.waits_no_longer(&group, name);
        } else {
            self.waiting.entry(group).or_default().insert(name.to_owned());
        }
        if naming::is_true(&definition, "Established") {
            self.serve(name, &definition, &accepted, round);
        }
        if cleanup::is_due(&definition, &self.api.names) && self.being_cleaned.insert(name.to_owned()) {
            self.clean(name, &definition, &accepted);
        }
        // it may have been looked at before in this round, when names were taken that are free now
        round.statuses.remove(name);
        if other {
            let version = definition.text(&["metadata", "resourceVersion"]).to_owned();
            round.statuses.insert(name.to_owned(), Status { version, value: status });
        }
    }

    fn waits_no_longer(&mut self, group: &str, name: &str) {
        if let Some(waiting) = self.waiting.get_mut(group) {
            waiting.remove(name);
            if waiting.is_empty() {
                self.waiting.remove(group);
            }
        }
    }

    fn learn(&mut self, name: &str, definition: &Value, accepted: Value) {
        let group = definition.text(&["spec", "group"]).to_owned();
        let new = || Known { group: group.clone(), accepted: Value::Null, serving: None, settled: None };
        let known = self.known.entry(name.to_owned()).or_insert_with(new);
        self.taken.entry(group).or_default().change(name, &known.accepted, &accepted);
        known.accepted = accepted;
    }

    /// A definition is gone; others of its group may get names that it had.
    fn forget(&mut self, name: &str, round: &mut Round) {
        let Some(known) = self.known.remove(name) else { return };
        if let Some(serving) = known.serving {
            self.withdraw(&serving.resources, round);
            self.exchange(&serving.resources, &[]);
            self.api.storage.forget(&serving.collection);
        }
        self.waits_no_longer(&known.group, name);
        if let Some(taken) = self.taken.get_mut(&known.group) {
            taken.change(name, &known.accepted, &Value::Null);
            if taken.is_empty() {
                self.taken.remove(&known.group);
            }
        }
        let waiting: Vec<String> = self.waiting.get(&known.group).into_iter().flatten().cloned().collect();
        for other in waiting {
            self.look_at(&other, round);
        }
    }

    /// Serves a definition as it is now, unless it is served so already.
    fn serve(&mut self, name: &str, definition: &Value, accepted: &Value, round: &mut Round) {
        let before = self.known.get(name).and_then(|known| known.serving.as_ref());
        if before.is_some_and(|before| before.mark == Mark::of(definition, accepted)) {
            return;
        }
        let gone = before.map(|before| before.resources.clone()).unwrap_or_default();
        self.withdraw(&gone, round);
        round.gone.extend(gone);
        round.new.extend(self.prepare(name, definition, accepted));
    }

    /// What was to be served from this round on, and is to be served no longer.
    fn withdraw(&self, gone: &[Arc<Resource>], round: &mut Round) {
        round.new.retain(|new| !gone.iter().any(|gone| Arc::ptr_eq(gone, new)));
    }

    /// Makes the resources of a definition, which are what it is served as from then on.
    fn prepare(&mut self, name: &str, definition: &Value, accepted: &Value) -> Vec<Arc<Resource>> {
        let converter = webhook::of(definition, &self.api, &self.way);
        let versions = serve::versions(definition, accepted, &self.fetch(name), converter);
        let there = self.api.resources();
        let (mut resources, mut collection) = (Vec::new(), None);
        for version in versions {
            let made = match self.api.make(version.kind, version.stored, version.hooks) {
                Ok(made) => made,
                Err(why) => {
                    tracing::error!(name, %why, "a custom resource cannot be served");
                    continue;
                }
            };
            collection.get_or_insert_with(|| made.collection.clone());
            // what the server itself has is not redefined
            let built_in =
                there.get(&made.api_version, &made.kind.plural).is_some_and(|it| it.kind.kind_first);
            if version.served && !built_in {
                resources.push(made);
            }
        }
        if let Some(known) = self.known.get_mut(name) {
            let mark = Mark::of(definition, accepted);
            let resources = resources.clone();
            known.serving = collection.map(|collection| Serving { mark, resources, collection });
        }
        resources
    }

    /// The definition is looked up again when its schema is needed, rather than kept twice.
    fn fetch(&self, name: &str) -> serve::Fetch {
        let (definitions, name) = (self.own.collection.clone(), name.to_owned());
        Arc::new(move || definitions.cache.get("", &name)?.value(&definitions.kind).ok())
    }

    /// The revision at which it is written.
    async fn write_status(&self, name: &str, status: &Status) -> Option<u64> {
        let place = loopback::Place { resource: &self.own, namespace: "", name, subresource: "status" };
        let change = |definition: &mut Value| {
            definition.set(&["metadata", "resourceVersion"], &*status.version);
            definition.set(&["status"], status.value.clone());
        };
        match loopback::change(&self.api, place, &change).await {
            Ok(written) => written.revision,
            // the change that was faster is looked at next
            Err(rest::ApiError { code: 404 | 409, .. }) => None,
            Err(why) => {
                tracing::warn!(name, %why, "the status of a definition cannot be written");
                None
            }
        }
    }

    /// Deletes all objects of a definition that is going away, beside everything else.
    fn clean(&mut self, name: &str, definition: &Value, accepted: &Value) {
        // the stored version needs nobody to convert what is going away
        let mut versions = serve::versions(definition, accepted, &self.fetch(name), None);
        let stored = versions.iter().position(|it| it.is_stored).map(|at| versions.swap_remove(at));
        let made = stored.map(|it| self.api.make(it.kind, it.stored, it.hooks));
        let objects = match made {
            Some(Ok(made)) => Some(made),
            _ => None,
        };
        let (api, own, name) = (self.api.clone(), self.own.clone(), name.to_owned());
        self.cleaning.spawn(async move {
            cleanup::run(&api, &own, &name, objects.as_ref()).await;
            name
        });
    }
}
