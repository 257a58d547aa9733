use super::*;
use crate::reflector::{Source, list_and_watch};
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_service::Service;

/// A server that says what it is told to say, one answer after the other. Once it has said everything it says nothing.
#[derive(Clone, Default)]
struct Scripted {
    lists: Arc<Mutex<VecDeque<Vec<ConfigMap>>>>,
    watches: Arc<Mutex<VecDeque<Vec<WatchEvent<ConfigMap>>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn answer(&self, query: &str) -> Option<String> {
        let version = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        self.asked.lock().push(version.unwrap_or("list").to_owned());
        if version.is_some() {
            let events = self.watches.lock().pop_front()?;
            return Some(events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect());
        }
        let items = self.lists.lock().pop_front()?;
        Some(serde_json::json!({"metadata": {"resourceVersion": "100"}, "items": items}).to_string())
    }
}

impl Service<Request<Body>> for Scripted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.answer(request.uri().query().unwrap_or_default()) {
            Some(text) => Box::pin(ready(Ok(Response::new(text.into_bytes().into())))),
            None => Box::pin(pending()),
        }
    }
}

fn object(name: &str, version: u32, label: &str) -> ConfigMap {
    let json = serde_json::json!({
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version.to_string(), "labels": {"l": label}}
    });
    serde_json::from_value(json).unwrap()
}

fn script<T>(answers: impl Into<VecDeque<T>>) -> Arc<Mutex<VecDeque<T>>> {
    Arc::new(Mutex::new(answers.into()))
}

fn gone() -> WatchEvent<ConfigMap> {
    let json = serde_json::json!({"status": "Failure", "message": "", "reason": "Expired", "code": 410});
    WatchEvent::Error(serde_json::from_value(json).unwrap())
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_in_order_and_what_was_missed_is_found_out() {
    let server = Scripted {
        lists: script([
            vec![object("a", 1, "x"), object("b", 2, "x")],
            // meanwhile a is gone, b has changed, c is new, and d is as it was
            vec![object("b", 7, "y"), object("c", 8, "x"), object("d", 5, "x")],
        ]),
        watches: script([
            vec![WatchEvent::Modified(object("a", 101, "y")), WatchEvent::Added(object("d", 5, "x"))],
            vec![
                WatchEvent::Deleted(object("b", 103, "x")),
                WatchEvent::Added(object("b", 104, "x")),
                gone(),
            ],
        ]),
        asked: Arc::default(),
    };
    let informer = Informer::<ConfigMap>::default();
    informer.index("label", |object| object.labels().values().cloned().collect());
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = told.clone();
    informer.listen(move |change| {
        let sign = match change {
            Change::Added(_) => '+',
            Change::Updated { .. } => '~',
            Change::Deleted(_) => '-',
        };
        tell.lock().push(format!("{sign}{}", change.object().name_any()));
    });
    let client = Client::new(server.clone(), "default");
    let source = Source { client, path: "/api/v1/configmaps".to_owned(), fields: String::new(), bare: false };
    let following = tokio::spawn(list_and_watch(source, Box::new(informer.clone())));
    informer.synced().await;
    while server.asked.lock().len() < 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // both watches, the list made anew, and a watch from there
    assert_eq!(*server.asked.lock(), ["list", "100", "5", "list", "100"]);
    assert_eq!(*told.lock(), ["+a", "+b", "~a", "+d", "-b", "+b", "~b", "+c", "-a"]);
    let names = |mut found: Vec<Arc<ConfigMap>>| {
        found.sort_by_key(|it| it.name_any());
        found.iter().map(|it| it.name_any()).collect::<Vec<_>>()
    };
    assert_eq!(names(informer.by("label", "x")), ["c", "d"]);
    assert_eq!(names(informer.by("label", "y")), ["b"]);
    assert_eq!(names(informer.in_namespace("ns")), ["b", "c", "d"]);
    assert!(informer.in_namespace("other").is_empty() && informer.by("none", "x").is_empty());
    following.abort();
}
