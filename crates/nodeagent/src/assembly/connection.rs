//! The runtime and the API server.

use super::start_error::failed;
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

/// The first usual endpoint of a runtime that exists.
pub fn endpoint() -> Option<String> {
    ENDPOINTS.iter().find(|path| Path::new(path).exists()).map(|path| format!("unix://{path}"))
}

/// The runtime at the endpoint of the flag, or at the first usual one that exists.
pub async fn runtime(configuration: &Configuration, flags: &Flags) -> Result<SharedRuntime, StartError> {
    let given = flags.given("container-runtime-endpoint").map(str::to_owned);
    let endpoint = given.or_else(endpoint).ok_or_else(|| {
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

/// The clients of an agent: each has a rate limit of its own.
#[derive(Clone)]
pub struct Clients {
    pub api: Client,
    pub events: Client,
}

/// The clients of an agent without an API server: their requests fail.
pub fn no_server() -> Clients {
    Clients { api: Client::new(NoServer), events: Client::new(NoServer) }
}

/// The clients of an API server.
pub fn clients(
    configuration: &Configuration,
    target: &Target,
    metrics: &Metrics,
    world: &World,
) -> Result<Clients, StartError> {
    let transport = transport::transport(target, "kubelet", metrics).map_err(failed)?;
    let limited = |qps: &str, burst: &str| {
        let rate = rate(configuration.int(qps), configuration.int(burst));
        transport::client(&transport, rate, world)
    };
    Ok(Clients {
        api: limited("kubeAPIQPS", "kubeAPIBurst"),
        events: limited("eventRecordQPS", "eventBurst"),
    })
}

/// A rate limit; zero stands for the default of upstream's client.
fn rate(per_second: i64, burst: i64) -> Rate {
    let or_default = |value: i64, default: i64| if value == 0 { default } else { value };
    Rate {
        per_second: or_default(per_second, 5) as f64,
        burst: u32::try_from(or_default(burst, 10)).unwrap_or(0),
    }
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
