//! An API server that goes away and comes back: names are answered as they were, then as they have become.

use super::fixture::{ask, data, empty, service, slice};
use crate::dns::{ClusterInformers, ForwardOptions, Handler};
use api::Resource;
use api::core::v1::Namespace;
use bytes::Bytes;
use client::{Body, Client, json_value};
use futures_util::stream;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use http::{Request, Response};
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use names::Names;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Default)]
struct State {
    is_away: bool,
    version: u64,
    /// Versions up to this one are forgotten: a watch from there is refused.
    forgotten: u64,
    /// By collection and name.
    objects: BTreeMap<(String, String), Value>,
    /// Collection, version and line of all events.
    events: Vec<(String, u64, Bytes)>,
    watches: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
}

/// An API server that lists and watches.
#[derive(Clone, Default)]
struct ApiServer(Arc<Mutex<State>>);

impl ApiServer {
    fn put<K: Resource + api::Json>(&self, collection: &str, object: &K) {
        self.write(collection, object.name(), Some(json_value(object)));
    }

    fn delete(&self, collection: &str, name: &str) {
        self.write(collection, name, None);
    }

    fn write(&self, collection: &str, name: &str, object: Option<Value>) {
        let mut state = self.0.lock();
        state.version += 1;
        let version = state.version;
        let key = (collection.to_owned(), name.to_owned());
        let old = state.objects.remove(&key);
        let kind = match (&old, &object) {
            (_, None) => "DELETED",
            (None, Some(_)) => "ADDED",
            (Some(_), Some(_)) => "MODIFIED",
        };
        let mut shown = object.clone().or(old).unwrap();
        shown["metadata"]["resourceVersion"] = version.to_string().into();
        if object.is_some() {
            state.objects.insert(key, shown.clone());
        }
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": shown})));
        state.events.push((collection.to_owned(), version, line.clone()));
        state.watches.retain(|(watched, watch)| watched != collection || watch.send(line.clone()).is_ok());
    }

    /// Goes away: requests are refused, and watches end.
    fn leave(&self) {
        let mut state = self.0.lock();
        state.is_away = true;
        state.watches.clear();
    }

    fn come_back(&self, has_events: bool) {
        let mut state = self.0.lock();
        state.is_away = false;
        if !has_events {
            state.forgotten = state.version;
        }
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

fn answer(status: u16, lines: mpsc::UnboundedReceiver<Bytes>) -> Answer {
    let frames = stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        Some((Ok(Frame::data(line)), lines))
    });
    Response::builder().status(status).body(UnsyncBoxBody::new(StreamBody::new(frames))).unwrap()
}

impl tower_service::Service<Request<Body>> for ApiServer {
    type Response = Answer;
    type Error = io::Error;
    type Future = Ready<Result<Answer, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut state = self.0.lock();
        if state.is_away {
            return ready(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        let collection = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let (sender, lines) = mpsc::unbounded_channel();
        if !query.contains("watch=") {
            let items: Vec<_> = state
                .objects
                .iter()
                .filter(|((found, _), _)| *found == collection)
                .map(|(_, it)| it)
                .collect();
            let list = json!({"metadata": {"resourceVersion": state.version.to_string()}, "items": items});
            sender.send(Bytes::from(list.to_string())).unwrap();
            return ready(Ok(answer(200, lines)));
        }
        let from = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        let from: u64 = from.unwrap().parse().unwrap();
        if from < state.forgotten {
            let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
            sender.send(Bytes::from(gone.to_string())).unwrap();
            return ready(Ok(answer(410, lines)));
        }
        let missed =
            state.events.iter().filter(|(found, version, _)| *found == collection && *version > from);
        missed.for_each(|(_, _, line)| sender.send(line.clone()).unwrap());
        state.watches.push((collection, sender));
        ready(Ok(answer(200, lines)))
    }
}

fn endpoints(service: &str, addresses: &[&str]) -> api::discovery::v1::EndpointSlice {
    let endpoints: Vec<_> = addresses.iter().map(|address| (*address, "", Some(true))).collect();
    let mut slice = slice(&endpoints, &[("sql", "TCP", 5432)]);
    (slice.metadata.namespace, slice.metadata.name) = ("shop".to_owned(), format!("{service}-a"));
    let label = Names::kubernetes().well_known("service-name");
    slice.metadata.labels.insert(label, service.to_owned());
    slice
}

/// The addresses of a service, or the code of the answer.
async fn addresses(handler: &Handler, service: &str) -> String {
    let message = ask(handler, &format!("{service}.shop.svc.cluster.local"), RecordType::A).await;
    match message.metadata.response_code {
        ResponseCode::NoError => message.answers.iter().map(data).collect::<Vec<_>>().join(","),
        code => code.to_string(),
    }
}

async fn wait_for(handler: &Handler, service: &str, expected: &str) {
    let attempts = async {
        while addresses(handler, service).await != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // of a clock that stands still while there is work
    let is_reached = tokio::time::timeout(Duration::from_secs(60), attempts).await.is_ok();
    assert!(is_reached, "{service}: {} instead of {expected}", addresses(handler, service).await);
}

async fn follow(has_events: bool) {
    let server = ApiServer::default();
    let mut namespace = Namespace::default();
    namespace.metadata.name = "shop".to_owned();
    server.put("namespaces", &namespace);
    for name in ["db", "gone"] {
        server.put("services", &service("shop", name, &[], &[("sql", "TCP", 5432)]));
        server.put("endpointslices", &endpoints(name, &["10.244.0.7"]));
    }
    server.put("endpointslices", &endpoints("later", &["10.244.0.9"]));
    let cluster = empty(ForwardOptions::default());
    let client = Client::new(server.clone());
    let informers =
        ClusterInformers::start(&client, &cluster.records, &cluster.sources, &Names::kubernetes());
    informers.synced().await;
    let handler = &cluster.handler;
    assert_eq!(addresses(handler, "db").await, "10.244.0.7");
    // a slice without its service has no records
    assert_eq!(addresses(handler, "later").await, ResponseCode::NXDomain.to_string());
    server.put("endpointslices", &endpoints("db", &["10.244.0.8"]));
    wait_for(handler, "db", "10.244.0.8").await;

    server.leave();
    server.put("endpointslices", &endpoints("db", &["10.244.1.1"]));
    server.delete("services", "gone");
    server.delete("endpointslices", "gone-a");
    server.put("services", &service("shop", "later", &[], &[]));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(addresses(handler, "db").await, "10.244.0.8");
    assert_eq!(addresses(handler, "gone").await, "10.244.0.7");

    server.come_back(has_events);
    wait_for(handler, "db", "10.244.1.1").await;
    wait_for(handler, "gone", &ResponseCode::NXDomain.to_string()).await;
    wait_for(handler, "later", "10.244.0.9").await;
    // and it goes on following
    server.delete("endpointslices", "later-a");
    wait_for(handler, "later", "").await;
}

#[tokio::test(start_paused = true)]
async fn names_are_answered_while_the_api_server_is_away() {
    follow(true).await;
}

#[tokio::test(start_paused = true)]
async fn names_follow_a_server_that_forgot_what_changed() {
    follow(false).await;
}
