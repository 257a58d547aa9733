//! Webhooks that undo each other's changes, and webhooks that cause the requests that they review.

use super::admission_webhooks::{MUTATING, VALIDATING, allow, configure, hook, map, message, patch, with};
use super::*;
use std::sync::{Arc, OnceLock, Weak};
use tests::{Cluster, HttpsServer, Protocol, Reply};

#[tokio::test]
async fn webhooks_that_undo_each_other_terminate() {
    let server = HttpsServer::start(|seen| {
        let who = seen.path.split('?').next().unwrap().trim_start_matches('/');
        patch(seen, json!([{"op": "add", "path": "/data/turn", "value": who}]))
    })
    .await;
    let cluster = Cluster::start().await;
    let again =
        |name: &str| with(hook(&server, name, &format!("/{name}")), "reinvocationPolicy", json!("IfNeeded"));
    configure(&cluster, MUTATING, "quarrel", vec![again("a"), again("b")]).await;
    let created = cluster.create(CONFIGMAPS, map("m")).await;
    let turns: Vec<String> =
        server.requests().iter().map(|seen| seen.path.split('?').next().unwrap().to_owned()).collect();
    assert_eq!(turns, ["/a", "/b", "/a", "/b"], "each once more, and no more");
    assert_eq!(created["data"]["turn"], "b", "the last word stays");
    // the same for a change
    cluster.patch(&format!("{CONFIGMAPS}/m"), json!({"data": {"turn": "c"}})).await.code(200);
    assert_eq!(server.count(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_causes_its_own_request_times_out() {
    let there: Arc<OnceLock<Weak<Cluster>>> = Arc::default();
    let reached = there.clone();
    let server = HttpsServer::start(move |seen| {
        let reached = reached.clone();
        let write = move || -> tests::SideEffect {
            let cluster = reached.get().and_then(Weak::upgrade);
            Box::pin(async move {
                let Some(cluster) = cluster else { return };
                let path = format!("{CONFIGMAPS}/m");
                let change = json!({"metadata": {"annotations": {"seen": "again"}}});
                let _ = cluster.patch(&path, change).protocol(Protocol::Http1).attempt().await;
            })
        };
        Reply::After(Arc::new(write), Box::new(allow(seen)))
    })
    .await;
    let cluster = Arc::new(Cluster::start().await);
    cluster.create(CONFIGMAPS, map("m")).await;
    there.set(Arc::downgrade(&cluster)).unwrap();
    let hasty = with(hook(&server, "a", "/"), "timeoutSeconds", json!(1));
    configure(&cluster, VALIDATING, "loop", vec![hasty]).await;
    let path = format!("{CONFIGMAPS}/m");
    let change = cluster.patch(&path, json!({"data": {"k": "w"}}));
    let others = async {
        // no other request waits for it
        for nth in 0..20 {
            cluster.named(SECRETS, &format!("s{nth}")).await;
        }
        cluster.answers().await;
    };
    let (refused, ()) = tokio::join!(change, others);
    let refused = refused.refused(500, "InternalError");
    assert!(message(&refused).ends_with("context deadline exceeded"), "{refused}");
    assert!(server.count() > 1, "it reviewed its own writes");
    // deleting the webhook ends it
    cluster.delete(&format!("{VALIDATING}/loop")).await.code(200);
    let changed = cluster.patch(&path, json!({"data": {"k": "w"}})).await.code(200).json();
    assert_eq!(changed["data"]["k"], "w");
}
