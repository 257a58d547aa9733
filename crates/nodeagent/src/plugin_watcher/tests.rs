use super::*;
use crate::resource_managers::unix_server;
use crate::volumes::csi::testing::{Fault, ObjectServer, TestDriver, serve};
use crate::volumes::csi::{CsiDrivers, NodeInfoWriter};
use env::Simulated;
use futures_util::future::BoxFuture;
use grpc::plugin_registration::registration_server::{Registration, RegistrationServer};
use grpc::plugin_registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use grpc::tonic::codegen::Service as _;
use grpc::tonic::{Code, Request, Response, Status};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The registration side of a plugin.
struct Registrar {
    info: PluginInfo,
    hangs: bool,
    outcomes: watch::Sender<Vec<RegistrationStatus>>,
}

#[grpc::tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.outcomes.send_modify(|it| it.push(request.into_inner()));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// A plugin at a socket, which vanishes with it.
struct Plugin {
    outcomes: watch::Receiver<Vec<RegistrationStatus>>,
    socket: PathBuf,
    server: AbortHandle,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.server.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Plugin {
    fn new(socket: &Path, type_: &str, name: &str, endpoint: &Path, versions: &[&str]) -> Self {
        let info = PluginInfo {
            r#type: type_.to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: versions.iter().map(|it| (*it).to_owned()).collect(),
        };
        Self::serve(socket, info, false)
    }

    fn serve(socket: &Path, info: PluginInfo, hangs: bool) -> Self {
        let outcomes = watch::Sender::default();
        let receiver = outcomes.subscribe();
        let registrar = Arc::new(Registrar { info, hangs, outcomes });
        let listener = unix_server::bind(socket).unwrap();
        let server = tokio::spawn(unix_server::serve(listener, move |request| {
            let registrar = registrar.clone();
            async move { RegistrationServer::from_arc(registrar).call(request).await }
        }))
        .abort_handle();
        Plugin { outcomes: receiver, socket: socket.to_owned(), server }
    }

    /// The outcome of the registration.
    async fn outcome(&mut self) -> RegistrationStatus {
        self.outcomes.wait_for(|it| !it.is_empty()).await.unwrap()[0].clone()
    }
}

/// A handler that keeps a list.
struct ListHandler {
    events: watch::Sender<Vec<String>>,
    refusal: Mutex<Option<String>>,
}

impl PluginHandler for ListHandler {
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        if plugin.name.is_empty() { Err("no name".to_owned()) } else { Ok(()) }
    }

    fn register<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, Result<(), String>> {
        let refusal = self.refusal.lock().take();
        let endpoint = plugin.endpoint.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.events.send_modify(|it| it.push(format!("+{} {endpoint}", plugin.name)));
        async move { refusal.map_or(Ok(()), Err) }.boxed()
    }

    fn deregister<'a>(&'a self, plugin: &'a RegisteredPlugin) -> BoxFuture<'a, ()> {
        self.events.send_modify(|it| it.push(format!("-{}", plugin.name)));
        async {}.boxed()
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    handler: Arc<ListHandler>,
    clock: Arc<Simulated>,
    task: AbortHandle,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        sockets::create(&dir.path().join(DIRECTORY)).unwrap();
        let handler = Arc::new(ListHandler { events: watch::Sender::default(), refusal: Mutex::default() });
        let clock = Simulated::new(1_700_000_000, 1);
        let shared: Arc<dyn PluginHandler> = handler.clone();
        let watcher = PluginWatcher::new(dir.path(), Handlers::from([("CSIPlugin", shared)]), clock.clone());
        Fixture { dir, handler, clock, task: tokio::spawn(watcher.run()).abort_handle() }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(DIRECTORY).join(name)
    }

    async fn until(&self, expected: &[&str]) {
        let mut events = self.handler.events.subscribe();
        events.wait_for(|it| it == expected).await.unwrap();
    }
}

#[tokio::test]
async fn plugins_register_and_go_with_their_sockets() {
    let fixture = Fixture::new();
    let mut first =
        Plugin::new(&fixture.socket("a-reg.sock"), "CSIPlugin", "a", Path::new("/x/a.sock"), &["1.0.0"]);
    assert_eq!(first.outcome().await, RegistrationStatus { plugin_registered: true, error: String::new() });
    fixture.until(&["+a a.sock"]).await;
    // without an endpoint it is the same socket; directories are followed, names with a dot are not
    std::fs::create_dir(fixture.socket("sub")).unwrap();
    let mut second = Plugin::new(&fixture.socket("sub/b.sock"), "CSIPlugin", "b", Path::new(""), &["1.0.0"]);
    let hidden = Plugin::new(&fixture.socket(".c.sock"), "CSIPlugin", "c", Path::new(""), &["1.0.0"]);
    std::fs::write(fixture.socket("file"), "").unwrap();
    second.outcome().await;
    fixture.until(&["+a a.sock", "+b b.sock"]).await;
    assert!(hidden.outcomes.borrow().is_empty());
    drop(first);
    fixture.until(&["+a a.sock", "+b b.sock", "-a"]).await;
    // the same path again is another plugin
    let mut third = Plugin::new(&fixture.socket("a-reg.sock"), "CSIPlugin", "a2", Path::new(""), &["1.0.0"]);
    third.outcome().await;
    drop(second);
    fixture.until(&["+a a.sock", "+b b.sock", "-a", "+a2 a-reg.sock", "-b"]).await;
}

#[tokio::test]
async fn a_socket_that_is_replaced_is_deregistered_first() {
    let fixture = Fixture::new();
    let socket = fixture.socket("a.sock");
    let mut first = Plugin::new(&socket, "CSIPlugin", "a", Path::new(""), &["1.0.0"]);
    first.outcome().await;
    // the new one is at the same path before the old one is missed
    let mut second =
        Plugin::new(&fixture.dir.path().join("next"), "CSIPlugin", "b", Path::new(""), &["1.0.0"]);
    std::fs::rename(fixture.dir.path().join("next"), &socket).unwrap();
    second.outcome().await;
    fixture.until(&["+a a.sock", "-a", "+b a.sock"]).await;
}

#[tokio::test]
async fn plugins_that_lie_or_fail_hear_of_it_and_are_tried_again() {
    let fixture = Fixture::new();
    let mut stranger = Plugin::new(&fixture.socket("x.sock"), "Other", "x", Path::new(""), &[]);
    let outcome = stranger.outcome().await;
    let expected = format!(
        "RegisterPlugin error -- no handler registered for plugin type: Other at socket {}",
        fixture.socket("x.sock").display()
    );
    assert_eq!((outcome.plugin_registered, outcome.error), (false, expected));
    let mut nameless = Plugin::new(&fixture.socket("n.sock"), "CSIPlugin", "", Path::new(""), &[]);
    let outcome = nameless.outcome().await;
    assert_eq!(outcome.error, "RegisterPlugin error -- plugin validation failed with err: no name");
    *fixture.handler.refusal.lock() = Some("not now".to_owned());
    let mut refused = Plugin::new(&fixture.socket("r.sock"), "CSIPlugin", "r", Path::new(""), &[]);
    let outcome = refused.outcome().await;
    assert_eq!(outcome.error, "RegisterPlugin error -- plugin registration failed with err: not now");
    // half a second later it is tried again
    while refused.outcomes.borrow().len() < 2 {
        fixture.clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    assert!(refused.outcomes.borrow()[1].plugin_registered);
    drop((nameless, stranger, refused));
    fixture.until(&["+r r.sock", "+r r.sock", "-r"]).await;
}

#[tokio::test]
async fn a_plugin_that_hangs_delays_no_other() {
    let fixture = Fixture::new();
    let info = PluginInfo { r#type: "CSIPlugin".to_owned(), name: "h".to_owned(), ..PluginInfo::default() };
    let _hanging = Plugin::serve(&fixture.socket("a.sock"), info, true);
    // a socket without a server
    drop(std::os::unix::net::UnixListener::bind(fixture.socket("b.sock")).unwrap());
    let mut good = Plugin::new(&fixture.socket("c.sock"), "CSIPlugin", "c", Path::new(""), &["1.0.0"]);
    good.outcome().await;
    fixture.until(&["+c c.sock"]).await;
}

const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/n";

#[tokio::test]
async fn a_csi_driver_that_registers_is_in_the_objects_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    sockets::create(&dir.path().join(DIRECTORY)).unwrap();
    let server = ObjectServer::default();
    server.put("/api/v1/nodes/n", json!({"metadata":{"name":"n","uid":"nu"}}));
    let clock = Simulated::new(1_700_000_000, 1);
    let writer = NodeInfoWriter::new(&server.client(), "n", clock.clone(), Default::default());
    let drivers = Arc::new(CsiDrivers::unobserved(Some(Arc::new(writer))));
    let shared: Arc<dyn PluginHandler> = drivers.clone();
    let watcher = PluginWatcher::new(dir.path(), Handlers::from([("CSIPlugin", shared)]), clock.clone());
    let task = tokio::spawn(watcher.run());
    let driver = TestDriver::new(Arc::default());
    *driver.info.lock() = node_info("id-1", 7);
    let endpoint = dir.path().join("csi.sock");
    let _driver_server = serve(driver.clone(), &endpoint);
    let socket = dir.path().join(DIRECTORY).join("d-reg.sock");
    let mut plugin = Plugin::new(&socket, "CSIPlugin", "d.example.com", &endpoint, &["1.0.0"]);
    assert!(plugin.outcome().await.plugin_registered);
    assert!(drivers.service("d.example.com").is_ok());
    let expected =
        json!([{"name":"d.example.com","nodeID":"id-1","topologyKeys":null,"allocatable":{"count":7}}]);
    assert_eq!(server.object(CSI_NODE).unwrap()["spec"]["drivers"], expected);
    drop(plugin);
    while !server.object(CSI_NODE).unwrap()["spec"]["drivers"].is_null() {
        tokio::task::yield_now().await;
    }
    assert!(drivers.service("d.example.com").is_err());
    // a driver that says nothing about the node is not registered
    driver.set_fault("info", Some(Fault::Fail(Code::Internal)));
    let mut plugin = Plugin::new(&socket, "CSIPlugin", "d.example.com", &endpoint, &["1.0.0"]);
    let outcome = plugin.outcome().await;
    assert_eq!(
        outcome.error,
        "RegisterPlugin error -- plugin registration failed with err: rpc error: code = Internal desc = on fire"
    );
    assert!(drivers.service("d.example.com").is_err());
    driver.set_fault("info", Some(Fault::Lie));
    drop(plugin);
    let mut plugin = Plugin::new(&socket, "CSIPlugin", "d.example.com", &endpoint, &["1.0.0"]);
    let outcome = plugin.outcome().await;
    assert!(outcome.error.ends_with("driverNodeID must not be empty"), "{}", outcome.error);
    task.abort();
}

fn node_info(id: &str, limit: i64) -> grpc::csi::NodeGetInfoResponse {
    grpc::csi::NodeGetInfoResponse {
        node_id: id.to_owned(),
        max_volumes_per_node: limit,
        accessible_topology: None,
    }
}
