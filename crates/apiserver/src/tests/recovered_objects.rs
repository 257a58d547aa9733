//! Objects after a restart: those that this program wrote come back from their summaries, packed until they are read, and
//! are the same as those of a program that reads every value.

use cache::{Entry, Interest};
use env::Simulated;
use names::Names;
use rest::options::{DeleteOptions, WriteOptions};
use rest::{Api, Format, Input, Object, Requester, Resource, Storage, WriteRequest};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use store::BuildId;

struct Server {
    api: Api,
    resources: Vec<Arc<Resource>>,
    /// How many values were recovered packed.
    packed: usize,
}

/// What is served of an object, and what selects it.
#[derive(Clone, Debug, PartialEq)]
struct Served {
    json: String,
    fields: Vec<Option<String>>,
    label: Option<String>,
    weight: usize,
}

impl Server {
    fn start(directory: &Path, build: u64) -> Self {
        Self::start_with(directory, build, cache::Options::default())
    }

    fn start_with(directory: &Path, build: u64, cache: cache::Options) -> Self {
        let world: env::World = Simulated::new(1_700_000_000, 7);
        let options = store::Options { compress_from: 1024, leave_packed: true, ..store::Options::default() };
        let mut recovered = Vec::new();
        let mut keep = |record| recovered.push(record);
        let store = store::embedded::open(directory, &options, world.clone(), &mut keep).unwrap();
        let is_packed = |it: &&store::RecoveredRecord| it.encoded_by.as_ref().is_some_and(|by| by.is_packed);
        let packed = recovered.iter().filter(is_packed).count();
        let storage = Storage::new(Arc::new(store), recovered, cache, world.clone()).unwrap();
        let storage = storage.of_build(NonZeroU64::new(build).map(BuildId));
        let api = Api::new(Names::kubernetes(), storage, world, Vec::new());
        let kinds =
            kinds::builtin().into_iter().filter(|(kind, _)| ["Pod", "ConfigMap"].contains(&&*kind.name));
        let resources = kinds.map(|(kind, hooks)| api.register(kind, hooks).unwrap()).collect();
        Server { api, resources, packed }
    }

    fn resource(&self, plural: &str) -> &Arc<Resource> {
        self.resources.iter().find(|it| it.kind.plural == plural).unwrap()
    }

    async fn write(&self, plural: &str, name: &str, body: &str, is_new: bool) {
        let options = WriteOptions::default();
        let mut writing = WriteRequest {
            resource: self.resource(plural),
            namespace: "default",
            name: if is_new { "" } else { name },
            subresource: "",
            options: &options,
            user: &Requester::default(),
            manager: "test",
            owned: false,
            warnings: Vec::new(),
        };
        let body =
            format!(r#"{{"metadata":{{"name":"{name}","labels":{{"app":"{name}","tier":"x"}}}},{body}}}"#);
        let input = Input { bytes: body.into(), format: Format::Json };
        match is_new {
            true => self.api.create(&mut writing, &input).await.unwrap(),
            false => self.api.update(&mut writing, &input).await.unwrap(),
        };
    }

    async fn delete(&self, plural: &str, name: &str) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.api
            .delete(self.resource(plural), "default", name, &options, &Requester::default())
            .await
            .unwrap();
    }

    /// All objects, read by several threads at once.
    fn served(&self) -> BTreeMap<String, Served> {
        let mut all = BTreeMap::new();
        for resource in &self.resources {
            let snapshot = resource.collection.cache.snapshot();
            let read = || {
                let objects = snapshot.range(None, None);
                objects.map(|(key, object)| (key.to_string(), show(resource, object))).collect::<Vec<_>>()
            };
            let threads = std::thread::scope(|scope| {
                let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
                readers.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(threads.iter().all(|it| *it == threads[0]));
            all.extend(threads.into_iter().next().unwrap());
        }
        all
    }

    /// All events since the oldest revision.
    fn events(&self) -> Vec<(bool, Served)> {
        let mut all = Vec::new();
        for resource in &self.resources {
            let cache = &resource.collection.cache;
            let mut watcher = cache.watch_after(cache.oldest(), Interest::All).unwrap();
            while let Ok(event) = watcher.try_recv() {
                all.push((event.deleted, show(resource, &event.entry)));
            }
        }
        all
    }
}

fn show(resource: &Resource, object: &Object) -> Served {
    let weight = object.weight();
    let fields = (0..resource.collection.kind.selectable.len()).map(|at| object.field(at).map(str::to_owned));
    let fields = fields.collect();
    let label = object.label("app").map(str::to_owned);
    let json = String::from_utf8(resource.json(object).to_vec()).unwrap();
    assert_eq!(json.len(), object.json_len());
    assert_eq!(weight, object.weight(), "it changes when the object is read");
    Served { json, fields, label, weight }
}

#[tokio::test]
async fn objects_come_back_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), 1);
    let map = |bytes: usize| format!(r#""data":{{"key":"{}"}}"#, "text ".repeat(bytes / 5));
    let pod = |node: &str, image: &str| {
        let containers: Vec<String> =
            (0..8).map(|nth| format!(r#"{{"name":"c{nth}","image":"{image}"}}"#)).collect();
        format!(r#""spec":{{"nodeName":"{node}","containers":[{}]}}"#, containers.join(","))
    };
    for nth in 0..30_usize {
        server.write("configmaps", &format!("map-{nth}"), &map(nth * 100), true).await;
        server.write("pods", &format!("pod-{nth}"), &pod(&format!("node-{}", nth % 3), "one"), true).await;
    }
    for nth in 0..10 {
        server.write("configmaps", &format!("map-{nth}"), &map(3000 - nth * 100), false).await;
        server.write("pods", &format!("pod-{nth}"), &pod(&format!("node-{}", nth % 3), "two"), false).await;
    }
    for nth in 8..12 {
        server.delete("configmaps", &format!("map-{nth}")).await;
        server.delete("pods", &format!("pod-{nth}")).await;
    }
    let (served, events) = (server.served(), server.events());
    assert_eq!(served.len(), 52);
    assert!(events.len() >= 88, "{}", events.len());
    let on_node = served.values().filter(|it| it.fields.contains(&Some("node-1".to_owned()))).count();
    assert!(on_node > 5, "{on_node}");
    server.api.storage.store.close().await;
    drop(server);
    // the same program, another one, and the same one after that
    for build in [1, 2, 1] {
        let server = Server::start(directory.path(), build);
        assert!(server.packed > 30, "{}", server.packed);
        assert_eq!(server.served(), served);
        assert_eq!(server.events(), events);
        server.api.storage.store.close().await;
    }
    // what was recovered is changed and deleted without a read before
    let server = Server::start(directory.path(), 1);
    server.delete("configmaps", "map-29").await;
    server.write("pods", "pod-29", &pod("node-2", "three"), false).await;
    let served = server.served();
    assert_eq!(served.len(), 51);
    assert!(served["default/pod-29"].json.contains("three"));
    let deleted = server.events().into_iter().filter(|(deleted, _)| *deleted).map(|(_, it)| it.label);
    assert!(deleted.flatten().any(|it| it == "map-29"));
}

#[tokio::test]
async fn objects_come_back_where_the_history_is_longer_than_the_events_that_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    // of the deletions, some come before the events that are kept and some are among them
    let cache = || cache::Options { ring_events: 20, ..cache::Options::default() };
    let server = Server::start_with(directory.path(), 1, cache());
    let map = |value: usize| format!(r#""data":{{"key":"{value}"}}"#);
    for nth in 0..20 {
        server.write("configmaps", &format!("map-{nth}"), &map(nth), true).await;
    }
    for nth in 0..8 {
        server.delete("configmaps", &format!("map-{nth}")).await;
    }
    for nth in 0..12 {
        server.write("configmaps", &format!("map-{nth}"), &map(nth + 100), nth < 8).await;
    }
    for nth in 6..10 {
        server.delete("configmaps", &format!("map-{nth}")).await;
        server.write("configmaps", &format!("map-{}", nth + 4), &map(nth + 200), false).await;
    }
    let (served, events) = (server.served(), server.events());
    let oldest = |server: &Server| server.resource("configmaps").collection.cache.oldest();
    let oldest_before = oldest(&server);
    assert_eq!((served.len(), events.len()), (16, 20));
    server.api.storage.store.close().await;
    drop(server);
    for build in [1, 2] {
        let server = Server::start_with(directory.path(), build, cache());
        assert_eq!(server.served(), served);
        assert_eq!((server.events(), oldest(&server)), (events.clone(), oldest_before));
        server.api.storage.store.close().await;
    }
}
