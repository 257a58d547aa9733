use super::*;
use crate::node::addresses::{AddressLookup, AddressOptions};
use crate::node::runtime_monitor::RuntimeMonitor;
use crate::objects::testing::object;
use crate::resource_managers::devices::DeviceAmounts;
use crate::runtime::simulated::SimulatedRuntime;
use api::coordination::v1::Lease;
use api::core::v1::Node;
use api::{Resource, from_json};
use client::{Body, Client, Informer, Note};
use env::{Simulated, World};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// An API server with one node and one lease; it logs the writes.
#[derive(Clone, Default)]
struct FakeServer {
    state: Arc<Mutex<FakeState>>,
}

#[derive(Default)]
struct FakeState {
    node: Option<Value>,
    lease: Option<Value>,
    log: Vec<String>,
    patches: Vec<Value>,
}

impl FakeServer {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Response<Body> {
        let mut state = self.state.lock();
        let text = String::from_utf8_lossy(body).into_owned();
        let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
        let reply = |code: u16, value: Value| {
            Response::builder().status(code).body(value.to_string().into_bytes().into()).unwrap()
        };
        let failure = |code: u16, reason: &str| {
            let status =
                serde_json::json!({"status": "Failure", "message": reason, "reason": reason, "code": code});
            reply(code, status)
        };
        if method != Method::GET {
            state.log.push(format!("{method} {path}"));
        }
        let is_lease = path.contains("/leases");
        let slot = if is_lease { &mut state.lease } else { &mut state.node };
        match (method.as_str(), slot.is_some()) {
            ("POST", true) => failure(409, "AlreadyExists"),
            ("POST", false) => {
                let mut made = parsed;
                made["metadata"]["uid"] = "u1".into();
                *slot = Some(made.clone());
                reply(201, made)
            }
            (_, false) => failure(404, "NotFound"),
            ("GET", true) => reply(200, slot.clone().unwrap_or_default()),
            ("PUT", true) => {
                *slot = Some(parsed.clone());
                reply(200, parsed)
            }
            ("PATCH", true) => {
                assert!(!text.is_empty());
                let node = slot.clone().unwrap_or_default();
                state.patches.push(parsed);
                reply(200, node)
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }
}

impl tower_service::Service<Request<Body>> for FakeServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
            Ok(server.answer(&head.method, head.uri.path(), &body))
        })
    }
}

struct OneAddress;

impl AddressLookup for OneAddress {
    fn resolve(&self, _: &str) -> Vec<IpAddr> {
        Vec::new()
    }
    fn is_local(&self, _: IpAddr) -> bool {
        true
    }
    fn default_source(&self, _: bool) -> Option<IpAddr> {
        None
    }
}

struct Fixture {
    server: FakeServer,
    clock: Arc<Simulated>,
    informer: Informer<Node>,
    events: Arc<Mutex<Vec<Note>>>,
    reporter: NodeReporter,
    monitor: RuntimeMonitor,
    handle: NodeHandle,
    is_shutting_down: watch::Sender<bool>,
}

impl Fixture {
    fn new() -> Self {
        let (server, clock) = (FakeServer::default(), Simulated::new(1_700_000_000, 1));
        let world: World = clock.clone();
        let informer = Informer::default();
        let events: Arc<Mutex<Vec<Note>>> = Arc::default();
        let recorded = events.clone();
        let addresses =
            AddressOptions { node_ips: vec!["10.77.0.1".parse().unwrap()], hostname: "n".to_owned() };
        let is_shutting_down = watch::Sender::new(false);
        let (reporter, monitor, handle) = NodeReporter::new(ReporterDeps {
            options: NodeOptions { name: "n".to_owned(), addresses, ..NodeOptions::default() },
            client: Client::new(server.clone()),
            world: world.clone(),
            informer: informer.clone(),
            runtime: Arc::new(SimulatedRuntime::new(world)),
            machine: Machine { cpus: 2, memory: 1 << 30, ..Machine::default() },
            lookup: Arc::new(OneAddress),
            events: Arc::new(move |note| recorded.lock().push(note)),
            devices: Arc::new(DeviceAmounts::default),
            is_shutting_down: is_shutting_down.subscribe(),
        });
        Fixture { server, clock, informer, events, reporter, monitor, handle, is_shutting_down }
    }

    /// The informer gets the node as the server has it.
    fn observe(&self) {
        let node = self.server.state.lock().node.clone().unwrap();
        self.informer.apply(from_json(node.to_string().as_bytes()).unwrap());
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.server.state.lock().log)
    }
}

#[tokio::test]
async fn a_node_registers_reports_when_due_and_comes_back() {
    let mut it = Fixture::new();
    it.monitor.check().await;
    it.reporter.sync().await.unwrap();
    assert_eq!(it.log(), ["POST /api/v1/nodes"]);
    let node = it.handle.node.borrow().clone();
    assert_eq!((node.uid(), &*node.status.conditions[3].status), ("u1", "True"));
    assert_eq!(*it.handle.host_ips.borrow(), ["10.77.0.1"]);
    it.observe();
    // nothing changed: no write until the report is due
    it.clock.advance(Duration::from_secs(10));
    it.reporter.sync().await.unwrap();
    assert!(it.log().is_empty());
    it.clock.advance(Duration::from_secs(290));
    it.monitor.check().await;
    it.reporter.sync().await.unwrap();
    assert_eq!(it.log(), ["PATCH /api/v1/nodes/n/status"]);
    let patch = it.server.state.lock().patches.pop().unwrap();
    let parts: Vec<_> = patch["status"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(parts, ["conditions"]);
    // the runtime does not answer any more
    it.clock.advance(Duration::from_secs(31));
    it.reporter.sync().await.unwrap();
    let patch = it.server.state.lock().patches.pop().unwrap();
    let ready =
        patch["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["message"]), (&"False".into(), &"container runtime is down".into()));
    assert_eq!(it.events.lock().last().unwrap().reason, "NodeNotReady");
    it.log();
    // the node is deleted
    let deleted: Node = object(r#"{"metadata":{"name":"n"}}"#);
    it.informer.delete(&deleted);
    it.server.state.lock().node = None;
    it.reporter.sync().await.unwrap();
    assert_eq!(it.log(), ["POST /api/v1/nodes"]);
}

#[tokio::test]
async fn labels_of_the_node_are_known_before_the_next_report() {
    let mut it = Fixture::new();
    it.monitor.check().await;
    it.reporter.sync().await.unwrap();
    it.reporter.follow_node();
    it.observe();
    {
        let mut state = it.server.state.lock();
        let metadata = &mut state.node.as_mut().unwrap()["metadata"];
        metadata["resourceVersion"] = "2".into();
        metadata["labels"]["zone"] = "a".into();
    }
    it.observe();
    let node = it.handle.node.borrow().clone();
    assert_eq!(node.metadata.labels["zone"], "a");
    // what the agent computes itself stays
    assert_eq!(node.status.conditions[3].status, "True");
}

#[tokio::test]
async fn a_node_that_exists_is_taken_over() {
    let mut it = Fixture::new();
    it.server.state.lock().node =
        Some(serde_json::json!({"metadata": {"name": "n", "uid": "u0", "labels": {"mine": "1"}}}));
    it.monitor.check().await;
    it.reporter.sync().await.unwrap();
    assert_eq!(it.log(), ["POST /api/v1/nodes", "PATCH /api/v1/nodes/n", "PATCH /api/v1/nodes/n/status"]);
    let patches = it.server.state.lock().patches.clone();
    assert_eq!(patches[0]["metadata"]["labels"][names::node::OS], "linux");
    assert_eq!(patches[1]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
}

#[tokio::test]
async fn pressures_wake_the_reporter() {
    let mut it = Fixture::new();
    it.monitor.check().await;
    it.reporter.sync().await.unwrap();
    it.observe();
    let pressures = conditions::Pressures { has_disk_pressure: true, ..Default::default() };
    it.handle.set_pressures(pressures);
    it.reporter.sync().await.unwrap();
    let patch = it.server.state.lock().patches.pop().unwrap();
    let disk =
        &patch["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "DiskPressure");
    assert_eq!(disk.unwrap()["status"], "True");
}

#[tokio::test]
async fn a_node_has_resources_before_the_api_server_answers() {
    let it = Fixture::new();
    assert!(it.handle.node.borrow().status.allocatable.is_empty());
    it.reporter.publish_first();
    let node = it.handle.node.borrow().clone();
    assert_eq!(node.status.allocatable["cpu"].to_string(), "2");
    assert_eq!(*it.handle.host_ips.borrow(), ["10.77.0.1"]);
}

#[tokio::test]
async fn a_node_that_shuts_down_is_not_ready() {
    let mut it = Fixture::new();
    it.monitor.check().await;
    it.reporter.sync().await.unwrap();
    it.observe();
    it.is_shutting_down.send_replace(true);
    it.reporter.sync().await.unwrap();
    let patch = it.server.state.lock().patches.pop().unwrap();
    let ready =
        patch["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&"False".into(), &"KubeletNotReady".into()));
    assert_eq!(ready["message"], "node is shutting down");
}

#[tokio::test]
async fn the_lease_belongs_to_the_node() {
    let (server, clock) = (FakeServer::default(), Simulated::new(1_700_000_000, 1));
    let node: Node = object(r#"{"metadata":{"name":"n","uid":"u1"}}"#);
    let (_sender, receiver) = watch::channel(Arc::new(node));
    let client = Client::new(server.clone());
    let mut lease = LeaseRenewal::new(&client, clock.clone(), "n", Duration::from_secs(40), receiver);
    lease.renew().await.unwrap();
    let read =
        || -> Lease { from_json(server.state.lock().lease.clone().unwrap().to_string().as_bytes()).unwrap() };
    let first = read();
    assert_eq!((first.name(), first.namespace()), ("n", "kube-node-lease"));
    let owner = &first.metadata.owner_references[0];
    assert_eq!(
        (&*owner.api_version, &*owner.kind, &*owner.uid, owner.controller),
        ("v1", "Node", "u1", None)
    );
    let spec = &first.spec;
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("n"), Some(40)));
    assert_eq!((spec.acquire_time, spec.lease_transitions), (None, None));
    clock.advance(Duration::from_secs(10));
    lease.renew().await.unwrap();
    assert!(read().spec.renew_time > spec.renew_time);
    // the namespace controller removed it
    server.state.lock().lease = None;
    lease.renew().await.unwrap();
    assert_eq!(read().metadata.owner_references.len(), 1);
    let log = std::mem::take(&mut server.state.lock().log);
    let methods: Vec<_> = log.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(methods, ["POST", "PUT", "PUT", "POST"]);
}
