//! The HTTP port of `pintle dns`: metrics, health and readiness, at the paths of CoreDNS.

use http::StatusCode;
use metrics::Registry;
use network::http_server::{Answer, Respond, serve as serve_http};
use std::sync::Arc;
use tokio::net::TcpListener;

/// The pages, by path.
pub fn pages(registry: Arc<Registry>, is_ready: impl Fn() -> bool + Send + Sync + 'static) -> Respond {
    Arc::new(move |path| match path {
        "/metrics" => Answer::text(registry.text()),
        "/health" | "/healthz" | "/livez" => Answer::text("OK"),
        "/ready" | "/readyz" if is_ready() => Answer::text("OK"),
        "/ready" | "/readyz" => Answer {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Answer::text("the cluster's services are not read yet")
        },
        _ => Answer::not_found(),
    })
}

/// Serves for ever, if there is a listener.
pub async fn serve(listener: Option<TcpListener>, pages: Respond) {
    match listener {
        Some(listener) => serve_http(listener, pages).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn readiness_follows_the_server() {
        let ready = Arc::new(AtomicBool::new(false));
        let flag = ready.clone();
        let pages = pages(Arc::default(), move || flag.load(Ordering::SeqCst));
        let get = |path: &str| pages(path).status.as_u16();
        assert_eq!((get("/ready"), get("/health")), (503, 200));
        ready.store(true, Ordering::SeqCst);
        assert_eq!((get("/ready"), get("/metrics"), get("/other")), (200, 200, 404));
    }
}
