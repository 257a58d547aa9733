//! The HTTP port of `pintle dns`: metrics, health and readiness, at the paths of CoreDNS.

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::Registry;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const MAX_CONNECTIONS: usize = 100;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of the pages.
#[derive(Clone)]
pub struct Pages {
    pub registry: Arc<Registry>,
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Pages {
    fn content(&self, path: &str) -> (StatusCode, String) {
        match path {
            "/metrics" => (StatusCode::OK, self.registry.text()),
            "/health" | "/healthz" | "/livez" => (StatusCode::OK, "OK".to_owned()),
            "/ready" | "/readyz" if (self.is_ready)() => (StatusCode::OK, "OK".to_owned()),
            "/ready" | "/readyz" => {
                (StatusCode::SERVICE_UNAVAILABLE, "the cluster's services are not read yet".to_owned())
            }
            _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        }
    }
}

/// Serves for ever, if there is a listener.
pub async fn serve(listener: Option<TcpListener>, pages: Pages) {
    let Some(listener) = listener else { return std::future::pending().await };
    let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // out of file descriptors: retrying at once would only spin
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let handler = service_fn(move |request: Request<Incoming>| {
                let (status, text) = pages.content(request.uri().path());
                let mut response = Response::new(text);
                *response.status_mut() = status;
                async { Ok::<_, Infallible>(response) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            // an error belongs to the connection
            let _ = builder.serve_connection(TokioIo::new(stream), handler).await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn readiness_follows_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ready = Arc::new(AtomicBool::new(false));
        let flag = ready.clone();
        let is_ready = Arc::new(move || flag.load(Ordering::SeqCst));
        tokio::spawn(serve(Some(listener), Pages { registry: Arc::default(), is_ready }));
        let get = async |path: &str| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text.split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!(get("/ready").await, "503");
        assert_eq!(get("/health").await, "200");
        ready.store(true, Ordering::SeqCst);
        assert_eq!(get("/ready").await, "200");
        assert_eq!((get("/metrics").await, get("/other").await), ("200".to_owned(), "404".to_owned()));
    }
}
