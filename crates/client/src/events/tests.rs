use super::*;
use crate::client::Body;
use env::Simulated;
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// A server that holds requests until it is released, and can be away.
#[derive(Clone, Default)]
struct EventServer {
    bodies: Arc<Mutex<Vec<serde_json::Value>>>,
    most_at_once: Arc<AtomicUsize>,
    at_once: Arc<AtomicUsize>,
    is_held: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
}

impl Service<Request<Body>> for EventServer {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            if server.is_away.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("away"));
            }
            let at_once = server.at_once.fetch_add(1, Ordering::Relaxed) + 1;
            server.most_at_once.fetch_max(at_once, Ordering::Relaxed);
            while server.is_held.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            server.at_once.fetch_sub(1, Ordering::Relaxed);
            let bytes = request.into_body().collect().await.unwrap_or_default().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            server.bodies.lock().push(body);
            Ok(Response::new(Body::from(bytes)))
        })
    }
}

async fn settle() {
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
}

fn about(uid: usize) -> ObjectReference {
    let (name, uid) = (format!("p{uid}"), uid.to_string());
    ObjectReference { name, uid, namespace: "n".to_owned(), ..ObjectReference::default() }
}

#[tokio::test]
async fn many_events_are_written_at_once_and_none_is_lost() {
    let (server, world) = (EventServer::default(), Simulated::new(0, 1));
    server.is_held.store(true, Ordering::Relaxed);
    let recorder = Recorder::new(Client::new(server.clone()), world.clone(), "c");
    for pod in 0..50 {
        for reason in ["Pulled", "Created", "Started", "Killing"] {
            recorder.record_about(about(pod), EventType::Normal, reason, "m");
        }
    }
    settle().await;
    server.is_held.store(false, Ordering::Relaxed);
    settle().await;
    assert_eq!(server.bodies.lock().len(), 200);
    assert_eq!(server.most_at_once.load(Ordering::Relaxed), 16);
}

#[tokio::test]
async fn occurrences_during_a_request_are_one_further_request() {
    let (server, world) = (EventServer::default(), Simulated::new(0, 1));
    server.is_held.store(true, Ordering::Relaxed);
    let recorder = Recorder::new(Client::new(server.clone()), world.clone(), "c");
    for _ in 0..5 {
        recorder.record_about(about(1), EventType::Warning, "BackOff", "m");
        settle().await;
    }
    server.is_held.store(false, Ordering::Relaxed);
    settle().await;
    let counts: Vec<i64> = server.bodies.lock().iter().map(|it| it["count"].as_i64().unwrap()).collect();
    assert_eq!(counts, [1, 5]);
    // events about one object come in order
    for reason in ["Pulled", "Created", "Started"] {
        recorder.record_about(about(2), EventType::Normal, reason, "m");
    }
    settle().await;
    let bodies = server.bodies.lock();
    let reasons: Vec<_> = bodies.iter().skip(2).map(|it| it["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["Pulled", "Created", "Started"]);
}

#[tokio::test]
async fn events_outlive_a_server_that_is_away() {
    let (server, world) = (EventServer::default(), Simulated::new(0, 1));
    server.is_away.store(true, Ordering::Relaxed);
    let recorder = Recorder::new(Client::new(server.clone()), world.clone(), "c");
    for pod in 0..40 {
        recorder.record_about(about(pod), EventType::Normal, "Started", "m");
    }
    for _ in 0..3 {
        settle().await;
        world.advance(Duration::from_secs(10));
    }
    assert_eq!(server.bodies.lock().len(), 0);
    server.is_away.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        settle().await;
        world.advance(Duration::from_secs(10));
    }
    settle().await;
    assert_eq!(server.bodies.lock().len(), 40);
}

#[tokio::test]
async fn events_that_are_gathered_are_sent_together_and_in_order() {
    let (server, world) = (EventServer::default(), Simulated::new(0, 1));
    let client = Client::new(server.clone());
    let recorder = Recorder::gathering(client, world.clone(), "c", "h", Duration::from_millis(100));
    let written = || server.bodies.lock().len();
    for pod in 0..3 {
        recorder.record_about(about(pod), EventType::Normal, "Pulled", "m");
        settle().await;
        world.advance(Duration::from_millis(30));
    }
    recorder.record_about(about(0), EventType::Normal, "Created", "m");
    settle().await;
    assert_eq!(written(), 0);
    world.advance(Duration::from_millis(10));
    settle().await;
    let reasons = |name: &str| {
        let bodies = server.bodies.lock();
        let of = bodies.iter().filter(|it| it["involvedObject"]["name"] == name);
        of.map(|it| it["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((written(), reasons("p0")), (4, vec!["Pulled".to_owned(), "Created".to_owned()]));
    // the next one waits again, unless no more can come
    recorder.record_about(about(0), EventType::Normal, "Started", "m");
    settle().await;
    assert_eq!(written(), 4);
    drop(recorder);
    settle().await;
    assert_eq!(written(), 5);
    // more objects than are waited for
    let client = Client::new(server.clone());
    let recorder = Recorder::gathering(client, world.clone(), "c", "h", Duration::from_millis(100));
    for pod in 0..300 {
        recorder.record_about(about(pod), EventType::Normal, "Killing", "m");
    }
    for _ in 0..10 {
        settle().await;
    }
    assert!((256 + 5..=305).contains(&written()), "{}", written());
}
