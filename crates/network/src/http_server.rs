//! Plain HTTP for health checks and metrics: short answers, computed at once.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time.
const CONNECTION_LIMIT: usize = 100;
/// The pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer.
pub struct Answer {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: String,
}

impl Answer {
    pub fn text(body: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    pub fn json(status: StatusCode, body: String) -> Self {
        Self { status, content_type: "application/json", body }
    }

    pub fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, ..Self::text("404 page not found\n") }
    }
}

/// Answers a request for a path.
pub type Respond = Arc<dyn Fn(&str) -> Answer + Send + Sync>;

/// Opens a port; the unspecified address of IPv6 takes both families.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, respond: Respond) {
    let limit = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                env::io::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let respond = respond.clone();
        connections.spawn(async move {
            let _permit = permit;
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let answer = respond(request.uri().path());
                async move { Ok::<_, Infallible>(response(answer)) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // the error of a client that went away
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
