//! The controller against a simulated server: thousands of changes, with watches that break and writes that fail. The
//! clock advances only while all tasks wait, so that a change that is mirrored by a timer only is detected.

use super::*;
use bytes::Bytes;
use client::{Body, Client};
use env::{Seeded, World, random_u64};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Poll, Waker, ready as poll_ready};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

const ROUNDS: usize = 10_000;
const SERVICES: u64 = 7;
/// One in so many events breaks a watch, and one in so many writes fails.
const BREAKS: u64 = 40;
const FAILS: u64 = 25;

#[derive(Clone)]
struct Server {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    world: World,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// By plural and name.
    objects: BTreeMap<(String, String), Value>,
    /// Plural, revision and line of all events.
    log: Vec<(String, u64, Bytes)>,
    watches: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
}

enum Answer {
    Whole(Option<Bytes>),
    Watch(mpsc::UnboundedReceiver<Bytes>),
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut *self {
            Answer::Whole(whole) => whole.take(),
            Answer::Watch(lines) => poll_ready!(lines.poll_recv(cx)),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Server {
    fn draws(&self, one_in: u64) -> bool {
        random_u64(&self.world).is_multiple_of(one_in)
    }

    /// Stores or removes an object, and sends the event to the watches.
    fn store(&self, plural: &str, name: &str, object: Option<Value>) -> Value {
        let mut state = self.state.lock();
        state.revision += 1;
        let (revision, key) = (state.revision, (plural.to_owned(), name.to_owned()));
        let old = state.objects.remove(&key);
        let kind = match (&old, &object) {
            (_, None) => "DELETED",
            (None, _) => "ADDED",
            _ => "MODIFIED",
        };
        let mut now = object.clone().or(old).unwrap();
        now["metadata"]["resourceVersion"] = revision.to_string().into();
        if object.is_some() {
            state.objects.insert(key, now.clone());
        }
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": now})));
        state.log.push((plural.to_owned(), revision, line.clone()));
        let broken = self.draws(BREAKS);
        state.watches.retain(|(of, watch)| of != plural || !broken && watch.send(line.clone()).is_ok());
        self.changed.notify_one();
        now
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> Response<Answer> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let at = parts.iter().position(|part| ["services", "endpoints", "endpointslices"].contains(part));
        let Some(at) = at else { return text(json!({"metadata": {}})) };
        let (plural, name) = (parts[at], parts.get(at + 1).copied().unwrap_or(""));
        let since = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        match (method, since) {
            (&Method::GET, Some(since)) if query.contains("watch=") => {
                let since: u64 = since.parse().unwrap();
                let mut state = self.state.lock();
                let (sender, lines) = mpsc::unbounded_channel();
                for (_, _, line) in state.log.iter().filter(|it| it.0 == plural && it.1 > since) {
                    sender.send(line.clone()).unwrap();
                }
                state.watches.push((plural.to_owned(), sender));
                return Response::new(Answer::Watch(lines));
            }
            (&Method::GET, _) => {
                let state = self.state.lock();
                let items: Vec<&Value> =
                    state.objects.iter().filter(|(key, _)| key.0 == plural).map(|(_, it)| it).collect();
                let version = state.revision.to_string();
                return text(json!({"metadata": {"resourceVersion": version}, "items": items}));
            }
            _ if self.draws(FAILS) => return failure(if self.draws(2) { 409 } else { 500 }),
            _ => {}
        }
        let known = self.state.lock().objects.get(&(plural.to_owned(), name.to_owned())).cloned();
        match *method {
            Method::POST => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                let prefix = object["metadata"]["generateName"].as_str().unwrap();
                let name = format!("{prefix}{:x}", random_u64(&self.world));
                object["metadata"]["name"] = name.clone().into();
                object["metadata"]["uid"] = name.clone().into();
                text(self.store(plural, &name, Some(object)))
            }
            Method::PUT => {
                let object: Value = serde_json::from_slice(body).unwrap();
                let version = |it: &Value| it["metadata"]["resourceVersion"].clone();
                match known {
                    None => failure(404),
                    Some(known) if version(&known) != version(&object) => failure(409),
                    Some(_) => text(self.store(plural, name, Some(object))),
                }
            }
            Method::DELETE if known.is_some() => text(self.store(plural, name, None)),
            _ => failure(404),
        }
    }

    /// The addresses in the slices of a service, in order.
    fn mirrored(&self, service: &str) -> Vec<String> {
        let state = self.state.lock();
        let slices = state.objects.iter().filter(|(key, _)| key.0 == "endpointslices").map(|(_, it)| it);
        let slices = slices.filter(|it| it["metadata"]["labels"]["kubernetes.io/service-name"] == service);
        let endpoints = slices.flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
        let mut all: Vec<String> =
            endpoints.map(|it| it["addresses"][0].as_str().unwrap().to_owned()).collect();
        all.sort();
        all
    }
}

fn text(json: Value) -> Response<Answer> {
    Response::new(Answer::Whole(Some(json.to_string().into())))
}

fn failure(code: u16) -> Response<Answer> {
    let status = json!({"kind": "Status", "status": "Failure", "message": "", "reason": "", "code": code});
    let mut response = text(status);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Answer>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default();
        ready(Ok(self.answer(&parts.method, parts.uri.path(), query, &bytes(body))))
    }
}

/// The content of a body, which is one frame.
fn bytes(mut body: Body) -> Bytes {
    let mut context = std::task::Context::from_waker(Waker::noop());
    match http_body::Body::poll_frame(Pin::new(&mut body), &mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap(),
        _ => Bytes::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_changes_are_mirrored_without_waiting_for_a_timer() {
    let seed = 15;
    let world: World = Seeded::new(0, seed);
    let server = Server { state: Arc::default(), changed: Arc::default(), world: world.clone() };
    for nth in 0..SERVICES {
        let name = format!("s{nth}");
        server.store(
            "services",
            &name,
            Some(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {}})),
        );
    }
    let context = Context::new(Client::new(server.clone()), world.clone(), Names::kubernetes());
    let controller = tokio::spawn(run(context, slices::Options::with(MOST)));
    let mut latest = Duration::ZERO;
    for round in 0..ROUNDS {
        let name = format!("s{}", random_u64(&world) % SERVICES);
        // up to three addresses, or none
        let count = random_u64(&world) % 4;
        let mut expected: Vec<String> =
            (0..count).map(|nth| format!("10.{nth}.{}.1", random_u64(&world) % 250)).collect();
        expected.sort();
        let addresses: Vec<Value> = expected.iter().map(|ip| json!({"ip": ip})).collect();
        let exists = server.state.lock().objects.contains_key(&("endpoints".to_owned(), name.clone()));
        if expected.is_empty() && exists {
            server.store("endpoints", &name, None);
        } else if !expected.is_empty() {
            let metadata = json!({"name": name, "namespace": "ns", "uid": name});
            let subsets = json!([{"addresses": addresses, "ports": [{"port": 80}]}]);
            server.store("endpoints", &name, Some(json!({"metadata": metadata, "subsets": subsets})));
        }
        let began = Instant::now();
        while server.mirrored(&name) != expected {
            let waited = tokio::time::timeout(Duration::from_secs(60), server.changed.notified()).await;
            assert!(waited.is_ok(), "seed {seed}, round {round}: {name} is not {expected:?}");
        }
        latest = latest.max(began.elapsed());
        // failures share a rate limit
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    controller.abort();
    // a failed write is retried after milliseconds; nothing else waits
    assert!(latest < Duration::from_secs(1), "seed {seed}: one change was mirrored after {latest:?}");
}
