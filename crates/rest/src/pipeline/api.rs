//! The resources that are served, and what all verbs share.

use crate::model::hooks::{Context, Hooks, Requester};
use crate::model::metrics::{Expressions, Steps, Timing};
use crate::model::object::Object;
use crate::model::selector::Selected;
use crate::pipeline::admission::{Admission, Checks};
use crate::storage::cached_store::{Storage, Unreadable};
use crate::storage::resource::Resource;
use crate::storage::stored_version::ValueReader;
use arc_swap::ArcSwap;
use env::World;
use memchr::memmem;
use metrics::Registry;
use names::Names;
use schema::Value;
use schema::table::{Kind, Ref};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Everything that the verbs work on.
pub struct Api {
    pub names: Names,
    pub storage: Storage,
    pub world: World,
    /// Feature gates that are open although they are closed without a decision.
    pub opened: Vec<String>,
    /// Feature gates that are closed although they are open without a decision.
    pub closed: Vec<String>,
    resources: ArcSwap<Resources>,
    /// The generation of the resources, for those who wait for the next.
    exchanged: watch::Sender<u64>,
    /// What writes pass, in order; each resource keeps those that concern it.
    admission: Vec<Arc<dyn Admission>>,
    pub(crate) steps: OnceLock<Steps>,
    expressions: OnceLock<Expressions>,
}

/// The resources of a moment.
#[derive(Default)]
pub struct Resources {
    /// By group and version (`v1`, `apps/v1`), then by plural name.
    by_version: HashMap<String, HashMap<String, Arc<Resource>>>,
    /// By plural name alone; of several the one that was registered first.
    by_plural: HashMap<String, Arc<Resource>>,
    /// By what stores them, so the versions of a kind together.
    by_collection: HashMap<usize, Vec<Arc<Resource>>>,
    /// In the order of registration.
    pub all: Vec<Arc<Resource>>,
    /// Grows with every change, so that what is derived from it can be kept until then.
    pub generation: u64,
}

impl Resources {
    fn of(all: Vec<Arc<Resource>>, generation: u64) -> Self {
        let mut resources = Resources { generation, ..Resources::default() };
        for one in &all {
            let plural = one.kind.plural.to_string();
            let version = resources.by_version.entry(one.api_version.clone()).or_default();
            version.insert(plural.clone(), one.clone());
            resources.by_plural.entry(plural).or_insert_with(|| one.clone());
            let collection = Arc::as_ptr(&one.collection) as usize;
            resources.by_collection.entry(collection).or_default().push(one.clone());
        }
        Resources { all, ..resources }
    }

    /// The resource of this name, whatever its group, for rules that span resources.
    pub fn named(&self, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural.get(plural)
    }

    pub fn get(&self, group_version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_version.get(group_version)?.get(plural)
    }

    /// All resources that show the same objects, itself included, in the order of registration.
    pub fn versions_of(&self, resource: &Resource) -> &[Arc<Resource>] {
        let collection = Arc::as_ptr(&resource.collection) as usize;
        self.by_collection.get(&collection).map_or(&[], Vec::as_slice)
    }

    /// Whether the kinds of a group were made while the server ran.
    pub fn is_custom(&self, group: &str) -> bool {
        self.all.iter().any(|one| one.group == group && !one.kind.kind_first)
    }

    /// Whether some resource is of this kind, or a list of it.
    pub fn has_kind(&self, group_version: &str, kind: &str) -> bool {
        self.of_version(group_version).any(|one| kind.strip_suffix("List").unwrap_or(kind) == one.kind.name)
    }

    pub fn has_version(&self, group_version: &str) -> bool {
        self.by_version.contains_key(group_version)
    }

    pub fn of_version<'a>(&'a self, group_version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.all.iter().filter(move |one| one.api_version == group_version)
    }
}

impl Api {
    pub fn new(names: Names, storage: Storage, world: World, admission: Vec<Box<dyn Admission>>) -> Self {
        let admission = admission.into_iter().map(Arc::from).collect();
        let (resources, steps, expressions) = (ArcSwap::default(), OnceLock::new(), OnceLock::new());
        let (opened, closed) = (Vec::new(), Vec::new());
        let exchanged = watch::Sender::new(0);
        Api { names, storage, world, opened, closed, resources, exchanged, admission, steps, expressions }
    }

    /// Counts what is done from now on, with the kinds that are registered from now on.
    pub fn measure(&self, registry: &Registry) {
        self.storage.measure(registry);
        self.steps.get_or_init(|| Steps::new(registry));
        self.expressions.get_or_init(|| Expressions::new(registry));
    }

    /// For those who compile and evaluate expressions.
    pub fn timing(&self) -> Timing<'_> {
        Timing { world: &self.world, counted: self.expressions.get() }
    }

    pub fn resources(&self) -> Arc<Resources> {
        self.resources.load_full()
    }

    /// Serves a kind from now on, kept as it is or as another kind that is served already.
    pub fn register(&self, kind: Ref<Kind>, hooks: Hooks) -> Result<Arc<Resource>, Unreadable> {
        let known = self.resources.load();
        let stored = kind.stored_as.as_ref().and_then(|(group, version)| {
            let same = |one: &&Arc<Resource>| {
                one.kind.group == *group && one.kind.version == *version && one.kind.name == kind.name
            };
            known.all.iter().find(same).map(|stored| stored.collection.kind.clone())
        });
        let stored = stored.unwrap_or_else(|| kind.clone());
        self.register_as(kind, stored, hooks)
    }

    /// The same, kept as a kind that need not be served itself.
    pub fn register_as(
        &self,
        kind: Ref<Kind>,
        stored: Ref<Kind>,
        hooks: Hooks,
    ) -> Result<Arc<Resource>, Unreadable> {
        let resource = self.make(kind, stored, hooks)?;
        self.exchange(&[], std::slice::from_ref(&resource));
        Ok(resource)
    }

    /// A resource that nobody is served yet.
    pub fn make(
        &self,
        kind: Ref<Kind>,
        stored: Ref<Kind>,
        hooks: Hooks,
    ) -> Result<Arc<Resource>, Unreadable> {
        let group = stored.group.full(&self.names.api_domain);
        let reader = ValueReader::new(stored.clone(), &group, hooks.stored_versions.as_ref(), &self.names);
        let collection = self.storage.collection(&stored, group, hooks.priority, reader)?;
        let group = kind.group.full(&self.names.api_domain);
        if let (Some(reserve), None) = (&hooks.reserve, &kind.stored_as) {
            let mut told = collection.reserve.lock();
            for (_, object) in collection.cache.snapshot().range(None, None) {
                let unreadable = |why: schema::decode::DecodeError| Unreadable {
                    key: collection.key(&object.namespace, &object.name).to_string(),
                    why: why.to_string(),
                };
                reserve.recover(&object.value(&collection.kind).map_err(unreadable)?);
            }
            *told = Some(reserve.clone());
        }
        let mut resource = Resource::new(kind, group, hooks, collection);
        let served = resource.hooks.views.iter().map(|view| {
            let (kind, collection) = (view.kind.clone(), resource.collection.clone());
            let group = kind.group.full(&self.names.api_domain);
            Arc::new(Resource::new(kind, group, Hooks { cells: view.cells, ..Hooks::default() }, collection))
        });
        resource.views = served.collect();
        resource.checks = Checks::of(&self.admission, &resource);
        Ok(Arc::new(resource))
    }

    /// Serves resources in place of others and of those that have the same path, all at once. Requests that are being
    /// carried out go on with what they began with.
    pub fn exchange(&self, gone: &[Arc<Resource>], new: &[Arc<Resource>]) {
        let same =
            |a: &Resource, b: &Resource| a.api_version == b.api_version && a.kind.plural == b.kind.plural;
        self.resources.rcu(|old| {
            let stays = |one: &&Arc<Resource>| !gone.iter().chain(new).any(|other| same(one, other));
            let all = old.all.iter().filter(stays).chain(new).cloned().collect();
            Resources::of(all, old.generation + 1)
        });
        // who comes late has nothing newer to tell
        let generation = self.resources.load().generation;
        self.exchanged.send_if_modified(|told| {
            let newer = *told < generation;
            *told = generation.max(*told);
            newer
        });
    }

    /// Tells when other resources are served than before, by the generation of those that are.
    pub fn exchanges(&self) -> watch::Receiver<u64> {
        self.exchanged.subscribe()
    }

    /// Stops serving a kind; its objects stay in the store.
    pub fn unregister(&self, resource: &Arc<Resource>) {
        self.exchange(std::slice::from_ref(resource), &[]);
        self.storage.forget(&resource.collection);
    }

    /// An object of another resource as the cache holds it, for who needs its labels or bytes alone.
    pub fn find(&self, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.resources.load().named(plural)?.collection.cache.get(namespace, name)
    }

    /// An object of another resource, by plural name, for rules that span resources.
    pub fn lookup(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resources = self.resources.load();
        let resource = resources.named(plural)?;
        let object = resource.collection.cache.get(namespace, name)?;
        object.value(&resource.collection.kind).ok()
    }

    /// All objects of another resource, by plural name, in one namespace or in all; the unreadable left out.
    pub fn list_of(&self, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        let resources = self.resources.load();
        let Some(resource) = resources.named(plural) else {
            return Vec::new();
        };
        let snapshot = resource.collection.cache.snapshot();
        let objects = snapshot.range(namespace, None);
        objects.filter_map(|(_, object)| object.value(&resource.collection.kind).ok()).collect()
    }

    /// Whether there is any object of another resource in a namespace.
    pub fn any_of(&self, plural: &str, namespace: &str) -> bool {
        let resources = self.resources.load();
        let snapshot = resources.named(plural).map(|resource| resource.collection.cache.snapshot());
        snapshot.is_some_and(|snapshot| snapshot.range(Some(namespace), None).next().is_some())
    }

    /// Those objects of another resource whose JSON holds a text; only they are decoded.
    pub fn list_containing(&self, plural: &str, text: &str) -> Vec<Value> {
        let resources = self.resources.load();
        let Some(resource) = resources.named(plural) else {
            return Vec::new();
        };
        let snapshot = resource.collection.cache.snapshot();
        let text = memmem::Finder::new(text);
        let objects = snapshot.range(None, None).filter(|(_, object)| text.find(&object.json).is_some());
        objects.filter_map(|(_, object)| object.value(&resource.collection.kind).ok()).collect()
    }

    /// A selectable field of such an object, which takes no decoding; `None` when there is no such object.
    pub fn lookup_field(&self, plural: &str, namespace: &str, name: &str, field: &str) -> Option<String> {
        let resources = self.resources.load();
        let collection = &resources.named(plural)?.collection;
        let object = collection.cache.get(namespace, name)?;
        match collection.selected(&collection.kind, field) {
            Ok(Selected::Field(at)) => object.field(at).map(str::to_owned),
            _ => Some(String::new()),
        }
    }

    /// Runs `work` with what hooks may know.
    pub fn with_context<T>(&self, user: &Requester, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let lookup = |plural: &str, namespace: &str, name: &str| self.lookup(plural, namespace, name);
        let list = |plural: &str, namespace: Option<&str>| self.list_of(plural, namespace);
        let containing = |plural: &str, text: &str| self.list_containing(plural, text);
        let now = env::unix_seconds(&self.world);
        let names = &self.names;
        work(&Context {
            names,
            now,
            user,
            lookup: &lookup,
            list: &list,
            containing: &containing,
            opened: &self.opened,
            closed: &self.closed,
        })
    }
}
