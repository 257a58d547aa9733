//! gRPC servers at Unix sockets.

use grpc::lenient_authority::LenientAuthority;
use grpc::tonic::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// Connections at once; more wait. critest keeps two for each of its cases.
const MAX_CONNECTIONS: usize = 1024;

/// Listens at a path for processes of the same user; a socket that is left there is removed.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    Ok(listener)
}

/// Serves connections until the future is dropped; they end with it.
pub async fn serve<H, R>(listener: UnixListener, handler: H)
where
    H: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let service = service_fn(handler.clone());
                    let builder = http2::Builder::new(TokioExecutor::new());
                    connections.spawn(async move {
                        // a client may end its connection in any way
                        let _ = builder.serve_connection(TokioIo::new(LenientAuthority::new(stream)), service).await;
                    });
                }
                Err(why) => {
                    tracing::warn!(%why, "a connection to a socket of the agent failed");
                    env::io::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
