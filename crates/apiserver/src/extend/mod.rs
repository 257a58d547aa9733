//! Kinds that are added while the server runs: follows the definitions of custom resources and serves what they say.
//!
//! What always holds: a definition is served from before its status says that it is established until its last
//! object is gone. A change of a definition is carried over by itself; other definitions are looked at again only
//! where names of their group have become free. Requests that are under way when a definition changes go on with
//! the tables that they began with; watches end, and go on with the new ones when they come back.

mod cleanup;
mod webhook;

use crate::own;
use crate::reach::Way;
use cache::{Event, Interest, Watcher};
use kinds::crd::{naming, serve};
use rest::{Api, Collection, Object, Resource};
use schema::{Value, encode, time};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many changes are carried over at a time.
const AT_ONCE: usize = 256;

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
    taken: HashMap<String, naming::Taken>,
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
}

/// What is served because of a definition.
struct Serving {
    /// Stands for everything that decides how it is served.
    mark: u64,
    resources: Vec<Arc<Resource>>,
    collection: Arc<Collection>,
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
        for name in names {
            self.look_at(&name).await;
        }
        loop {
            let mut news: Vec<Arc<Event<Object>>> = Vec::new();
            tokio::select! {
                told = poll_fn(|cx| self.watcher.poll_batch(cx, &mut news, AT_ONCE)) => match told {
                    None => return,
                    Some(Ok(_)) => self.carry_over(&news).await,
                    Some(Err(_)) => self.begin_anew().await,
                },
                Some(Ok(name)) = self.cleaning.join_next() => {
                    self.being_cleaned.remove(&name);
                    self.look_at(&name).await;
                }
            }
        }
    }

    async fn carry_over(&mut self, news: &[Arc<Event<Object>>]) {
        for event in news {
            self.look_at(event.key.name()).await;
        }
    }

    /// Changes were missed: everything is looked at.
    async fn begin_anew(&mut self) {
        let (watcher, snapshot) = self.own.collection.cache.watch_now(Interest::All);
        self.watcher = watcher;
        let there = snapshot.range(None, None).map(|(_, object)| object.name.to_string());
        let names: HashSet<String> = there.chain(self.known.keys().cloned()).collect();
        for name in names {
            self.look_at(&name).await;
        }
    }

    fn read(&self, object: &Object) -> Option<Value> {
        let read = object.value(&self.own.collection.kind);
        read.inspect_err(|why| tracing::error!(name = %object.name, %why, "a definition cannot be read")).ok()
    }

    /// Makes what is served, and what its status says, what the definition asks for now.
    async fn look_at(&mut self, name: &str) {
        let Some(object) = self.own.collection.cache.get("", name) else { return self.forget(name).await };
        let Some(definition) = self.read(&object) else { return };
        let now = time::format_time(ambient::unix_seconds(&self.api.world));
        let group = definition.text(&["spec", "group"]).to_owned();
        let taken = self.taken.entry(group.clone()).or_default();
        let status = naming::status(&definition, taken, &self.api.names, &now);
        let mut next = definition.clone();
        next.set(&["status"], status);
        let accepted = next.at(&["status", "acceptedNames"]).cloned().unwrap_or_else(Value::map);
        self.learn(name, &definition, accepted.clone());
        if naming::is_true(&next, "NamesAccepted") {
            self.waits_no_longer(&group, name);
        } else {
            self.waiting.entry(group).or_default().insert(name.to_owned());
        }
        // served first: who sees that it is established may use it
        if naming::is_true(&next, "Established") {
            self.serve(name, &definition, &accepted);
        }
        if next.at(&["status"]) != definition.at(&["status"]) {
            self.write_status(name, &next).await;
        }
        if cleanup::is_due(&definition, &self.api.names) && self.being_cleaned.insert(name.to_owned()) {
            self.clean(name, &definition, &accepted);
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
        let new = || Known { group: group.clone(), accepted: Value::Null, serving: None };
        let known = self.known.entry(name.to_owned()).or_insert_with(new);
        self.taken.entry(group).or_default().change(name, &known.accepted, &accepted);
        known.accepted = accepted;
    }

    /// A definition is gone; others of its group may get names that it had.
    async fn forget(&mut self, name: &str) {
        let Some(known) = self.known.remove(name) else { return };
        if let Some(serving) = known.serving {
            self.api.exchange(&serving.resources, &[]);
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
            Box::pin(self.look_at(&other)).await;
        }
    }

    /// Serves a definition as it is now, unless it is served so already.
    fn serve(&mut self, name: &str, definition: &Value, accepted: &Value) {
        let before = self.known.get(name).and_then(|known| known.serving.as_ref());
        if before.is_some_and(|before| before.mark == mark(definition, accepted)) {
            return;
        }
        let gone = before.map(|before| before.resources.clone()).unwrap_or_default();
        let new = self.prepare(name, definition, accepted);
        self.api.exchange(&gone, &new);
        // who watches what is no longer there, or is there in another form, begins again
        if let Some(old) = gone.first() {
            old.collection.cache.end_watchers();
        }
    }

    /// Makes the resources of a definition, which are what it is served as from then on.
    fn prepare(&mut self, name: &str, definition: &Value, accepted: &Value) -> Vec<Arc<Resource>> {
        let converter = webhook::of(definition, &self.api, self.way);
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
            let mark = mark(definition, accepted);
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

    async fn write_status(&self, name: &str, next: &Value) {
        let place = own::Place { resource: &self.own, namespace: "", name, subresource: "status" };
        match own::write(&self.api, place, next).await {
            // the change that was faster is looked at next
            Ok(_) | Err(rest::ApiError { code: 404 | 409, .. }) => {}
            Err(why) => tracing::warn!(name, %why, "the status of a definition cannot be written"),
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

/// Everything of a definition that decides how it is served.
fn mark(definition: &Value, accepted: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    definition.at(&["spec"]).map(encode::untyped).hash(&mut hasher);
    encode::untyped(accepted).hash(&mut hasher);
    definition.text(&["metadata", "deletionTimestamp"]).is_empty().hash(&mut hasher);
    hasher.finish()
}
