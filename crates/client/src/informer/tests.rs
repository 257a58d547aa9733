use super::*;
use crate::client::{Body, Client};
use crate::factory::InformerFactory;
use crate::reflector::{Source, list_and_watch};
use crate::shared_objects::SharedObjects;
use api::core::v1::ConfigMap;
use api::{from_json, to_json};
use http::{Request, Response};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_service::Service;

/// A server with prepared answers; after the last one it does not answer any more.
#[derive(Clone, Default)]
struct Scripted {
    lists: Arc<Mutex<VecDeque<Vec<ConfigMap>>>>,
    watches: Arc<Mutex<VecDeque<Vec<String>>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn answer(&self, query: &str) -> Option<String> {
        let version = query.split('&').find_map(|it| it.strip_prefix("resourceVersion="));
        self.requests.lock().push(version.unwrap_or("list").to_owned());
        if version.is_some() {
            let events = self.watches.lock().pop_front()?;
            return Some(events.concat());
        }
        let items = self.lists.lock().pop_front()?;
        let items: Vec<_> = items.iter().map(|item| String::from_utf8(to_json(item)).unwrap()).collect();
        Some(format!(r#"{{"metadata":{{"resourceVersion":"100"}},"items":[{}]}}"#, items.join(",")))
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
    from_json(json.to_string().as_bytes()).unwrap()
}

fn script<T>(answers: impl Into<VecDeque<T>>) -> Arc<Mutex<VecDeque<T>>> {
    Arc::new(Mutex::new(answers.into()))
}

/// A line of a watch.
fn event(type_: &str, object: &ConfigMap) -> String {
    format!("{{\"type\":\"{type_}\",\"object\":{}}}\n", String::from_utf8(to_json(object)).unwrap())
}

fn expired() -> String {
    let status = serde_json::json!({"status": "Failure", "message": "", "reason": "Expired", "code": 410});
    format!("{}\n", serde_json::json!({"type": "ERROR", "object": status}))
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_in_order_and_a_new_list_yields_the_missed_ones() {
    let server = Scripted {
        lists: script([
            vec![object("a", 1, "x"), object("b", 2, "x")],
            // meanwhile a is gone, b has changed, c is new, and d is as it was
            vec![object("b", 7, "y"), object("c", 8, "x"), object("d", 5, "x")],
        ]),
        watches: script([
            vec![event("MODIFIED", &object("a", 101, "y")), event("ADDED", &object("d", 5, "x"))],
            vec![event("DELETED", &object("b", 103, "x")), event("ADDED", &object("b", 104, "x")), expired()],
        ]),
        requests: Arc::default(),
    };
    let informer = Informer::<ConfigMap>::default();
    informer.index("label", |object| object.metadata.labels.values().cloned().collect());
    let changes: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = changes.clone();
    informer.listen(move |change| {
        let sign = match change {
            Change::Added(_) => '+',
            Change::Updated { .. } => '~',
            Change::Deleted(_) => '-',
        };
        received.lock().push(format!("{sign}{}", change.object().name()));
    });
    let client = Client::new(server.clone());
    let source =
        Source { client, path: "/api/v1/configmaps".to_owned(), fields: String::new(), metadata_only: false };
    let following = tokio::spawn(list_and_watch(source, Box::new(informer.clone())));
    informer.synced().await;
    while server.requests.lock().len() < 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // both watches, the list made anew, and a watch from there
    assert_eq!(*server.requests.lock(), ["list", "100", "5", "list", "100"]);
    assert_eq!(*changes.lock(), ["+a", "+b", "~a", "+d", "-b", "+b", "~b", "+c", "-a"]);
    let names = |mut found: Vec<Arc<ConfigMap>>| {
        found.sort_by(|a, b| a.name().cmp(b.name()));
        found.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(informer.by("label", "x")), ["c", "d"]);
    assert_eq!(names(informer.by("label", "y")), ["b"]);
    assert_eq!(names(informer.in_namespace("ns")), ["b", "c", "d"]);
    assert!(informer.in_namespace("other").is_empty() && informer.by("none", "x").is_empty());
    following.abort();
}

#[tokio::test]
async fn factories_that_share_objects_hold_one_of_each_event() {
    let objects = SharedObjects::default();
    // the second has a selector that begins to match
    let factories: Vec<_> = ["MODIFIED", "ADDED"]
        .into_iter()
        .map(|type_| {
            let server = Scripted {
                lists: script([vec![]]),
                watches: script([vec![event(type_, &object("a", 101, "x"))]]),
                requests: Arc::default(),
            };
            InformerFactory::new(Client::new(server).sharing(&objects))
        })
        .collect();
    let informers: Vec<_> = factories.iter().map(InformerFactory::informer::<ConfigMap>).collect();
    let mut held = Vec::new();
    for informer in &informers {
        informer.reached().wait_for(|it| it.version == 101).await.unwrap();
        held.push(informer.get(&Key::new("ns", "a")).unwrap());
    }
    assert!(Arc::ptr_eq(&held[0], &held[1]));
    factories.iter().for_each(InformerFactory::close);
}

/// Records what a follower receives.
#[derive(Default)]
struct Recorded(Mutex<Vec<String>>);

impl MetadataFollower for Recorded {
    fn put(&self, object: &ObjectMeta) {
        self.0.lock().push(format!("+{}", object.name));
    }

    fn gone(&self, object: &ObjectMeta) {
        self.0.lock().push(format!("-{}", object.name));
    }

    fn whole(&self, uids: &HashSet<String>) {
        let mut uids: Vec<_> = uids.iter().map(String::as_str).collect();
        uids.sort_unstable();
        self.0.lock().push(format!("={}", uids.join("")));
    }
}

#[test]
fn a_follower_of_metadata_receives_objects_that_do_not_decode_too() {
    let informer = Informer::<ConfigMap>::default();
    let text = |name: &str, version: u32, data: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"data":{data}}}"#
        )
    };
    let list = |items: &[String]| {
        let text = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, items.join(","));
        let mut all = HashSet::new();
        informer.list_page(text.as_bytes(), &mut all).unwrap();
        informer.list_complete(all, "9");
    };
    let event = |type_: &str, object: String| {
        let line = format!(r#"{{"type":"{type_}","object":{object}}}"#);
        informer.watch_event(&Bytes::from(line.into_bytes())).unwrap();
    };
    let [first, second] = [(); 2].map(|()| Arc::<Recorded>::default());
    let follow = |recorded: &Arc<Recorded>| -> Arc<dyn MetadataFollower> {
        let follower: Arc<dyn MetadataFollower> = recorded.clone();
        informer.follow_metadata(&follower);
        follower
    };
    let received = |recorded: &Recorded| std::mem::take(&mut *recorded.0.lock()).join(" ");
    let followed = follow(&first);
    assert_eq!(received(&first), "", "nothing is listed yet");
    list(&[text("a", 1, "{}"), text("b", 2, "7")]);
    assert_eq!((received(&first).as_str(), informer.len()), ("+b +a =ab", 1));
    event("MODIFIED", text("a", 10, "7"));
    event("MODIFIED", text("b", 11, "{}"));
    event("ADDED", text("c", 12, "{}"));
    event("DELETED", text("c", 13, "{}"));
    assert_eq!((received(&first).as_str(), informer.len()), ("+a +b +c -c", 1));
    let _second = follow(&second);
    assert_eq!(received(&second), "+b +a =ab");
    event("DELETED", text("a", 14, "7"));
    // b is gone, and another object has its name
    list(&[text("b", 20, "{}").replace(r#""uid":"b""#, r#""uid":"d""#)]);
    assert_eq!((received(&first).as_str(), received(&second).as_str()), ("-a +b =d", "-a +b =d"));
    drop((followed, first));
    event("ADDED", text("e", 21, "{}"));
    assert_eq!(received(&second), "+e");
}
