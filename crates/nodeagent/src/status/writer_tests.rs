//! Statuses while the API server is away.

use super::writer::StatusWriter;
use crate::pod::worker::StatusSink;
use api::core::v1::{Pod, PodStatus};
use client::{Body, Client, Informer};
use env::{Simulated, World};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A server that logs writes, and can be away.
#[derive(Clone, Default)]
struct PodServer {
    is_away: Arc<AtomicBool>,
    attempts: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<String>>>,
}

impl tower_service::Service<Request<Body>> for PodServer {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            server.attempts.fetch_add(1, Ordering::Relaxed);
            if server.is_away.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("connection refused"));
            }
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
            let sent: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            let line = match head.method {
                Method::PATCH => format!("{} {}", head.uri.path(), sent["status"]["phase"]),
                method => format!("{method} {}", head.uri.path()),
            };
            server.log.lock().push(line);
            Ok(Response::new(Body::from("{}")))
        })
    }
}

async fn pass(clock: &Simulated, time: Duration) {
    for _ in 0..time.as_secs() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn statuses_catch_up_after_ten_minutes_without_a_server() {
    let (server, clock) = (PodServer::default(), Simulated::new(1_700_000_000, 1));
    let world: World = clock.clone();
    let informer: Informer<Pod> = Informer::default();
    let pods: Vec<Arc<Pod>> = (0..3)
        .map(|at| {
            let text = format!(r#"{{"metadata":{{"name":"p{at}","namespace":"n","uid":"u{at}"}}}}"#);
            let pod: Pod = api::from_json(text.as_bytes()).unwrap();
            informer.apply(pod.clone());
            Arc::new(pod)
        })
        .collect();
    let writer = Arc::new(StatusWriter::new(
        Client::new(server.clone()),
        informer,
        &world,
        crate::stats::AgentMetrics::default(),
    ));
    let task = tokio::spawn(writer.clone().run());
    server.is_away.store(true, Ordering::Relaxed);
    for phase in ["Pending", "Running"] {
        for pod in &pods {
            writer.set(pod, &PodStatus { phase: phase.into(), ..PodStatus::default() }, false);
        }
        pass(&clock, Duration::from_secs(300)).await;
    }
    let attempts = server.attempts.load(Ordering::Relaxed);
    assert!((150..250).contains(&attempts), "{attempts} attempts in ten minutes");
    assert!(server.log.lock().is_empty());
    server.is_away.store(false, Ordering::Relaxed);
    pass(&clock, Duration::from_secs(11)).await;
    let mut log = server.log.lock().clone();
    log.sort();
    let path = |at: usize| format!("/api/v1/namespaces/n/pods/p{at}/status \"Running\"");
    assert_eq!(log, [path(0), path(1), path(2)]);
    task.abort();
}
