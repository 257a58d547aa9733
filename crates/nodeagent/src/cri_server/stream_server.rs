//! Streams of commands and ports: URLs for one use, and the HTTP server behind them.

use crate::runtime::{SharedRuntime, StreamOptions};
use crate::server::body::{self, Body};
use crate::server::command_streams::{self, Action};
use crate::server::listener;
use crate::server::port_forward;
use env::World;
use grpc::tonic::Status;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The time in which a client must use its URL.
const TOKEN_TTL: Duration = Duration::from_secs(60);
/// URLs that wait for their clients.
const TOKEN_LIMIT: usize = 1000;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that a client of a URL continues.
pub enum StreamRequest {
    Command { action: Action, options: StreamOptions },
    PortForward { sandbox: String, ports: Vec<u16> },
}

struct Token {
    request: StreamRequest,
    /// In the time of the world.
    expires_at: Duration,
}

/// See the module.
pub struct StreamServer {
    runtime: SharedRuntime,
    world: World,
    address: SocketAddr,
    idle_timeout: Duration,
    tokens: Mutex<HashMap<String, Token>>,
}

impl StreamServer {
    pub fn new(runtime: SharedRuntime, world: World, address: SocketAddr, idle_timeout: Duration) -> Self {
        StreamServer { runtime, world, address, idle_timeout, tokens: Mutex::default() }
    }

    /// Keeps a request for one client. Returns its URL.
    pub fn url(&self, request: StreamRequest) -> Result<String, Status> {
        let now = self.world.elapsed();
        let mut random = [0; 16];
        self.world.fill(&mut random);
        let token: String = random.iter().map(|it| format!("{it:02x}")).collect();
        let url = format!("http://{}/{token}", self.address);
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, it| it.expires_at > now);
        if tokens.len() >= TOKEN_LIMIT {
            return Err(Status::resource_exhausted("maximum number of in-flight requests exceeded"));
        }
        tokens.insert(token, Token { request, expires_at: now + TOKEN_TTL });
        Ok(url)
    }

    /// The request of a token, which cannot be used again.
    fn take(&self, token: &str) -> Option<StreamRequest> {
        let found = self.tokens.lock().remove(token)?;
        (found.expires_at > self.world.elapsed()).then_some(found.request)
    }

    /// Serves until the future is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        listener::accept(&listener, |tcp| serve_connection(self.clone(), tcp)).await;
    }

    fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let found = self.take(request.uri().path().trim_start_matches('/'));
        let runtime = self.runtime.clone();
        match found {
            Some(StreamRequest::Command { action, options }) => {
                command_streams::start(runtime, request, options, action, self.idle_timeout)
            }
            Some(StreamRequest::PortForward { sandbox, ports }) => {
                port_forward::start(runtime, request, sandbox, Some(ports), self.idle_timeout)
            }
            None => body::error(StatusCode::NOT_FOUND, "the URL has been used, or was never given"),
        }
    }
}

async fn serve_connection(server: Arc<StreamServer>, tcp: TcpStream) {
    let handler = service_fn(move |request: Request<Incoming>| {
        let server = server.clone();
        async move { Ok::<Response<Body>, Infallible>(server.respond(request)) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // an error belongs to the connection
    let _ = builder.serve_connection(TokioIo::new(tcp), handler).with_upgrades().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::simulated::SimulatedRuntime;
    use env::Simulated;

    #[test]
    fn a_token_is_for_one_use_within_a_minute() {
        let clock = Simulated::new(0, 1);
        let world: World = clock.clone();
        let runtime = Arc::new(SimulatedRuntime::new(world.clone()));
        let address = SocketAddr::from(([127, 0, 0, 1], 21_000));
        let server = StreamServer::new(runtime, world, address, Duration::ZERO);
        let request = || StreamRequest::PortForward { sandbox: "s".into(), ports: vec![80] };
        let token = |url: String| url.rsplit_once('/').unwrap().1.to_owned();
        let first = token(server.url(request()).unwrap());
        let second = token(server.url(request()).unwrap());
        assert_ne!(first, second);
        assert!(server.take(&first).is_some());
        assert!(server.take(&first).is_none());
        clock.advance(TOKEN_TTL);
        assert!(server.take(&second).is_none());
        for _ in 0..TOKEN_LIMIT {
            server.url(request()).unwrap();
        }
        assert!(server.url(request()).is_err());
        clock.advance(TOKEN_TTL);
        assert!(server.url(request()).is_ok());
    }
}
