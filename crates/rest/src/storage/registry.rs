//! The registry: the resources that are served, and reads of their objects for rules that span resources.

use crate::model::context::{Context, Requester};
use crate::model::hooks::{Hooks, ReadHooks};
use crate::model::metrics::{Expressions, Timing};
use crate::model::object::Object;
use crate::model::selector::FieldSource;
use crate::storage::cached_store::Storage;
use crate::storage::recovered::UnreadableObject;
use crate::storage::resource::Resource;
use crate::storage::stored_version::ValueReader;
use arc_swap::ArcSwap;
use env::World;
use memchr::memmem;
use metrics::Registry;
use names::Names;
use schema::Value;
use schema::table::{Kind, Ref, Type};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Finds the type of a built-in kind, served or not, by `apiVersion` and `kind`.
pub type Scheme = fn(&Names, &str, &str) -> Option<Ref<Type>>;

/// The resources that are served, and the storage of their objects.
pub struct ResourceRegistry {
    pub names: Names,
    pub storage: Storage,
    pub world: World,
    /// Feature gates that are enabled although they are disabled by default.
    pub opened: Vec<String>,
    /// Feature gates that are disabled although they are enabled by default.
    pub closed: Vec<String>,
    /// The lookup of kinds that are not served.
    pub(crate) scheme: Option<Scheme>,
    resources: ArcSwap<Resources>,
    /// The generation of the resources, for subscribers.
    exchanged: watch::Sender<u64>,
    expressions: OnceLock<Expressions>,
}

/// An immutable set of resources.
#[derive(Default)]
pub struct Resources {
    /// By group and version (`v1`, `apps/v1`), then by plural name.
    by_version: HashMap<String, HashMap<String, Arc<Resource>>>,
    /// By plural name alone; of several the one that was registered first.
    by_plural: HashMap<String, Arc<Resource>>,
    /// By collection: the versions of a kind together.
    by_collection: HashMap<usize, Vec<Arc<Resource>>>,
    /// In the order of registration.
    pub all: Vec<Arc<Resource>>,
    /// Grows with every change: derived data is valid for one generation.
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

    /// The resource of this name in any group, for rules that span resources.
    pub fn named(&self, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural.get(plural)
    }

    pub fn get(&self, group_version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_version.get(group_version)?.get(plural)
    }

    /// All resources of the same collection, itself included, in the order of registration.
    pub fn versions_of(&self, resource: &Resource) -> &[Arc<Resource>] {
        let collection = Arc::as_ptr(&resource.collection) as usize;
        self.by_collection.get(&collection).map_or(&[], Vec::as_slice)
    }

    /// Whether the kinds of a group are custom.
    pub fn is_custom(&self, group: &str) -> bool {
        self.all.iter().any(|one| one.group == group && !one.kind.kind_first)
    }

    /// The resource of this kind.
    pub fn of_kind(&self, group_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all.iter().find(|one| one.api_version == group_version && one.kind.name == kind)
    }

    pub fn has_version(&self, group_version: &str) -> bool {
        self.by_version.contains_key(group_version)
    }

    pub fn of_version<'a>(&'a self, group_version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.all.iter().filter(move |one| one.api_version == group_version)
    }
}

impl ResourceRegistry {
    pub fn new(names: Names, storage: Storage, world: World) -> Self {
        ResourceRegistry {
            names,
            storage,
            world,
            opened: Vec::new(),
            closed: Vec::new(),
            scheme: None,
            resources: ArcSwap::default(),
            exchanged: watch::Sender::new(0),
            expressions: OnceLock::new(),
        }
    }

    /// Enables metrics, of collections that are registered from now on.
    pub(crate) fn measure(&self, registry: &Registry) {
        self.storage.measure(registry);
        self.expressions.get_or_init(|| Expressions::new(registry));
    }

    /// Measures the compilation and evaluation of expressions.
    pub fn timing(&self) -> Timing<'_> {
        Timing { world: &self.world, expressions: self.expressions.get() }
    }

    /// The type of a built-in kind, served or not.
    pub(crate) fn builtin_type(&self, group_version: &str, kind: &str) -> Option<Ref<Type>> {
        match self.scheme {
            Some(scheme) => scheme(&self.names, group_version, kind),
            None => self.type_of(group_version, kind).filter(|ty| !ty.loose),
        }
    }

    /// The type of a custom kind.
    pub(crate) fn custom_type(&self, group_version: &str, kind: &str) -> Option<Ref<Type>> {
        self.type_of(group_version, kind).filter(|ty| ty.loose)
    }

    fn type_of(&self, group_version: &str, kind: &str) -> Option<Ref<Type>> {
        self.resources().of_kind(group_version, kind).map(|one| one.kind.root.clone())
    }

    pub fn resources(&self) -> Arc<Resources> {
        self.resources.load_full()
    }

    /// The kind that objects of a kind are stored as: its own, or that of a resource which is registered already.
    pub(crate) fn stored_kind(&self, kind: &Ref<Kind>) -> Ref<Kind> {
        let known = self.resources.load();
        let stored = kind.stored_as.as_ref().and_then(|(group, version)| {
            let same = |one: &&Arc<Resource>| {
                one.kind.group == *group && one.kind.version == *version && one.kind.name == kind.name
            };
            known.all.iter().find(same).map(|stored| stored.collection.kind.clone())
        });
        stored.unwrap_or_else(|| kind.clone())
    }

    /// Builds a resource that is not served yet. Its collection is made and filled on first use.
    pub(crate) fn build(
        &self,
        kind: Ref<Kind>,
        stored: Ref<Kind>,
        hooks: Hooks,
    ) -> Result<Resource, UnreadableObject> {
        let group = stored.group.full(&self.names.api_domain);
        let reader = ValueReader::new(stored.clone(), &group, hooks.storage.versions.as_ref(), &self.names);
        let collection = self.storage.collection(&stored, group, hooks.storage.priority, reader)?;
        let group = kind.group.full(&self.names.api_domain);
        if let (Some(reserve), None) = (&hooks.write.reserve, &kind.stored_as) {
            let mut follower = collection.reserve.lock();
            for (_, object) in collection.cache.snapshot().range(None, None) {
                let unreadable = |why: schema::decode::DecodeError| UnreadableObject {
                    key: collection.key(&object.namespace, &object.name).to_string(),
                    why: why.to_string(),
                };
                reserve.recover(&object.value(&collection.kind).map_err(unreadable)?);
            }
            *follower = Some(reserve.clone());
        }
        let mut resource = Resource::new(kind, group, hooks, collection);
        let served = resource.hooks.subresources.views.iter().map(|view| {
            let (kind, collection) = (view.kind.clone(), resource.collection.clone());
            let group = kind.group.full(&self.names.api_domain);
            let read = ReadHooks { cells: view.cells, ..ReadHooks::default() };
            Arc::new(Resource::new(kind, group, Hooks { read, ..Hooks::default() }, collection))
        });
        resource.views = served.collect();
        Ok(resource)
    }

    /// Replaces resources, and those with the same paths as the new ones, all at once. Requests in flight finish with
    /// the resources that they began with.
    pub fn exchange(&self, gone: &[Arc<Resource>], new: &[Arc<Resource>]) {
        let same =
            |a: &Resource, b: &Resource| a.api_version == b.api_version && a.kind.plural == b.kind.plural;
        self.resources.rcu(|old| {
            let stays = |one: &&Arc<Resource>| !gone.iter().chain(new).any(|other| same(one, other));
            let all = old.all.iter().filter(stays).chain(new).cloned().collect();
            Resources::of(all, old.generation + 1)
        });
        // a later exchange may have announced its generation already
        let generation = self.resources.load().generation;
        self.exchanged.send_if_modified(|announced| {
            let newer = *announced < generation;
            *announced = generation.max(*announced);
            newer
        });
    }

    /// Receives the generation of the resources with each exchange.
    pub fn exchanges(&self) -> watch::Receiver<u64> {
        self.exchanged.subscribe()
    }

    /// Stops serving a kind; its objects stay in the store.
    pub fn unregister(&self, resource: &Arc<Resource>) {
        self.exchange(std::slice::from_ref(resource), &[]);
        self.storage.forget(&resource.collection);
    }

    /// An object of another resource, by plural name, without decoding it.
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

    /// All objects of another resource, by plural name, in one namespace or in all; without unreadable ones.
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

    /// The objects of another resource whose JSON contains a text; only these are decoded.
    pub fn list_containing(&self, plural: &str, text: &str) -> Vec<Value> {
        let resources = self.resources.load();
        let Some(resource) = resources.named(plural) else {
            return Vec::new();
        };
        let snapshot = resource.collection.cache.snapshot();
        let text = memmem::Finder::new(text);
        let objects = snapshot.range(None, None).filter(|(_, object)| text.find(object.json()).is_some());
        objects.filter_map(|(_, object)| object.value(&resource.collection.kind).ok()).collect()
    }

    /// A selectable field of such an object, without decoding it; `None` when there is no such object.
    pub fn lookup_field(&self, plural: &str, namespace: &str, name: &str, field: &str) -> Option<String> {
        let resources = self.resources.load();
        let collection = &resources.named(plural)?.collection;
        let object = collection.cache.get(namespace, name)?;
        match collection.selected(&collection.kind, field) {
            Ok(FieldSource::Field(at)) => object.field(at).map(str::to_owned),
            _ => Some(String::new()),
        }
    }

    /// Runs `work` with the context of hooks.
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
