use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::WatchEvent;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// A server that says what it is told to say, one answer after the other.
struct Scripted {
    lists: Mutex<VecDeque<Vec<ConfigMap>>>,
    watches: Mutex<VecDeque<Vec<WatchEvent<ConfigMap>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Source<ConfigMap> for Arc<Scripted> {
    async fn list(&self, _: Option<&str>) -> Result<(Vec<ConfigMap>, String, Option<String>), kube::Error> {
        self.asked.lock().push("list".to_owned());
        let next = self.lists.lock().pop_front();
        match next {
            Some(objects) => Ok((objects, "100".to_owned(), None)),
            None => std::future::pending().await,
        }
    }

    async fn watch(
        &self,
        version: String,
    ) -> Result<
        impl futures_util::Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>> + Send,
        kube::Error,
    > {
        self.asked.lock().push(version);
        let next = self.watches.lock().pop_front();
        let events: Vec<_> = match next {
            Some(events) => events.into_iter().map(Ok).collect(),
            None => std::future::pending().await,
        };
        Ok(futures_util::stream::iter(events))
    }
}

fn object(name: &str, version: u32, label: &str) -> ConfigMap {
    let json = serde_json::json!({
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": version.to_string(), "labels": {"l": label}}
    });
    serde_json::from_value(json).unwrap()
}

fn gone() -> WatchEvent<ConfigMap> {
    let json = serde_json::json!({"status": "Failure", "message": "", "reason": "Expired", "code": 410});
    WatchEvent::Error(serde_json::from_value(json).unwrap())
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_in_order_and_what_was_missed_is_found_out() {
    let server = Arc::new(Scripted {
        lists: Mutex::new(
            [
                vec![object("a", 1, "x"), object("b", 2, "x")],
                // meanwhile a is gone, b has changed, c is new, and d is as it was
                vec![object("b", 7, "y"), object("c", 8, "x"), object("d", 5, "x")],
            ]
            .into(),
        ),
        watches: Mutex::new(
            [
                vec![WatchEvent::Modified(object("a", 101, "y")), WatchEvent::Added(object("d", 5, "x"))],
                vec![
                    WatchEvent::Deleted(object("b", 103, "x")),
                    WatchEvent::Added(object("b", 104, "x")),
                    gone(),
                ],
            ]
            .into(),
        ),
        asked: Arc::default(),
    });
    let informer = Informer::<ConfigMap>::new();
    informer.index("label", |object| object.labels().values().cloned().collect());
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = told.clone();
    informer.listen(move |change| {
        let sign = match change {
            Change::Added(_) => '+',
            Change::Updated { .. } => '~',
            Change::Removed(_) => '-',
        };
        tell.lock().push(format!("{sign}{}", change.object().name_any()));
    });
    let following = tokio::spawn(informer.clone().follow(server.clone()));
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
