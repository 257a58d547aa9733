//! A container runtime served as the CRI v1: gRPC at a Unix socket, and streams of commands and ports over HTTP.
//!
//! ```text
//! kubelet, crictl ── gRPC ──► RuntimeService, ImageService ──► dyn Runtime
//!        └── SPDY, WebSocket ──► StreamServer, by a token of Exec, Attach or PortForward ──┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `runtime_service`, `image_service` | the methods |
//! | `sandbox_calls`, `container_calls` | the longer methods of the runtime service |
//! | `from_cri`, `to_cri` | conversions of requests and of responses |
//! | `stats` | usage of containers and sandboxes, as statistics and as metrics |
//! | `filter`, `ids` | filters of lists; ids by their beginning |
//! | `events` | the stream of container events |
//! | `stream_server` | URLs for one use, and the server behind them |
//!
//! Invariants: the server has no state of its own, except for the tokens of streams, which live a minute. Errors have
//! the code of the runtime.

mod container_calls;
mod events;
mod filter;
mod from_cri;
mod ids;
mod image_service;
mod runtime_service;
mod sandbox_calls;
mod stats;
mod status;
mod stream_server;
#[cfg(test)]
mod tests;
mod to_cri;

use crate::resource_managers::unix_server;
use crate::runtime::SharedRuntime;
use env::World;
use grpc::cri::image_service_server::ImageServiceServer;
use grpc::cri::runtime_service_server::RuntimeServiceServer;
use grpc::tonic::Status;
use grpc::tonic::codegen::Service as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stream_server::StreamServer;
use tokio::net::{TcpListener, UnixListener};

/// The limit of one request, that of upstream's clients.
const REQUEST_LIMIT: usize = 16 << 20;

/// The runtime and the settings of a server.
pub struct CriServerOptions {
    pub runtime: SharedRuntime,
    pub world: World,
    /// The address of streams; port 0 is any.
    pub stream_address: SocketAddr,
    /// The time without data after which a stream ends; zero is no limit.
    pub stream_idle_timeout: Duration,
}

/// A server with its open ports.
pub struct CriServer {
    service: Arc<CriService>,
    socket: UnixListener,
    stream_listener: TcpListener,
}

/// The methods of the CRI over a runtime.
pub(crate) struct CriService {
    pub runtime: SharedRuntime,
    pub world: World,
    pub streams: Arc<StreamServer>,
}

impl CriServer {
    /// Opens the socket and the port of streams. A socket that is left at the path is removed.
    pub async fn bind(socket: &Path, options: CriServerOptions) -> io::Result<Self> {
        let CriServerOptions { runtime, world, stream_address, stream_idle_timeout } = options;
        let stream_listener = TcpListener::bind(stream_address).await?;
        let address = stream_listener.local_addr()?;
        let streams = StreamServer::new(runtime.clone(), world.clone(), address, stream_idle_timeout);
        let service = Arc::new(CriService { runtime, world, streams: Arc::new(streams) });
        Ok(CriServer { service, socket: unix_server::bind(socket)?, stream_listener })
    }

    /// Serves until the future is dropped.
    pub async fn serve(self) {
        let CriServer { service, socket, stream_listener } = self;
        let streams = service.streams.clone();
        let calls = unix_server::serve(socket, move |request| {
            let service = service.clone();
            async move {
                match request.uri().path().split('/').nth(1) {
                    Some("runtime.v1.RuntimeService") => {
                        let server = RuntimeServiceServer::from_arc(service);
                        server.max_decoding_message_size(REQUEST_LIMIT).call(request).await
                    }
                    Some("runtime.v1.ImageService") => {
                        let server = ImageServiceServer::from_arc(service);
                        server.max_decoding_message_size(REQUEST_LIMIT).call(request).await
                    }
                    _ => Ok(Status::unimplemented("unknown service").into_http()),
                }
            }
        });
        tokio::join!(calls, streams.serve(stream_listener));
    }
}
