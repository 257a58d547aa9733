//! The runtime and the API server.

use super::embedded_runtime;
use super::parts::{Clients, Parts};
use super::start_error::failed;
use crate::configuration::StartError;
use crate::runtime::cri::CriRuntime;
use crate::runtime::{Runtime, RuntimeCode, SharedRuntime};
use client::{Body, Client, Metrics};
use client::{Rate, transport};
use outbound::Target;
use std::future::{Ready, ready};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Sockets of runtimes, in the order in which they are tried.
pub const ENDPOINTS: [&str; 3] =
    ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/var/run/cri-dockerd.sock"];

/// The time for an answer of a runtime that may not be one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The first usual endpoint of a runtime that exists.
pub fn endpoint() -> Option<String> {
    ENDPOINTS.iter().find(|path| Path::new(path).exists()).map(|path| format!("unix://{path}"))
}

/// The runtime of pods where none is named: the first usual endpoint that serves the CRI v1, otherwise the embedded one. A
/// socket whose runtime has ended, and a containerd that only Docker uses, do not serve it.
pub async fn automatic_endpoint() -> String {
    let found = first_answering(&ENDPOINTS.map(Path::new)).await;
    found.unwrap_or_else(|| embedded_runtime::ENDPOINT.to_owned())
}

async fn first_answering(sockets: &[&Path]) -> Option<String> {
    for path in sockets.iter().filter(|path| path.exists()) {
        let endpoint = format!("unix://{}", path.display());
        let Ok(runtime) = CriRuntime::new(&endpoint, None, Some(ANSWER_TIMEOUT), None) else { continue };
        match runtime.version().await {
            Ok(_) => return Some(endpoint),
            Err(why) => tracing::debug!(endpoint, %why, "this is no container runtime for pods"),
        }
    }
    None
}

/// The runtime at the endpoint of the flag, or at the first usual one that exists.
pub async fn runtime(parts: &Parts) -> Result<SharedRuntime, StartError> {
    let Parts { configuration, flags, .. } = parts;
    let given = flags.given("container-runtime-endpoint").map(str::to_owned);
    let endpoint = given.or_else(endpoint).ok_or_else(|| {
        StartError::new(
            "failed to validate kubelet flags: the container runtime endpoint address was not specified or empty, use --container-runtime-endpoint to set",
        )
    })?;
    if endpoint == embedded_runtime::ENDPOINT {
        return embedded(parts);
    }
    let images = flags.given("image-service-endpoint");
    std::iter::once(&*endpoint).chain(images).try_for_each(check_endpoint).map_err(failed)?;
    let timeout = configuration.duration(&["runtimeRequestTimeout"]);
    let tracer = parts.tracer.clone();
    let runtime = CriRuntime::new(&endpoint, images, Some(timeout), tracer).map_err(failed)?;
    runtime.version().await.map_err(|why| match why.code {
        RuntimeCode::Unimplemented => failed(format!(
            "validate service connection: CRI v1 runtime API is not implemented for endpoint {endpoint:?}: {why}"
        )),
        _ => failed(format!("failed to create kubelet: get remote runtime typed version failed: {why}")),
    })?;
    Ok(Arc::new(runtime))
}

/// The runtime in this process.
fn embedded(parts: &Parts) -> Result<SharedRuntime, StartError> {
    if parts.configuration.text(&["cgroupDriver"]) == "systemd" {
        return Err(failed("the embedded runtime needs the cgroup driver cgroupfs"));
    }
    if let Some(why) = embedded_runtime::missing() {
        return Err(failed(format!("the embedded runtime cannot run here: {why}")));
    }
    let root_dir = Path::new(parts.flags.text("root-dir"));
    let runtime = embedded_runtime::open(root_dir, parts.cni_plugin, &parts.world);
    let runtime =
        runtime.map_err(|why| failed(format!("the embedded runtime cannot start: {}", why.message)))?;
    Ok(Arc::new(runtime))
}

/// Refuses endpoints that are no Unix sockets, in upstream's words.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let url = schema::url::parse(endpoint).map(|url| url.scheme);
    match url.as_deref() {
        Ok("unix" | "") => Ok(()),
        Ok("tcp") => Err("only support unix socket endpoint".to_owned()),
        Ok(other) => Err(format!("protocol {other:?} not supported")),
        // a path without a scheme
        Err(_) => schema::url::parse(&format!("unix://{endpoint}")).map(drop),
    }
}

/// The clients of an agent without an API server: their requests fail.
pub fn no_server() -> Clients {
    Clients { api: Client::new(NoServer), events: Client::new(NoServer) }
}

/// The clients of an API server.
pub fn clients(parts: &Parts, target: &Target, metrics: &Metrics) -> Result<Clients, StartError> {
    let Parts { configuration, world, tracer, .. } = parts;
    let transport = transport::transport(target, "kubelet", metrics).map_err(failed)?;
    let transport = transport.traced_by(tracer.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri_server::{CriServer, CriServerOptions};
    use crate::runtime::simulated::SimulatedRuntime;
    use env::{Simulated, World};
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn a_runtime_is_the_first_socket_that_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (missing, dead, served) = (path("missing.sock"), path("dead.sock"), path("served.sock"));
        // what a containerd leaves that has ended
        drop(UnixListener::bind(&dead).unwrap());
        assert_eq!(first_answering(&[&missing, &dead]).await, None);
        let world: World = Simulated::new(1_700_000_000, 1);
        let options = CriServerOptions {
            runtime: Arc::new(SimulatedRuntime::new(world.clone())),
            world,
            stream_address: ([127, 0, 0, 1], 0).into(),
            stream_idle_timeout: Duration::ZERO,
        };
        let server = CriServer::bind(&served, options).await.unwrap();
        let server = tokio::spawn(server.serve());
        let found = first_answering(&[&missing, &dead, &served]).await;
        assert_eq!(found, Some(format!("unix://{}", served.display())));
        server.abort();
    }
}
