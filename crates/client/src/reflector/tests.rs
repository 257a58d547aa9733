use super::*;
use crate::client::Body;
use crate::retry_after::RetryAfter;
use bytes::Bytes;
use env::{Seeded, Simulated, World};
use http::{Request, Response};
use http_body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_service::Service;

/// How a server fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Refused,
    TooMany,
    Internal,
    /// Watches end as soon as they have begun.
    Cut,
    /// Versions are too old for a watch as soon as they are listed.
    Forgotten,
}

const FAILURES: [Failure; 5] =
    [Failure::Refused, Failure::TooMany, Failure::Internal, Failure::Cut, Failure::Forgotten];

#[derive(Default)]
struct State {
    failure: Option<Failure>,
    /// The number of changes so far, which is the version.
    changes: u64,
    watches: Vec<mpsc::UnboundedSender<Bytes>>,
    requests: usize,
}

/// A server whose one object changes.
#[derive(Clone, Default)]
struct Flaky(Arc<Mutex<State>>);

impl Flaky {
    fn change(&self) -> u64 {
        let mut state = self.0.lock();
        state.changes += 1;
        let line = line(state.changes);
        state.watches.retain(|watch| watch.send(line.clone()).is_ok());
        state.changes
    }

    /// Fails from now on; watches that go on end, too.
    fn fail(&self, failure: Option<Failure>) {
        let mut state = self.0.lock();
        state.failure = failure;
        state.watches.clear();
    }
}

fn line(version: u64) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": "MODIFIED", "object": {"version": version}})))
}

/// The events of a watch.
struct Events(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

impl Service<Request<Body>> for Flaky {
    type Response = Response<Events>;
    type Error = io::Error;
    type Future = Ready<Result<Response<Events>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut state = self.0.lock();
        state.requests += 1;
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut answer = Response::builder();
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=");
        let status = |code: u16| {
            let status = json!({"status": "Failure", "message": "", "reason": "", "code": code});
            Bytes::from(status.to_string())
        };
        let failure = state.failure;
        match failure {
            Some(Failure::Refused) => return ready(Err(io::ErrorKind::ConnectionRefused.into())),
            Some(Failure::TooMany) => {
                answer = answer.status(429).header("retry-after", "1");
                sender.send(status(429)).unwrap();
            }
            Some(Failure::Internal) => {
                answer = answer.status(500);
                sender.send(status(500)).unwrap();
            }
            Some(Failure::Cut) if is_watch => {}
            Some(Failure::Forgotten) if is_watch => {
                answer = answer.status(410);
                sender.send(status(410)).unwrap();
            }
            _ if is_watch => {
                let from = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
                let from: u64 = from.unwrap().parse().unwrap();
                (from + 1..=state.changes).for_each(|version| sender.send(line(version)).unwrap());
                state.watches.push(sender);
            }
            _ => {
                let list = json!({"metadata": {"resourceVersion": state.changes.to_string()}, "items": []});
                sender.send(Bytes::from(list.to_string())).unwrap();
            }
        }
        ready(Ok(answer.body(Events(receiver)).unwrap()))
    }
}

/// Remembers the newest version.
#[derive(Clone)]
struct Newest(Arc<tokio::sync::watch::Sender<u64>>);

impl Sink for Newest {
    fn list_page(&self, text: &[u8], _: &mut HashSet<Key>) -> Result<Page, Error> {
        page::<api::Value>(text).map(|(_, page)| page)
    }

    fn list_complete(&self, _: HashSet<Key>, version: &str) {
        self.0.send_replace(version.parse().unwrap());
    }

    fn watch_event(&self, line: &Bytes) -> Result<WatchProgress, Error> {
        let event: Value = serde_json::from_slice(line).unwrap();
        let version = event["object"]["version"].as_u64().unwrap();
        self.0.send_replace(version);
        Ok(WatchProgress::Reached(version.to_string()))
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_known_soon_after_the_server_answers_again() {
    const SEED: u64 = 16;
    let world: World = Simulated::new(0, SEED);
    let random = |below: u64| {
        let mut bytes = [0; 8];
        world.fill(&mut bytes);
        u64::from_le_bytes(bytes) % below
    };
    let (server, newest) = (Flaky::default(), Newest(Arc::new(tokio::sync::watch::Sender::new(0))));
    let clock: World = Seeded::new(0, SEED);
    let client = Client::new(RetryAfter::new(server.clone(), &clock)).in_world(&clock);
    let source =
        Source { client, path: "/api/v1/things".to_owned(), fields: String::new(), metadata_only: false };
    let following = tokio::spawn(list_and_watch(source, Box::new(newest.clone())));
    for round in 0..1000 {
        let mut failed = Vec::new();
        let busy_until = Instant::now() + Duration::from_millis(random(60_000));
        while Instant::now() < busy_until {
            let failure = FAILURES[random(FAILURES.len() as u64) as usize];
            failed.push(failure);
            server.fail(Some(failure));
            server.change();
            tokio::time::sleep(Duration::from_millis(random(20_000))).await;
        }
        server.fail(None);
        let (last, answers_again) = (server.change(), Instant::now());
        newest.0.subscribe().wait_for(|known| *known == last).await.unwrap();
        let late = answers_again.elapsed();
        assert!(late <= Duration::from_millis(1100), "seed {SEED}, round {round}: {late:?} after {failed:?}");
    }
    // requests to a failing server are bounded
    for failure in FAILURES {
        server.fail(Some(failure));
        let before = server.0.lock().requests;
        tokio::time::sleep(Duration::from_secs(100)).await;
        let requests_sent = server.0.lock().requests - before;
        assert!((80..=220).contains(&requests_sent), "{failure:?}: {requests_sent} requests");
    }
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_repeated_by_the_clock_of_the_component() {
    let (server, newest) = (Flaky::default(), Newest(Arc::new(tokio::sync::watch::Sender::new(0))));
    let clock = Simulated::new(0, 7);
    let world: World = clock.clone();
    let client = Client::new(server.clone()).in_world(&world);
    let source =
        Source { client, path: "/api/v1/things".to_owned(), fields: String::new(), metadata_only: false };
    server.fail(Some(Failure::Internal));
    let following = tokio::spawn(list_and_watch(source, Box::new(newest)));
    for requests in 1..5 {
        while clock.next_deadline().is_none() {
            tokio::task::yield_now().await;
        }
        // the clock of the machine has no part in it
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(server.0.lock().requests, requests);
        clock.advance_to(clock.next_deadline().unwrap());
    }
    following.abort();
}
