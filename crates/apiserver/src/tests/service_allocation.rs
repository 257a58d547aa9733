//! Allocation of service addresses and ports under races, failures and restarts, through the verbs
//! themselves.
//!
//! The networks are so small that leaks and double allocations show: a range without either can be used up
//! exactly.

use super::shared_store::SharedStore;
use apimachinery::net::Network;
use env::Simulated;
use kinds::ServiceOptions;
use kinds::core::service::PortRange;
use names::Names;
use rest::options::{DeleteOptions, ListOptions, WriteOptions};
use rest::{Api, ApiError, Requester, Resource, Storage, WriteRequest};
use rest::{Format, Input};
use schema::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use store::Store;

struct Cluster {
    api: Arc<Api>,
    store: Arc<dyn Store>,
    services: Arc<Resource>,
}

const ADDRESS: &[&str] = &["spec", "clusterIP"];
const HEALTH_PORT: &[&str] = &["spec", "healthCheckNodePort"];

fn json(text: &str) -> Value {
    schema::decode::json_untyped(text.as_bytes()).unwrap().value
}

fn addresses(service: &Value) -> Vec<String> {
    let items = service.items(&["spec", "clusterIPs"]).iter();
    items.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.items(&["spec", "ports"]).iter();
    ports.filter_map(|it| it.at(&["nodePort"]).and_then(Value::as_int)).filter(|it| *it != 0).collect()
}

/// Addresses .1 to .30 and as many ports.
const SIZE: usize = 30;

fn unserved_api(
    store: Arc<dyn Store>,
    recovered: Vec<store::RecoveredRecord>,
    world: env::World,
) -> Arc<Api> {
    let storage = Storage::new(store, recovered, Default::default(), world.clone()).unwrap();
    Arc::new(Api::new(Names::kubernetes(), storage, world, Vec::new()))
}

/// Starts to serve services.
fn serve(api: &Api) -> Arc<Resource> {
    let services = ServiceOptions {
        network: Network::parse("10.0.0.0/27").unwrap(),
        second_network: None,
        node_ports: PortRange { first: 30001, last: 30030 },
    };
    let options = kinds::Options { services, ..kinds::Options::default() };
    let mut found = kinds::builtin_with(options).into_iter().filter(|(kind, _)| kind.name == "Service");
    let (kind, hooks) = found.next().unwrap();
    api.register(kind, hooks).unwrap()
}

impl Cluster {
    fn start(directory: Option<&Path>, seed: u64) -> Self {
        let world: env::World = Simulated::new(1_700_000_000, seed);
        let options = store::Options::default();
        let mut recovered = Vec::new();
        let store: Arc<dyn Store> = match directory {
            None => Arc::new(store::memory::open(&options, world.clone())),
            Some(directory) => {
                let mut keep = |record| recovered.push(record);
                Arc::new(store::embedded::open(directory, &options, world.clone(), &mut keep).unwrap())
            }
        };
        Self::on(store, recovered, world)
    }

    /// One of several servers on a store.
    fn on_shared_store(shared: &Arc<SharedStore>, seed: u64) -> Self {
        Self::on(Arc::new(shared.front()), Vec::new(), Simulated::new(1_700_000_000, seed))
    }

    fn on(store: Arc<dyn Store>, recovered: Vec<store::RecoveredRecord>, world: env::World) -> Self {
        let api = unserved_api(store.clone(), recovered, world);
        Cluster { services: serve(&api), api, store }
    }

    async fn write(&self, name: &str, body: &str, dry_run: bool, is_new: bool) -> Result<Value, ApiError> {
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        let mut writing = WriteRequest {
            resource: &self.services,
            namespace: "default",
            name: if is_new { "" } else { name },
            subresource: "",
            options: &options,
            user: &Requester::default(),
            manager: "test",
            owned: false,
            warnings: Vec::new(),
        };
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{body}}}"#);
        let input = Input { bytes: body.into(), format: Format::Json };
        let written = if is_new {
            self.api.create(&mut writing, &input).await?
        } else {
            self.api.update(&mut writing, &input).await?
        };
        Ok(json(std::str::from_utf8(&written.json).unwrap()))
    }

    async fn create(&self, name: &str, body: &str) -> Result<Value, ApiError> {
        self.write(name, body, false, true).await
    }

    async fn delete(&self, name: &str) {
        let (options, user) = (DeleteOptions::default(), Requester::default());
        let _ = self.api.delete(&self.services, "default", name, &options, &user).await;
    }

    fn stored(&self) -> Vec<Value> {
        self.api.list_of("services", None)
    }

    /// Checks that every stored address and port belongs to one service.
    fn check_distinct(&self) {
        let stored = self.stored();
        let allocated: Vec<_> = stored.iter().flat_map(addresses).collect();
        assert_eq!(allocated.iter().collect::<BTreeSet<_>>().len(), allocated.len(), "{allocated:?}");
        let ports: Vec<_> = stored.iter().flat_map(node_ports).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len(), "{ports:?}");
    }

    /// Creates until the range is used up, and checks that exactly all of it was available.
    async fn use_up(&self) {
        let free = SIZE - self.stored().iter().filter(|it| !it.text(ADDRESS).is_empty()).count();
        for at in 0..free {
            let created = self.create(&format!("filler-{at}"), r#"{"ports":[{"port":1}]}"#).await;
            created.unwrap_or_else(|why| panic!("{at} of {free}: {why}"));
        }
        let full = self.create("too-many", r#"{"ports":[{"port":1}]}"#).await.unwrap_err();
        assert_eq!(full.message, "Internal error occurred: failed to allocate a serviceIP: range is full");
        self.check_distinct();
    }
}

const ON_NODES: &str = r#"{"type":"NodePort","ports":[{"port":80}]}"#;
const CLUSTER_IP: &str = r#"{"ports":[{"port":80}]}"#;
const EXTERNAL: &str = r#"{"type":"ExternalName","externalName":"a.b","ports":[{"port":80}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_never_share_and_nothing_leaks() {
    let cluster = Arc::new(Cluster::start(None, 11));
    let writers = (0..12).map(|writer| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                // two writers compete for each name
                let name = format!("s{}", (writer / 2 + round) % 6);
                let _ = cluster.create(&name, ON_NODES).await;
                let next = [CLUSTER_IP, EXTERNAL, ON_NODES][(writer + round) % 3];
                let _ = cluster.write(&name, next, false, false).await;
                cluster.check_distinct();
                if (writer + round) % 4 == 0 {
                    cluster.delete(&name).await;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    cluster.check_distinct();
    cluster.use_up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_writers_are_settled() {
    let cluster = Arc::new(Cluster::start(None, 12));
    for at in 0..20 {
        let (server, name) = (cluster.clone(), format!("s{at}"));
        let writer = tokio::spawn(async move { server.create(&name, CLUSTER_IP).await.map(|_| ()) });
        for _ in 0..at {
            tokio::task::yield_now().await;
        }
        writer.abort();
        let _ = writer.await;
    }
    // a write behind the others: once it is done, so are they, or they never will be
    cluster.create("last", CLUSTER_IP).await.unwrap();
    cluster.use_up().await;
}

#[tokio::test]
async fn refused_writes_allocate_nothing() {
    let cluster = Cluster::start(None, 13);
    cluster.create("there", ON_NODES).await.unwrap();
    for _ in 0..SIZE {
        cluster.create("there", ON_NODES).await.unwrap_err();
        cluster.create("wrong", r#"{"type":"NodePort","ports":[{"port":-1}]}"#).await.unwrap_err();
        cluster
            .create("x", r#"{"clusterIP":"10.0.0.9","type":"NodePort","ports":[{"port":1,"nodePort":5}]}"#)
            .await
            .unwrap_err();
        cluster.write("dry", ON_NODES, true, true).await.unwrap();
        cluster.write("there", CLUSTER_IP, true, false).await.unwrap();
    }
    let ports: Vec<_> = cluster.stored().iter().flat_map(node_ports).collect();
    let used_port = format!(r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":{}}}]}}"#, ports[0]);
    let why = cluster.create("other", &used_port).await.unwrap_err();
    assert!(why.message.ends_with("provided port is already allocated"), "{}", why.message);
    cluster.use_up().await;
}

#[tokio::test]
async fn allocations_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = Cluster::start(Some(directory.path()), 14);
    let created = first.create("a", ON_NODES).await.unwrap();
    first.create("b", CLUSTER_IP).await.unwrap();
    first.create("c", CLUSTER_IP).await.unwrap();
    first.delete("c").await;
    first.store.close().await;
    drop(first);
    let second = Cluster::start(Some(directory.path()), 14);
    let (address, port) = (created.text(ADDRESS), node_ports(&created)[0]);
    let same_address = format!(r#"{{"clusterIP":"{address}","ports":[{{"port":1}}]}}"#);
    let why = second.create("d", &same_address).await.unwrap_err();
    assert!(why.message.ends_with("provided IP is already allocated"), "{}", why.message);
    let same_port = format!(r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":{port}}}]}}"#);
    second.create("d", &same_port).await.unwrap_err();
    second.delete("a").await;
    second.create("d", &same_address).await.unwrap();
    second.create("e", &same_port).await.unwrap();
    second.use_up().await;
}

#[tokio::test]
async fn a_change_of_type_allocates_and_releases() {
    let cluster = Cluster::start(None, 15);
    let balanced = r#"{"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]}"#;
    let first = cluster.create("s", balanced).await.unwrap();
    let health = first.at(HEALTH_PORT).and_then(Value::as_int).unwrap_or(0);
    assert!(health != 0 && !node_ports(&first).contains(&health));
    // omitted fields stay
    let same = cluster.write("s", balanced, false, false).await.unwrap();
    assert_eq!(same.at(&["spec"]), first.at(&["spec"]));
    let inside = cluster.write("s", CLUSTER_IP, false, false).await.unwrap();
    assert_eq!(inside.text(ADDRESS), first.text(ADDRESS));
    assert!(node_ports(&inside).is_empty() && inside.at(HEALTH_PORT).is_none());
    let external = cluster.write("s", EXTERNAL, false, false).await.unwrap();
    assert!(external.at(ADDRESS).is_none() && external.at(&["spec", "ipFamilyPolicy"]).is_none());
    // released addresses are available again
    for port in [health, node_ports(&first)[0]] {
        let body = format!(r#"{{"type":"NodePort","ports":[{{"port":1,"nodePort":{port}}}]}}"#);
        cluster.create(&format!("p{port}"), &body).await.unwrap();
    }
    cluster.use_up().await;
}

#[tokio::test]
async fn servers_never_allocate_the_same_address() {
    let shared = Arc::new(SharedStore::default());
    // they choose the same numbers, and catch up only when they must
    let servers: Vec<_> = (0..3).map(|_| Cluster::on_shared_store(&shared, 16)).collect();
    for round in 0..SIZE / 3 {
        for (at, server) in servers.iter().enumerate() {
            let created = server.create(&format!("s{round}-{at}"), ON_NODES).await;
            created.unwrap_or_else(|why| panic!("{round} at {at}: {why}"));
        }
    }
    assert!(shared.collisions() > 0, "no server ever chose an allocated address");
    for server in &servers {
        server.api.catch_up().await.unwrap();
        server.check_distinct();
        assert_eq!(server.stored().len(), SIZE);
        let full = server.create("too-many", CLUSTER_IP).await.unwrap_err();
        assert!(full.message.ends_with("range is full"), "{}", full.message);
    }
    assert_eq!(shared.allocations().len(), 2 * SIZE);
    // an address that one server releases another can allocate, but not one in use
    let same_address = servers[0].stored()[0].clone();
    let body = format!(r#"{{"clusterIP":"{}","ports":[{{"port":1}}]}}"#, same_address.text(ADDRESS));
    let why = servers[1].create("other", &body).await.unwrap_err();
    assert!(why.message.ends_with("provided IP is already allocated"), "{}", why.message);
    servers[0].delete(same_address.text(&["metadata", "name"])).await;
    servers[1].api.catch_up().await.unwrap();
    servers[1].create("other", &body).await.unwrap();
    servers[2].api.catch_up().await.unwrap();
    servers[2].delete("other").await;
    for server in &servers {
        server.api.catch_up().await.unwrap();
    }
    servers[0].use_up().await;
    for name in servers[0].stored().iter().map(|it| it.text(&["metadata", "name"])) {
        servers[1].api.catch_up().await.unwrap();
        servers[1].delete(name).await;
    }
    assert_eq!(shared.allocations(), Vec::<String>::new());
}

#[tokio::test]
async fn writes_of_other_servers_are_visible_once_served() {
    let shared = Arc::new(SharedStore::default());
    let first = Cluster::on_shared_store(&shared, 17);
    let (store, world) = (Arc::new(shared.front()), Simulated::new(1_700_000_000, 18));
    let api = unserved_api(store.clone(), Vec::new(), world);
    for name in ["a", "b", "c"] {
        first.create(name, ON_NODES).await.unwrap();
    }
    api.catch_up().await.unwrap();
    let before = api.storage.published.get();
    first.write("a", CLUSTER_IP, false, false).await.unwrap();
    first.delete("b").await;
    api.catch_up().await.unwrap();
    let late = Cluster { services: serve(&api), api, store };
    let all = |cluster: &Cluster| cluster.api.list_of("services", None);
    assert_eq!(all(&late), all(&first));
    assert_eq!(all(&late).len(), 2);
    // earlier history is unknown, and must not be reported as empty
    let options = ListOptions { resource_version: before.to_string(), ..ListOptions::default() };
    let expired = late.api.watch(&late.services, "", &options, 0).await.err().unwrap();
    assert_eq!(expired.code, 410);
    late.use_up().await;
}
