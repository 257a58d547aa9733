//! The server: its listeners, its tasks, its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::Registry;
use env::World;
use grpc::lenient_authority::LenientAuthority;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::auto_compaction::{self, Retention};
use crate::database::{Location, OpenError};
use crate::engine::Engine;
use crate::error::Error;
use crate::gauges;
use crate::http::Router;
use crate::metrics::Metrics;
use crate::service::{MemberInfo, Services};
use crate::shared::Limits;
use crate::tls::{self, TlsFiles};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long requests may take after the server was stopped. Watches never end by themselves.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// The bytes that may be on their way to the server, by stream and by connection.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub is_tls: bool,
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    pub location: Location,
    pub endpoints: Vec<Endpoint>,
    /// For the endpoints with TLS.
    pub tls: Option<TlsFiles>,
    pub member: MemberInfo,
    pub limits: Limits,
    /// How often watches without changes hear how far they have come.
    pub progress_interval: Duration,
    pub retention: Option<Retention>,
    /// Pings to clients: after a silence of so long, and how long an answer may take.
    pub keep_alive: Option<(Duration, Duration)>,
    pub max_concurrent_streams: u32,
}

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the store cannot be opened: {0}")]
    Open(#[from] OpenError),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("{0}")]
    Tls(io::Error),
    #[error("an https URL needs a certificate and a key")]
    NoCertificate,
}

/// A running server.
pub struct Server {
    services: Arc<Services>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Opens the store and the listeners.
    pub async fn start(options: Options, registry: Arc<Registry>, world: World) -> Result<Self, StartError> {
        let metrics = Metrics::new(&registry);
        let tls = options.tls.as_ref().map(tls::server_config).transpose().map_err(StartError::Tls)?;
        let mut listeners = Vec::new();
        for endpoint in &options.endpoints {
            let config = match endpoint.is_tls {
                true => Some(tls.clone().ok_or(StartError::NoCertificate)?),
                false => None,
            };
            let failed = |error| StartError::Listen(endpoint.address, error);
            let listener = TcpListener::bind(endpoint.address).await.map_err(failed)?;
            listeners.push((listener.local_addr().map_err(failed)?, listener, config));
        }
        let (location, limits, opening_world) = (options.location, options.limits, world.clone());
        let opened =
            tokio::task::spawn_blocking(move || Engine::open(&location, limits, opening_world, metrics));
        let engine = opened.await.map_err(|panic| OpenError::Damaged(panic.to_string()))??;
        gauges::register(&registry, engine.shared());
        let services = Arc::new(Services {
            engine,
            member: options.member,
            progress_interval: options.progress_interval,
        });
        let router = Arc::new(Router::new(services.clone(), registry));
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        let mut addresses = Vec::new();
        let mut connections = auto::Builder::new(TokioExecutor::new());
        connections.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
        connections
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(options.max_concurrent_streams);
        if let Some((interval, timeout)) = options.keep_alive {
            connections.http2().keep_alive_interval(interval).keep_alive_timeout(timeout);
        }
        for (address, listener, config) in listeners {
            addresses.push(address);
            let acceptor = Acceptor {
                router: router.clone(),
                tls: config.map(TlsAcceptor::from),
                connections: connections.clone(),
                stop: stop.subscribe(),
            };
            tasks.spawn(acceptor.run(listener));
        }
        let (expiring, expiring_world) = (services.clone(), world.clone());
        tasks.spawn(async move { expire_leases(&expiring.engine, &expiring_world).await });
        if let Some(retention) = options.retention {
            let compacting = services.clone();
            tasks.spawn(async move { auto_compaction::run(&compacting.engine, retention, &world).await });
        }
        Ok(Self { services, addresses, stop, tasks })
    }

    /// The addresses, in the order of the options, with the ports that the system has chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn revision(&self) -> i64 {
        self.services.engine.shared().state.read().revision
    }

    /// Resolves if the file fails: the server takes no writes from then on.
    pub async fn failed(&self) -> Error {
        let mut fault = self.services.engine.shared().follow_fault();
        // the sender lives as long as the store
        let failed = fault.wait_for(Option::is_some).await;
        failed.ok().and_then(|it| it.clone()).unwrap_or(Error::Stopped)
    }

    /// Ends the connections, and closes the file once the writes that wait are durable.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // watches end; writes that wait are still answered
        self.services.engine.shared().fault.send_replace(Some(Error::Stopped));
        // the receivers are those of listeners and connections, which take a little less than that to end
        let _ = env::io::timeout(2 * STOP_TIMEOUT, self.stop.closed()).await;
        self.services.engine.close().await;
        self.tasks.shutdown().await;
    }
}

/// Accepts the connections of one listener.
#[derive(Clone)]
struct Acceptor {
    router: Arc<Router>,
    tls: Option<TlsAcceptor>,
    connections: auto::Builder<TokioExecutor>,
    stop: watch::Receiver<bool>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let mut running = JoinSet::new();
        loop {
            while running.try_join_next().is_some() {}
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    running.spawn(self.clone().connection(stream));
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    env::io::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while running.join_next().await.is_some() {}
    }

    async fn connection(self, stream: TcpStream) {
        // a small answer is not to wait for more
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve(stream).await,
            Some(tls) => match env::io::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve(stream).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            },
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let router = self.router.clone();
        let service = service_fn(move |request| {
            let router = router.clone();
            async move { router.respond(request).await }
        });
        let io = TokioIo::new(LenientAuthority::new(stream));
        let mut serving = std::pin::pin!(self.connections.serve_connection(io, service));
        let mut stop = self.stop.clone();
        tokio::select! {
            // the client may close the connection in any way
            _ = serving.as_mut() => return,
            _ = stop.wait_for(|stop| *stop) => {}
        }
        serving.as_mut().graceful_shutdown();
        let _ = env::io::timeout(STOP_TIMEOUT, serving).await;
    }
}

/// Ends leases when their time has come.
async fn expire_leases(engine: &Engine, world: &World) {
    let shared = engine.shared();
    loop {
        let next = shared.leases.lock().next_end();
        let changed = shared.leases_changed.notified();
        match next {
            None => changed.await,
            Some(at) => tokio::select! {
                () = env::sleep_until(world, at) => {}
                () = changed => continue,
            },
        }
        let expired = shared.leases.lock().expired(world.elapsed());
        for id in expired {
            match engine.write(move |writer| writer.expire_lease(id)).await {
                Ok(true) => shared.metrics.leases_revoked.inc(),
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }
}
