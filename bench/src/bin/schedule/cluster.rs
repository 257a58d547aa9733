//! The API server of the benchmark with a durable store, and its clients through memory.

use anyhow::{Context, ensure};
use apiserver::serve::InMemory;
use apiserver::{Server, StoreChoice, admission};
use auth::User;
use bench::in_process::config;
use client::Client;
use env::{Seeded, World};
use http::{Request, header};
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running API server.
pub struct Cluster {
    server: Server,
    pub world: World,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the server on the current runtime with a store in a temporary directory.
    pub async fn start() -> anyhow::Result<Self> {
        let world: World = Seeded::new(1_700_000_000, 1);
        let folder = tempfile::tempdir()?;
        // no control loop makes service accounts or removes the taint of new nodes
        let disable = ["ServiceAccount", "TaintNodesByCondition"].map(str::to_owned).to_vec();
        let admission = admission::Options { disable, ..admission::Options::default() };
        let store = StoreChoice::Directory(folder.path().join("store"));
        let config = config(store, Default::default(), admission, Arc::clone(&world))?;
        Ok(Cluster { server: Server::start(config).await?, world, _folder: folder })
    }

    /// A client whose requests run on the current runtime.
    pub fn client(&self, user: User, agent: &str) -> Client {
        let runtime = Handle::current();
        Client::new(OnRuntime { transport: InMemory::new(self.server.service.clone(), user, agent), runtime })
    }

    /// A client whose requests run where they are made.
    pub fn direct_client(&self, user: User, agent: &str) -> Client {
        Client::new(InMemory::new(self.server.service.clone(), user, agent))
    }

    pub async fn stop(self) {
        self.server.shutdown().await;
    }
}

pub fn administrator() -> User {
    User { groups: vec![auth::MASTERS.to_owned()], ..User::named("admin") }.authenticated()
}

pub fn scheduler_user() -> User {
    User::named("system:kube-scheduler").authenticated()
}

/// A transport that handles requests on a runtime of its own, so that their CPU time is that of its threads.
#[derive(Clone)]
struct OnRuntime {
    transport: InMemory,
    runtime: Handle,
}

impl tower_service::Service<Request<client::Body>> for OnRuntime {
    type Response = <InMemory as tower_service::Service<Request<client::Body>>>::Response;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), io::Error>> {
        tower_service::Service::<Request<client::Body>>::poll_ready(&mut self.transport, cx)
    }

    fn call(&mut self, request: Request<client::Body>) -> Self::Future {
        let pending = self.transport.call(request);
        let response = self.runtime.spawn(pending);
        Box::pin(async move { response.await.map_err(io::Error::other)? })
    }
}

/// Creates an object.
pub async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(serde_json::to_vec(object)?)?;
    let response = client.request_bytes(request).await.map(drop);
    response.map_err(|why| anyhow::anyhow!("{path}: {}", why.message()))
}

/// Creates objects by several clients, each the next one when the last is there.
pub async fn create_all(
    client: &Client,
    path: &str,
    count: usize,
    creators: usize,
    object: impl Fn(usize) -> Value + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let (object, next) = (Arc::new(object), Arc::new(AtomicUsize::new(0)));
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for _ in 0..creators {
        let (client, path) = (client.clone(), path.to_owned());
        let (object, next) = (Arc::clone(&object), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                if nth >= count {
                    return Ok(());
                }
                create(&client, &path, &object(nth)).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended?.context("a creator failed")?;
    }
    Ok(())
}

/// Counts the pods of a label that get a node, by a watch.
pub async fn count_bound(client: Client, label: String, counted: watch::Sender<usize>) -> anyhow::Result<()> {
    let query = format!("watch=1&fieldSelector=spec.nodeName%21%3D&labelSelector=app%3D{label}");
    let request = Request::get(format!("{}?{query}", super::templates::path("pods"))).body(Vec::new())?;
    let mut lines =
        client.request_lines(request).await.map_err(|why| anyhow::anyhow!("{}", why.message()))?;
    while let Some(line) = lines.next_line().await? {
        ensure!(!line.starts_with(br#"{"type":"ERROR""#), "{}", String::from_utf8_lossy(&line));
        if line.starts_with(br#"{"type":"ADDED""#) {
            counted.send_modify(|count| *count += 1);
        }
    }
    // it ends with the server, when its count is no longer read
    ensure!(counted.is_closed(), "the watch of pods ended");
    Ok(())
}
