//! A CSI driver for tests, which may hang, lie, fail and die, in the process or at a real socket; and the objects that volumes
//! need.
//!
//! The driver checks the order of calls: a call out of order is an error.

use super::service::{Call, Capabilities, CsiError, NodeService};
use super::storage_api::StorageApi;
use crate::objects::{ObjectError, ObjectRead};
use crate::resource_managers::unix_server;
use crate::runtime::simulated::CallLimit;
use api::Quantity;
use api::core::v1::{Node, PersistentVolumeClaim};
use api::storage::v1::{CSIDriver, VolumeAttachment};
use client::{Body, Client, Note};
use futures_util::FutureExt;
use grpc::csi::node_server::{Node as NodeRpc, NodeServer};
use grpc::csi::node_service_capability::{Rpc, Type, rpc};
use grpc::csi::volume_capability::AccessType;
use grpc::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeUsage, volume_usage,
};
use grpc::tonic::codegen::Service as _;
use grpc::tonic::{Code, Request, Response, Status};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::watch;

/// How a method misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Never answers.
    Hang,
    /// Does nothing, and says so.
    Fail(Code),
    /// Does its work, and says that it failed.
    DoneButFailed(Code),
    /// Says that it has done its work.
    Lie,
}

/// See the module.
pub struct TestDriver {
    pub capabilities: Mutex<Capabilities>,
    pub info: Mutex<NodeGetInfoResponse>,
    pub faults: Mutex<BTreeMap<&'static str, Fault>>,
    /// The methods that were called, with handles.
    pub calls: Mutex<Vec<String>>,
    /// Counts the calls.
    pub called: watch::Sender<usize>,
    pub stage_requests: Mutex<Vec<NodeStageVolumeRequest>>,
    pub publish_requests: Mutex<Vec<NodePublishVolumeRequest>>,
    pub expand_requests: Mutex<Vec<NodeExpandVolumeRequest>>,
    /// Handles with staging paths, and with targets.
    pub staged: Mutex<BTreeSet<(String, String)>>,
    pub published: Mutex<BTreeSet<(String, String)>>,
    /// The mounts of the machine.
    pub mounts: Arc<Mutex<BTreeMap<PathBuf, String>>>,
}

impl TestDriver {
    /// A driver that can do everything.
    pub fn new(mounts: Arc<Mutex<BTreeMap<PathBuf, String>>>) -> Arc<Self> {
        let capabilities =
            Capabilities { stages: true, has_stats: true, expands: true, ..Capabilities::default() };
        let info = NodeGetInfoResponse { node_id: "node-id".to_owned(), ..NodeGetInfoResponse::default() };
        Arc::new(TestDriver {
            capabilities: Mutex::new(capabilities),
            info: Mutex::new(info),
            faults: Mutex::default(),
            calls: Mutex::default(),
            called: watch::Sender::default(),
            stage_requests: Mutex::default(),
            publish_requests: Mutex::default(),
            expand_requests: Mutex::default(),
            staged: Mutex::default(),
            published: Mutex::default(),
            mounts,
        })
    }

    pub fn set_fault(&self, method: &'static str, fault: Option<Fault>) {
        match fault {
            Some(fault) => drop(self.faults.lock().insert(method, fault)),
            None => drop(self.faults.lock().remove(method)),
        }
    }

    /// Takes the list of calls.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }

    async fn act<T: Default>(
        &self,
        method: &'static str,
        handle: &str,
        work: impl FnOnce() -> Result<T, CsiError>,
    ) -> Result<T, CsiError> {
        let shown = if handle.is_empty() { method.to_owned() } else { format!("{method} {handle}") };
        self.calls.lock().push(shown);
        self.called.send_modify(|count| *count += 1);
        let fault = self.faults.lock().get(method).copied();
        match fault {
            None => work(),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Fail(code)) => Err(CsiError::new(code, "on fire")),
            Some(Fault::DoneButFailed(code)) => work().and(Err(CsiError::new(code, "on fire"))),
            Some(Fault::Lie) => Ok(T::default()),
        }
    }

    fn do_stage(&self, request: &NodeStageVolumeRequest) -> Result<(), CsiError> {
        let path = Path::new(&request.staging_target_path);
        if !path.is_dir() {
            return Err(CsiError::new(Code::InvalidArgument, "no staging directory"));
        }
        self.mounts.lock().insert(path.to_owned(), format!("stage {}", request.volume_id));
        self.staged.lock().insert((request.volume_id.clone(), request.staging_target_path.clone()));
        Ok(())
    }

    fn do_unstage(&self, request: &NodeUnstageVolumeRequest) -> Result<(), CsiError> {
        if self.published.lock().iter().any(|(handle, _)| *handle == request.volume_id) {
            return Err(CsiError::new(Code::FailedPrecondition, "the volume is published"));
        }
        self.mounts.lock().remove(Path::new(&request.staging_target_path));
        self.staged.lock().remove(&(request.volume_id.clone(), request.staging_target_path.clone()));
        Ok(())
    }

    fn do_publish(&self, request: &NodePublishVolumeRequest) -> Result<(), CsiError> {
        let target = Path::new(&request.target_path);
        let is_inline = request.staging_target_path.is_empty();
        let staged = (request.volume_id.clone(), request.staging_target_path.clone());
        if self.capabilities.lock().stages && !is_inline && !self.staged.lock().contains(&staged) {
            return Err(CsiError::new(Code::FailedPrecondition, "the volume is not staged"));
        }
        if !target.parent().is_some_and(Path::is_dir) {
            return Err(CsiError::new(Code::InvalidArgument, "no directory of the target"));
        }
        let access = request.volume_capability.as_ref().and_then(|it| it.access_type.as_ref());
        let made = match access {
            Some(AccessType::Block(_)) => std::fs::write(target, "device"),
            _ => std::fs::create_dir_all(target),
        };
        made.map_err(|why| CsiError::new(Code::Internal, &why.to_string()))?;
        if !matches!(access, Some(AccessType::Block(_))) {
            self.mounts.lock().insert(target.to_owned(), format!("publish {}", request.volume_id));
        }
        self.published.lock().insert((request.volume_id.clone(), request.target_path.clone()));
        Ok(())
    }

    fn do_unpublish(&self, request: &NodeUnpublishVolumeRequest) -> Result<(), CsiError> {
        let target = Path::new(&request.target_path);
        self.mounts.lock().remove(target);
        let removed =
            if target.is_dir() { std::fs::remove_dir(target) } else { std::fs::remove_file(target) };
        match removed {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                return Err(CsiError::new(Code::Internal, &why.to_string()));
            }
            _ => {}
        }
        self.published.lock().remove(&(request.volume_id.clone(), request.target_path.clone()));
        Ok(())
    }
}

impl NodeService for TestDriver {
    fn info(&self) -> Call<'_, NodeGetInfoResponse> {
        self.act("info", "", || Ok(self.info.lock().clone())).boxed()
    }

    fn capabilities(&self) -> Call<'_, Capabilities> {
        // every operation begins with it: it is not worth a line
        let fault = self.faults.lock().get("capabilities").copied();
        let capabilities = *self.capabilities.lock();
        async move {
            match fault {
                None | Some(Fault::Lie | Fault::DoneButFailed(_)) => Ok(capabilities),
                Some(Fault::Hang) => std::future::pending().await,
                Some(Fault::Fail(code)) => Err(CsiError::new(code, "on fire")),
            }
        }
        .boxed()
    }

    fn stage(&self, request: NodeStageVolumeRequest) -> Call<'_, ()> {
        async move {
            self.stage_requests.lock().push(request.clone());
            self.act("stage", &request.volume_id, || self.do_stage(&request)).await
        }
        .boxed()
    }

    fn unstage(&self, request: NodeUnstageVolumeRequest) -> Call<'_, ()> {
        async move { self.act("unstage", &request.volume_id, || self.do_unstage(&request)).await }.boxed()
    }

    fn publish(&self, request: NodePublishVolumeRequest) -> Call<'_, ()> {
        async move {
            self.publish_requests.lock().push(request.clone());
            self.act("publish", &request.volume_id, || self.do_publish(&request)).await
        }
        .boxed()
    }

    fn unpublish(&self, request: NodeUnpublishVolumeRequest) -> Call<'_, ()> {
        async move { self.act("unpublish", &request.volume_id, || self.do_unpublish(&request)).await }.boxed()
    }

    fn expand(&self, request: NodeExpandVolumeRequest) -> Call<'_, ()> {
        async move {
            self.expand_requests.lock().push(request.clone());
            self.act("expand", &request.volume_id, || Ok(())).await
        }
        .boxed()
    }

    fn stats(&self, request: NodeGetVolumeStatsRequest) -> Call<'_, NodeGetVolumeStatsResponse> {
        let usage = |unit: volume_usage::Unit, total| VolumeUsage {
            available: total - 30,
            total,
            used: 30,
            unit: unit.into(),
        };
        async move {
            let usage = vec![usage(volume_usage::Unit::Bytes, 1000), usage(volume_usage::Unit::Inodes, 100)];
            self.act("stats", &request.volume_id, || Ok(NodeGetVolumeStatsResponse { usage })).await
        }
        .boxed()
    }
}

/// A driver as an agent sees it that is killed after a number of calls.
pub struct LimitedDriver {
    pub driver: Arc<TestDriver>,
    pub limit: Option<Arc<CallLimit>>,
}

impl LimitedDriver {
    fn limited<'a, T: Send + 'a>(&'a self, call: Call<'a, T>) -> Call<'a, T> {
        async move {
            let Some(limit) = &self.limit else { return call.await };
            let killed = || Err(CsiError::new(Code::Unavailable, "the agent was killed"));
            if limit.is_reached() {
                return killed();
            }
            let answer = call.await;
            if limit.count() { answer } else { killed() }
        }
        .boxed()
    }
}

impl NodeService for LimitedDriver {
    fn info(&self) -> Call<'_, NodeGetInfoResponse> {
        self.driver.info()
    }
    fn capabilities(&self) -> Call<'_, Capabilities> {
        self.driver.capabilities()
    }
    fn stage(&self, request: NodeStageVolumeRequest) -> Call<'_, ()> {
        self.limited(self.driver.stage(request))
    }
    fn unstage(&self, request: NodeUnstageVolumeRequest) -> Call<'_, ()> {
        self.limited(self.driver.unstage(request))
    }
    fn publish(&self, request: NodePublishVolumeRequest) -> Call<'_, ()> {
        self.limited(self.driver.publish(request))
    }
    fn unpublish(&self, request: NodeUnpublishVolumeRequest) -> Call<'_, ()> {
        self.limited(self.driver.unpublish(request))
    }
    fn expand(&self, request: NodeExpandVolumeRequest) -> Call<'_, ()> {
        self.limited(self.driver.expand(request))
    }
    fn stats(&self, request: NodeGetVolumeStatsRequest) -> Call<'_, NodeGetVolumeStatsResponse> {
        self.driver.stats(request)
    }
}

/// The driver behind a socket.
pub struct DriverServer(pub Arc<TestDriver>);

fn status(error: &CsiError) -> Status {
    let prefix = format!("rpc error: code = {} desc = ", outbound::code_name(error.code));
    Status::new(error.code, error.message.strip_prefix(&prefix).unwrap_or(&error.message))
}

fn answer<T, R>(result: Result<T, CsiError>, response: impl FnOnce(T) -> R) -> Result<Response<R>, Status> {
    result.map(|it| Response::new(response(it))).map_err(|why| status(&why))
}

#[grpc::tonic::async_trait]
impl NodeRpc for DriverServer {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        answer(self.0.stage(request.into_inner()).await, |()| NodeStageVolumeResponse {})
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        answer(self.0.unstage(request.into_inner()).await, |()| NodeUnstageVolumeResponse {})
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        answer(self.0.publish(request.into_inner()).await, |()| NodePublishVolumeResponse {})
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        answer(self.0.unpublish(request.into_inner()).await, |()| NodeUnpublishVolumeResponse {})
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        answer(self.0.stats(request.into_inner()).await, |it| it)
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let response = |()| NodeExpandVolumeResponse::default();
        answer(self.0.expand(request.into_inner()).await, response)
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        answer(self.0.capabilities().await, |it| {
            let types = [
                (it.stages, rpc::Type::StageUnstageVolume),
                (it.has_stats, rpc::Type::GetVolumeStats),
                (it.expands, rpc::Type::ExpandVolume),
                (it.has_single_writer, rpc::Type::SingleNodeMultiWriter),
                (it.sets_group, rpc::Type::VolumeMountGroup),
            ];
            let capability = |(_, it): (bool, rpc::Type)| NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: it.into() })),
            };
            let capabilities = types.into_iter().filter(|(has, _)| *has).map(capability).collect();
            NodeGetCapabilitiesResponse { capabilities }
        })
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        answer(self.0.info().await, |it| it)
    }
}

/// Serves a driver at a socket until the task is aborted.
pub fn serve(driver: Arc<TestDriver>, socket: &Path) -> tokio::task::AbortHandle {
    let listener = unix_server::bind(socket).unwrap();
    let server = Arc::new(DriverServer(driver));
    tokio::spawn(unix_server::serve(listener, move |request| {
        let server = server.clone();
        async move { NodeServer::from_arc(server).call(request).await }
    }))
    .abort_handle()
}

/// Objects about storage that a test sets.
#[derive(Default)]
pub struct FixedStorage {
    pub drivers: Mutex<BTreeMap<String, CSIDriver>>,
    pub attachments: Mutex<BTreeMap<String, VolumeAttachment>>,
    pub node: Mutex<Option<Arc<Node>>>,
    /// Claims that have grown, with their sizes.
    pub expanded: Mutex<Vec<(String, String)>>,
    pub expansion_error: Mutex<Option<String>>,
    pub events: Mutex<Vec<String>>,
}

impl StorageApi for FixedStorage {
    fn driver<'a>(&'a self, name: &'a str) -> ObjectRead<'a, Option<Arc<CSIDriver>>> {
        let found = self.drivers.lock().get(name).cloned().map(Arc::new);
        async move { Ok(found) }.boxed()
    }

    fn attachment<'a>(&'a self, name: &'a str) -> ObjectRead<'a, VolumeAttachment> {
        let found = self.attachments.lock().get(name).cloned();
        let missing =
            || ObjectError::NotFound(format!("volumeattachments.storage.k8s.io \"{name}\" not found"));
        let found = found.ok_or_else(missing);
        async move { found }.boxed()
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().clone()
    }

    fn finish_expansion<'a>(
        &'a self,
        claim: &'a PersistentVolumeClaim,
        size: &'a Quantity,
    ) -> ObjectRead<'a, ()> {
        let result = match self.expansion_error.lock().clone() {
            Some(why) => Err(ObjectError::Other(why)),
            None => {
                self.expanded.lock().push((claim.metadata.name.clone(), size.to_string()));
                Ok(())
            }
        };
        async move { result }.boxed()
    }

    fn record(&self, _: &PersistentVolumeClaim, note: Note) {
        self.events.lock().push(format!("{}: {}", note.reason, note.message));
    }
}

/// An API server that keeps objects by path. A patch is merged.
#[derive(Clone, Default)]
pub struct ObjectServer {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    writes: Arc<Mutex<usize>>,
    is_failing: Arc<AtomicBool>,
}

impl ObjectServer {
    pub fn client(&self) -> Client {
        Client::new(self.clone())
    }

    pub fn put(&self, path: &str, object: Value) {
        self.objects.lock().insert(path.to_owned(), object);
    }

    pub fn remove(&self, path: &str) {
        self.objects.lock().remove(path);
    }

    /// Sets whether all requests fail.
    pub fn fail(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Release);
    }

    pub fn object(&self, path: &str) -> Option<Value> {
        self.objects.lock().get(path).cloned()
    }

    pub fn writes(&self) -> usize {
        *self.writes.lock()
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        if self.is_failing.load(Ordering::Acquire) {
            return (403, json!({"status":"Failure","message":"no","reason":"Forbidden","code":403}));
        }
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut objects = self.objects.lock();
        if method != "GET" {
            *self.writes.lock() += 1;
        }
        if method == "POST" {
            let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap_or_default());
            objects.insert(path, sent.clone());
            return (201, sent);
        }
        let path = path.trim_end_matches("/status");
        let Some(object) = objects.get_mut(path) else {
            return (404, json!({"status":"Failure","message":"not found","reason":"NotFound","code":404}));
        };
        match method {
            "PUT" => *object = sent,
            "PATCH" => merge(object, &sent),
            _ => {}
        }
        (200, object.clone())
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Some(entries) = patch.as_object() else { return };
    for (key, value) in entries {
        match value {
            Value::Null => drop(object.as_object_mut().map(|it| it.remove(key))),
            Value::Object(_) => {
                if !object[key].is_object() {
                    object[key] = json!({});
                }
                merge(&mut object[key], value);
            }
            value => object[key] = value.clone(),
        }
    }
}

impl tower_service::Service<http::Request<Body>> for ObjectServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
            let (code, value) = server.answer(head.method.as_str(), head.uri.path(), &body);
            Ok(http::Response::builder().status(code).body(value.to_string().into_bytes().into()).unwrap())
        })
    }
}
