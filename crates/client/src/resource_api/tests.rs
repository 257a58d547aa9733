use super::*;
use crate::client::Body;
use crate::params::{background, of_uid, orphan, unchanged};
use api::apps::v1::Deployment;
use api::autoscaling::v1::Scale;
use api::core::v1::{Node, Pod};
use http::Response;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::json;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A server that records requests and answers each with the same status and body.
#[derive(Clone)]
struct Recording {
    status: u16,
    body: &'static str,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Service<Request<Body>> for Recording {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Recording { status, body, requests } = self.clone();
        Box::pin(async move {
            let (parts, sent) = request.into_parts();
            let sent = String::from_utf8(sent.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            let header = |name| parts.headers.get(name).map_or("", |it| it.to_str().unwrap());
            let (accept, content) = (header(ACCEPT), header(CONTENT_TYPE));
            let short = |it: &str| it.trim_start_matches("application/").to_owned();
            let line =
                [parts.method.as_str(), &parts.uri.to_string(), &short(accept), &short(content), &sent];
            requests.lock().push(line.join(" ").trim_end().to_owned());
            Ok(Response::builder().status(status).body(body.into()).unwrap())
        })
    }
}

fn server(status: u16, body: &'static str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let server = Recording { status, body, requests: Arc::default() };
    let requests = server.requests.clone();
    (Client::new(server), requests)
}

fn pod(name: &str) -> Pod {
    let json = json!({"metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7"}});
    from_json(json.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn verbs_build_their_requests() {
    let (client, requests) = server(200, "{}");
    let pods: Api<Pod> = Api::namespaced(&client, "ns");
    let sent = || requests.lock().pop().unwrap();
    const PODS: &str = "/api/v1/namespaces/ns/pods";

    pods.get("a").await.unwrap();
    assert_eq!(sent(), format!("GET {PODS}/a json"));
    Api::<Node>::all(&client).get("n").await.unwrap();
    assert_eq!(sent(), "GET /api/v1/nodes/n json");
    Api::<Deployment>::beside(&client, &pod("a")).get("system:x/y z").await.unwrap();
    assert_eq!(sent(), "GET /apis/apps/v1/namespaces/ns/deployments/system:x%2Fy%20z json");

    let params = ListParams::default().labels("a=b,c in (d,e)").fields("x!=y").limit(5).continue_token("t");
    pods.list(&params).await.unwrap();
    let selectors = "fieldSelector=x%21%3Dy&labelSelector=a%3Db%2Cc%20in%20%28d%2Ce%29";
    assert_eq!(sent(), format!("GET {PODS}?{selectors}&limit=5&continue=t json"));
    pods.watch(&ListParams::default(), "7").await.unwrap();
    let watch = "watch=true&timeoutSeconds=3600&allowWatchBookmarks=true&resourceVersion=7";
    assert_eq!(sent(), format!("GET {PODS}?{watch} json"));

    let written = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","#;
    pods.create(&pod("a")).await.unwrap();
    assert!(sent().starts_with(&format!("POST {PODS} json json {written}")));
    let rendered = Rendered::new(&pod("a"));
    for _ in 0..2 {
        pods.create_rendered(&rendered).await.unwrap();
        assert!(sent().starts_with(&format!("POST {PODS} json json {written}")));
    }
    pods.replace(&pod("a")).await.unwrap();
    assert!(sent().starts_with(&format!("PUT {PODS}/a json json {written}")));
    pods.replace_status(&pod("a")).await.unwrap();
    assert!(sent().starts_with(&format!("PUT {PODS}/a/status json json {written}")));

    pods.patch("a", &Patch::merge(json!({"x": null}))).await.unwrap();
    assert_eq!(sent(), format!("PATCH {PODS}/a json merge-patch+json {{\"x\":null}}"));
    pods.patch_status("a", &Patch::strategic(json!({}))).await.unwrap();
    assert_eq!(sent(), format!("PATCH {PODS}/a/status json strategic-merge-patch+json {{}}"));
    pods.patch("a", &Patch::apply("me", &pod("a"))).await.unwrap();
    let apply = "force=true&fieldManager=me json apply-patch+yaml";
    assert!(sent().starts_with(&format!("PATCH {PODS}/a?{apply} {written}")));

    pods.delete("a", &DeleteOptions::default()).await.unwrap();
    assert_eq!(sent(), format!("DELETE {PODS}/a json json {{}}"));
    let options = DeleteOptions { preconditions: Some(Box::new(unchanged(&pod("a")))), ..background() };
    pods.delete("a", &options).await.unwrap();
    let body = r#"{"preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Background"}"#;
    assert_eq!(sent(), format!("DELETE {PODS}/a json json {body}"));
    pods.delete_collection(&orphan(), &ListParams::default().labels("a").limit(3)).await.unwrap();
    let body = r#"{"propagationPolicy":"Orphan"}"#;
    assert_eq!(sent(), format!("DELETE {PODS}?labelSelector=a json json {body}"));
    assert_eq!(of_uid("u").uid.as_deref(), Some("u"));

    let scale = pods.get_subresource::<Scale>("a", "scale").await.unwrap();
    assert_eq!(sent(), format!("GET {PODS}/a/scale json"));
    pods.replace_subresource::<_, Scale>("a", "scale", &scale).await.unwrap();
    let start = r#"{"kind":"Scale","apiVersion":"autoscaling/v1""#;
    assert!(sent().starts_with(&format!("PUT {PODS}/a/scale json json {start}")));
}

#[tokio::test]
async fn metadata_is_requested_in_its_own_form() {
    let (client, requests) = server(200, "{}");
    let metadata = Api::metadata(&client, "/apis/a.b/v1/widgets");
    metadata.get("w").await.unwrap();
    metadata.list(&ListParams::default()).await.unwrap();
    Api::<Node>::all(&client).metadata_only().get("n").await.unwrap();
    let form = "json;as=PartialObjectMetadata";
    let expected = [
        format!("GET /apis/a.b/v1/widgets/w {form};g=meta.k8s.io;v=v1"),
        format!("GET /apis/a.b/v1/widgets {form}List;g=meta.k8s.io;v=v1"),
        format!("GET /api/v1/nodes/n {form};g=meta.k8s.io;v=v1"),
    ];
    assert_eq!(*requests.lock(), expected);
}

#[tokio::test]
async fn a_rendered_object_is_created_for_its_metadata() {
    let answer = r#"{"kind":"Pod","metadata":{"name":"a-1","resourceVersion":"8","managedFields":[{"manager":"m"}]},"spec":{"x":[]}}"#;
    let pods: Api<Pod> = Api::all(&server(201, answer).0);
    let created = pods.create_rendered(&Rendered::new(&pod(""))).await.unwrap();
    assert_eq!((&*created.name, &*created.resource_version), ("a-1", "8"));
    assert!(created.managed_fields.is_empty());
    let pods: Api<Pod> = Api::all(&server(201, "nonsense").0);
    assert!(matches!(pods.create_rendered(&Rendered::new(&pod("a"))).await, Err(Error::Decode(_))));
}

#[tokio::test]
async fn an_empty_name_is_no_request() {
    let (client, requests) = server(200, "{}");
    let pods: Api<Pod> = Api::namespaced(&client, "ns");
    assert!(matches!(pods.delete("", &DeleteOptions::default()).await, Err(Error::Request(_))));
    assert!(matches!(pods.replace(&Pod::default()).await, Err(Error::Request(_))));
    assert!(requests.lock().is_empty());
}

#[tokio::test]
async fn errors_carry_a_status() {
    let get = async |status, body| {
        let pods: Api<Pod> = Api::all(&server(status, body).0);
        pods.get_opt("a").await
    };
    let not_found = r#"{"kind":"Status","status":"Failure","message":"no","reason":"NotFound","code":404}"#;
    assert_eq!(get(404, not_found).await.unwrap(), None);
    assert_eq!(get(404, "404 page not found\n").await.unwrap(), None);
    let taken =
        r#"{"kind":"Status","status":"Failure","message":"it is there","reason":"AlreadyExists","code":409}"#;
    let error = get(409, taken).await.unwrap_err();
    assert!(error.is_conflict() && error.is_already_exists() && !error.is_not_found());
    assert_eq!(
        (error.message(), error.to_string()),
        ("it is there".into(), "it is there: AlreadyExists".into())
    );
    let error = get(502, "bad gateway").await.unwrap_err();
    assert!(error.is(502) && error.message() == "bad gateway");
    assert_eq!(get(503, "").await.unwrap_err().message(), "503 Service Unavailable");
    assert!(matches!(get(200, "nonsense").await, Err(Error::Decode(_))));
}
