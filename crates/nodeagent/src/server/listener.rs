//! Ports and connections.

use super::body::Body;
use super::port::Port;
use super::routes;
use super::service::{ServerDeps, Service};
use super::tls::{Tls, TlsOptions};
use super::user::CertificateUser;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at a time.
const CONNECTION_LIMIT: usize = 1000;

/// The ports of the server.
pub struct ServerOptions {
    /// The main port, with TLS. The others are independent of it.
    pub address: Option<SocketAddr>,
    pub tls: TlsOptions,
    /// The port of health checks without TLS.
    pub healthz: Option<SocketAddr>,
    /// The port without TLS and authentication.
    pub read_only: Option<SocketAddr>,
}

/// Open ports.
pub struct Bound {
    main: Option<(TcpListener, Tls)>,
    healthz: Option<TcpListener>,
    read_only: Option<TcpListener>,
}

impl Bound {
    /// The addresses of the main port, of health checks and of the read-only port.
    #[cfg(test)]
    pub fn addresses(&self) -> [Option<SocketAddr>; 3] {
        let main = self.main.as_ref().map(|(listener, _)| listener);
        [main, self.healthz.as_ref(), self.read_only.as_ref()].map(|it| it?.local_addr().ok())
    }
}

/// Opens the ports and reads the certificates.
pub async fn bind(options: ServerOptions, world: &env::World) -> io::Result<Bound> {
    let listen = async |address: Option<SocketAddr>| match address {
        Some(address) => TcpListener::bind(address).await.map(Some),
        None => Ok(None),
    };
    Ok(Bound {
        main: match options.address {
            Some(address) => Some((TcpListener::bind(address).await?, Tls::new(&options.tls, world)?)),
            None => None,
        },
        healthz: listen(options.healthz).await?,
        read_only: listen(options.read_only).await?,
    })
}

/// Serves until it is dropped.
pub async fn serve(bound: Bound, deps: ServerDeps) {
    let service = Service::new(deps);
    let main = async {
        let Some((listener, tls)) = bound.main else { return std::future::pending().await };
        let tls = Arc::new(tls);
        accept(&listener, |tcp| {
            let (tls, service) = (tls.clone(), service.clone());
            async move {
                let acceptor = TlsAcceptor::from(tls.config.clone());
                let Ok(Ok(stream)) = env::io::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(tcp)).await else {
                    return;
                };
                let user = tls.user(stream.get_ref().1.peer_certificates().unwrap_or(&[]));
                serve_connection(stream, service, Port::Main, user).await;
            }
        })
        .await;
    };
    let plain = |listener: Option<TcpListener>, port: Port| {
        let service = service.clone();
        async move {
            let Some(listener) = listener else { return std::future::pending().await };
            accept(&listener, |tcp| serve_connection(tcp, service.clone(), port, CertificateUser::Absent))
                .await;
        }
    };
    tokio::join!(main, plain(bound.healthz, Port::Healthz), plain(bound.read_only, Port::ReadOnly));
}

/// Serves one connection within the process of the API server, which has authorized the requests.
pub async fn serve_in_process<S>(stream: S, deps: ServerDeps)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    serve_connection(stream, Service::new(deps), Port::InProcess, CertificateUser::Absent).await;
}

/// Accepts connections until the future is dropped, up to a limit at a time.
pub async fn accept<F>(listener: &TcpListener, handle: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let limit = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((tcp, _)) => {
                let _ = tcp.set_nodelay(true);
                let connection = handle(tcp);
                tokio::spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            // out of file descriptors: retrying at once would only spin
            Err(_) => env::io::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve_connection<S>(stream: S, service: Service, port: Port, user: CertificateUser)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let user = Arc::new(user);
    let handler = service_fn(move |request: Request<Incoming>| {
        let (service, user) = (service.clone(), user.clone());
        async move { Ok::<Response<Body>, Infallible>(routes::respond(&service, request, port, &user).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(250);
    // an error belongs to the connection
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), handler).await;
}
