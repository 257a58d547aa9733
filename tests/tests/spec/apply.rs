//! "Server-side apply" for clients: conflicts, force, permission.

use super::admission_webhooks::{VALIDATING, allow, configure, hook, map, rule, with};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tests::{ApiRequest, Cluster, HttpsServer, Protocol, Reply, TestUser, authority};

const PATH: &str = "/api/v1/namespaces/default/configmaps/a";

fn apply<'c>(cluster: &'c Cluster, manager: &str, data: Value, query: &str) -> ApiRequest<'c> {
    let metadata = json!({"name": "a"});
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    let ask = cluster.patch(&format!("{PATH}?fieldManager={manager}{query}"), body);
    ask.content_type("application/apply-patch+yaml")
}

#[tokio::test]
async fn a_conflict_is_a_status_that_names_every_field_and_its_owner() {
    let cluster = Cluster::start().await;
    apply(&cluster, "one", json!({"a": "1", "b": "1", "c": "1"}), "").await.code(201);
    let before = cluster.read(PATH).await;
    let refused = apply(&cluster, "two", json!({"a": "2", "b": "2", "c": "1"}), "").await;
    let status = refused.refused(409, "Conflict");
    assert_eq!(
        status["message"],
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b"
    );
    let cause = |field: &str| json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": field});
    assert_eq!(status["details"]["causes"], json!([cause(".data.a"), cause(".data.b")]));
    assert_eq!(cluster.read(PATH).await, before, "nothing of it happened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_creates_what_is_deleted_and_changes_what_is_created_meanwhile() {
    let there: Arc<OnceLock<Weak<Cluster>>> = Arc::default();
    let is_first = Arc::new(AtomicBool::new(false));
    let (reached, first) = (there.clone(), is_first.clone());
    // while the first write is reviewed, another request deletes the object if it is there, and creates it otherwise
    let server = HttpsServer::start(move |seen| {
        if !first.swap(false, Ordering::SeqCst) {
            return allow(seen);
        }
        let reached = reached.clone();
        let write = move || -> tests::SideEffect {
            let cluster = reached.get().and_then(Weak::upgrade);
            Box::pin(async move {
                let Some(cluster) = cluster else { return };
                let deleted = cluster.delete(PATH).protocol(Protocol::Http1).await;
                if deleted.status == 404 {
                    cluster.post(CONFIGMAPS, map("a")).protocol(Protocol::Http1).await.code(201);
                }
            })
        };
        Reply::After(Arc::new(write), Box::new(allow(seen)))
    })
    .await;
    let cluster = Arc::new(Cluster::start().await);
    there.set(Arc::downgrade(&cluster)).unwrap();
    let writes = json!([rule(&["CREATE", "UPDATE"], "", "v1", "configmaps")]);
    configure(&cluster, VALIDATING, "other", vec![with(hook(&server, "a", "/"), "rules", writes)]).await;
    is_first.store(true, Ordering::SeqCst);
    let changed = apply(&cluster, "one", json!({"a": "1"}), "").await.code(200).json();
    assert_eq!(changed["data"], json!({"a": "1", "k": "v"}));
    is_first.store(true, Ordering::SeqCst);
    let created = apply(&cluster, "one", json!({"a": "2"}), "").await.code(201).json();
    assert_eq!(created["data"], json!({"a": "2"}));
    assert_ne!(created["metadata"]["uid"], changed["metadata"]["uid"]);
}

#[tokio::test]
async fn force_takes_over_conflicting_fields() {
    let cluster = Cluster::start().await;
    apply(&cluster, "one", json!({"a": "1", "b": "1"}), "").await.code(201);
    apply(&cluster, "two", json!({"a": "2"}), "&force=false").await.refused(409, "Conflict");
    let dry = apply(&cluster, "two", json!({"a": "2"}), "&force=true&dryRun=All").await.code(200).json();
    assert_eq!(dry["data"], json!({"a": "2", "b": "1"}));
    let taken = apply(&cluster, "two", json!({"a": "2"}), "&force=true").await.code(200).json();
    assert_eq!(taken["data"], json!({"a": "2", "b": "1"}));
    // now the first manager has a conflict, and its omitted fields stay
    apply(&cluster, "one", json!({"a": "1", "b": "1"}), "").await.refused(409, "Conflict");
    let left = apply(&cluster, "one", json!({"b": "1"}), "").await.code(200).json();
    assert_eq!(left["data"], json!({"a": "2", "b": "1"}));
    // force needs an apply, and an apply needs a manager
    let merge = cluster.patch(&format!("{PATH}?force=true"), json!({"data": {"a": "3"}})).await;
    assert_eq!(merge.refused(422, "Invalid")["details"]["causes"][0]["field"], "force");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let nameless = cluster.patch(PATH, body).content_type("application/apply-patch+yaml").await;
    assert_eq!(nameless.refused(422, "Invalid")["details"]["causes"][0]["field"], "fieldManager");
}

#[tokio::test]
async fn an_apply_needs_the_patch_permission() {
    let cluster = Cluster::start().await;
    let jane = TestUser::Certificate(authority().client("jane", "users"));
    let refused = apply(&cluster, "one", json!({"a": "1"}), "").user(&jane).await.refused(403, "Forbidden");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("User \"jane\" cannot patch resource \"configmaps\""), "{message}");
    cluster.get(PATH).await.refused(404, "NotFound");
}
