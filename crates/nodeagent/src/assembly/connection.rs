//! The runtime and the API server.

use super::parts::failed;
use crate::configuration::{Configuration, Flags, StartError};
use crate::runtime::cri::CriRuntime;
use crate::runtime::{Runtime, SharedRuntime};
use client::transport::{self, Rate};
use client::{Body, Client, Metrics};
use env::World;
use outbound::Target;
use std::future::{Ready, ready};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Sockets of runtimes, in the order in which they are tried.
const ENDPOINTS: [&str; 3] =
    ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/var/run/cri-dockerd.sock"];

/// The runtime at the endpoint of the flag, or at the first usual one that exists.
pub async fn runtime(configuration: &Configuration, flags: &Flags) -> Result<SharedRuntime, StartError> {
    let found =
        || ENDPOINTS.iter().find(|path| Path::new(path).exists()).map(|path| format!("unix://{path}"));
    let given = flags.given("container-runtime-endpoint").map(str::to_owned);
    let endpoint = given.or_else(found).ok_or_else(|| {
        StartError::new(
            "failed to validate kubelet flags: the container runtime endpoint address was not specified or empty, use --container-runtime-endpoint to set",
        )
    })?;
    let timeout = configuration.duration(&["runtimeRequestTimeout"]);
    let runtime =
        CriRuntime::new(&endpoint, flags.given("image-service-endpoint"), Some(timeout)).map_err(failed)?;
    runtime.version().await.map_err(|why| {
        failed(format!(
            "validate service connection: validate CRI v1 runtime API for endpoint {endpoint:?}: {why}"
        ))
    })?;
    Ok(Arc::new(runtime))
}

/// The client of the API server of the kubeconfig; without one, a client whose requests fail.
pub fn client(
    configuration: &Configuration,
    flags: &Flags,
    metrics: &Metrics,
    world: &World,
) -> Result<Client, StartError> {
    let Some(file) = flags.given("kubeconfig") else { return Ok(Client::new(NoServer)) };
    let target = Target::from_kubeconfig(Path::new(file))
        .map_err(|why| failed(format!("invalid kubeconfig: {why}")))?;
    let transport = transport::transport(&target, "kubelet", metrics).map_err(failed)?;
    let (qps, burst) = (configuration.int("kubeAPIQPS"), configuration.int("kubeAPIBurst"));
    let rate = Rate { per_second: qps as f64, burst: u32::try_from(burst).unwrap_or(0) };
    Ok(transport::client(&transport, rate, world))
}

/// The server of an agent that runs static pods alone.
#[derive(Clone)]
struct NoServer;

impl tower_service::Service<::http::Request<Body>> for NoServer {
    type Response = ::http::Response<Body>;
    type Error = std::io::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ::http::Request<Body>) -> Self::Future {
        ready(Err(std::io::Error::other("there is no API server: the agent has no kubeconfig")))
    }
}
