//! Answers to every verb at every form of path, as upstream gives them.

use super::custom_resources::{define, definition, version as served};
use super::identity::issuing;
use super::parity_bodies::message;
use super::protobuf::envelope;
use super::*;
use http::Method;
use tests::{ApiResponse, Cluster, TestUser, authority};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Sends an object, or nothing where a method has no body.
async fn send(cluster: &Cluster, method: &str, path: &str, body: &Value) -> ApiResponse {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let ask = cluster.request(method.parse::<Method>().unwrap(), path);
    match method {
        "POST" | "PUT" | "PATCH" => ask.body(body.clone()).content_type(kind).await,
        _ => ask.await,
    }
}

#[tokio::test]
async fn a_custom_resource_answers_by_verb_and_not_by_path() {
    let cluster = Cluster::start().await;
    let mut version = served("v1", json!({"type": "object"}));
    version["subresources"] = json!({"status": {}});
    let created = define(&cluster, definition(&[version.clone()])).await;
    let group = created["spec"]["group"].as_str().unwrap().to_owned();
    let mut wide = definition(&[version]);
    wide["metadata"]["name"] = format!("wides.{group}").into();
    wide["spec"]["names"] = json!({"plural": "wides", "kind": "Wide"});
    wide["spec"]["scope"] = "Cluster".into();
    define(&cluster, wide).await;

    let body = |kind: &str, name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}});
    let base = format!("/apis/{group}/v1");
    let narrow = format!("{base}/namespaces/default/things");
    for (things, kind) in [(&*narrow, "Thing"), (&*format!("{base}/wides"), "Wide")] {
        cluster.create(things, body(kind, "x")).await;
        let sent = body(kind, "x");
        let cases = [
            ("PUT", "", 400, "name must be provided"),
            ("PATCH", "", 400, "name must be provided"),
            ("POST", "/x", 409, "already exists"),
            ("POST", "/other", 409, "\"x\" already exists"),
            ("OPTIONS", "/x", 405, " is not supported on resources of kind"),
            ("POST", "/x/status", 405, "create is not supported on resources of kind"),
            ("DELETE", "/x/status", 405, "delete is not supported on resources of kind"),
            ("GET", "/x/other", 404, "\"x\" not found"),
            ("GET", "/x/status/more", 200, ""),
            ("DELETE", "/x/status/more", 405, "delete is not supported on resources of kind"),
            ("PATCH", "/x/status/more", 200, ""),
        ];
        for (method, rest, code, words) in cases {
            let answer = send(&cluster, method, &format!("{things}{rest}"), &sent).await;
            assert_eq!(answer.status, code, "{method} {things}{rest}: {}", answer.text());
            if code > 299 {
                assert!(message(&answer).contains(words), "{method} {rest}: {}", answer.text());
            }
        }
        for rest in ["", "/x", "/x/status"] {
            cluster.request(Method::HEAD, &format!("{things}{rest}")).await.code(200);
        }
        cluster.request(Method::HEAD, &format!("{things}/none")).await.code(404);
        // the body has the name
        send(&cluster, "POST", &format!("{things}/y"), &body(kind, "z")).await.code(201);
        cluster.get(&format!("{things}/z")).await.code(200);
        cluster.get(&format!("{things}/y")).await.code(404);
    }
    // the wrong scope is no path at all, whatever follows
    for path in
        ["things/x", "things/x/status", "namespaces/default/wides/x", "namespaces/default/wides/x/status"]
    {
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let answer =
                send(&cluster, method, &format!("{base}/{path}"), &body("Thing", "x")).await.code(404);
            assert_eq!(answer.text(), "404 page not found\n", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_old_path_of_a_watch_does_nothing_else() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "c").await;
    let watch = "/api/v1/watch/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "c"}, "data": {"k": "v"}});
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        for path in [watch.to_owned(), format!("{watch}/c")] {
            send(&cluster, method, &path, &body).await.code(405);
        }
    }
    assert!(cluster.read(&format!("{CONFIGMAPS}/c")).await["data"].is_null());
}

#[tokio::test]
async fn a_path_with_an_empty_first_segment_is_nothing() {
    let cluster = Cluster::start().await;
    for method in ["GET", "POST", "OPTIONS"] {
        let answer = send(&cluster, method, "//api/v1/namespaces", &json!({})).await.code(404);
        assert_eq!(answer.text(), "404 page not found\n", "{method}");
    }
    // a name that cannot be one counts where the path is served
    send(&cluster, "GET", &format!("{CONFIGMAPS}/../secrets"), &json!({})).await.code(404);
    send(&cluster, "OPTIONS", &format!("{CONFIGMAPS}/.."), &json!({})).await.code(405);
    send(&cluster, "GET", &format!("{CONFIGMAPS}/.."), &json!({})).await.code(400);
}

#[tokio::test]
async fn an_object_that_a_connection_needs_is_called_by_the_resource_of_the_request() {
    let cluster = Cluster::start().await;
    let mut pod = pod("p");
    pod["spec"]["nodeName"] = "node-1".into();
    cluster.create(PODS, pod).await;
    for sub in ["exec?command=a&timeout=x", "log", "attach", "portforward"] {
        let missing = cluster.get(&format!("{PODS}/p/{sub}")).await.code(404).json();
        assert_eq!(missing["message"], "pods \"node-1\" not found", "{sub}");
        assert_eq!(missing["details"], json!({"name": "node-1", "kind": "pods"}), "{sub}");
    }
    let proxy = "/api/v1/namespaces/default/services/s/proxy/x";
    let missing = cluster.get(proxy).await.code(404).json();
    assert_eq!(missing["message"], "services \"s\" not found");
    // a proxy has more methods than other paths
    for method in ["HEAD", "OPTIONS"] {
        send(&cluster, method, proxy, &json!({})).await.code(404);
        send(&cluster, method, &format!("{PODS}/p/exec"), &json!({})).await.code(405);
    }
    for path in [format!("{proxy}?dryRun=All"), format!("{PODS}/p/exec?dryRun=")] {
        let refused = cluster.get(&path).await.code(400).json();
        assert_eq!(refused["message"], "dryRun is not supported");
    }
}

#[tokio::test]
async fn the_old_path_of_a_watch_takes_selectors_of_its_own_object_alone() {
    let cluster = Cluster::start().await;
    let watch = "/api/v1/watch/namespaces/default/configmaps/c?timeoutSeconds=1";
    for selector in ["metadata.namespace%3Ddefault", "metadata.name%3Dd", "metadata.name!%3Dd"] {
        let refused = cluster.get(&format!("{watch}&fieldSelector={selector}")).await.code(400).json();
        assert_eq!(refused["message"], "fieldSelector metadata.name doesn't match requested name");
    }
    for name in ["c", "d"] {
        cluster.named(CONFIGMAPS, name).await;
    }
    for selector in ["", "&fieldSelector=", "&fieldSelector=metadata.name%3Dc"] {
        let path = format!("{watch}&resourceVersion=0{selector}");
        let mut watch = cluster.get(&path).watch().await;
        assert_eq!(watch.some().await["object"]["metadata"]["name"], "c", "{selector}");
    }
}

#[tokio::test]
async fn an_object_outside_of_namespaces_is_in_none_even_of_its_own_name() {
    let cluster = Cluster::start().await;
    cluster.named(NAMESPACES, "same").await;
    cluster.create(ROLES, json!({"metadata": {"name": "same"}, "rules": []})).await;
    // this user may do everything in the namespace, and nothing outside of it
    let user = TestUser::Certificate(authority().client("u", "g"));
    let binding = json!({"metadata": {"name": "all"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "User", "name": "u"}]});
    let inside = "/apis/rbac.authorization.k8s.io/v1/namespaces/same";
    cluster.create(&format!("{inside}/rolebindings"), binding).await;
    for method in [Method::GET, Method::DELETE] {
        cluster.request(method.clone(), &format!("{ROLES}/same")).user(&user).await.code(403);
        let answer =
            cluster.request(method, &format!("{inside}/clusterroles/same")).user(&user).await.code(404);
        assert_eq!(message(&answer), "the server could not find the requested resource");
    }
    cluster.get(&format!("{ROLES}/same")).await.code(200);
    cluster.get(&format!("{NAMESPACES}/same/namespaces/same")).await.code(404);
    cluster.get(&format!("{NAMESPACES}/same")).user(&user).await.code(200);
}

#[tokio::test]
async fn an_applied_namespace_means_nothing_outside_of_namespaces() {
    let cluster = Cluster::start().await;
    let config = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "r", "namespace": "x"}, "rules": []});
    for code in [201, 200] {
        let path = format!("{ROLES}/r?fieldManager=m");
        let ask = cluster.request(Method::PATCH, &path).body(config.clone());
        let applied = ask.content_type("application/apply-patch+yaml").await.code(code).json();
        assert!(applied["metadata"]["namespace"].is_null(), "{applied}");
    }
}

#[tokio::test]
async fn an_eviction_of_the_older_version_comes_in_protobuf_too() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let path = format!("{PODS}/p/eviction");
    let evict = async |version: &str, message: &[u8]| {
        let body = envelope(version, "Eviction", message);
        let ask = cluster.request(Method::POST, &path).body(body);
        ask.content_type("application/vnd.kubernetes.protobuf").await
    };
    for (version, short) in [("policy/v1", "v1"), ("policy/v1beta1", "v1beta1")] {
        // a number where the metadata belongs
        let refused = evict(version, &[8, 1]).await.code(400);
        let why = "proto: wrong wireType = 0 for field ObjectMeta";
        let expected = format!("Eviction in version {short:?} cannot be handled as a Eviction: {why}");
        assert_eq!(message(&refused), expected);
    }
    // metadata with the name p
    evict("policy/v1beta1", &[10, 3, 10, 1, b'p']).await.code(201);
    cluster.get(&format!("{PODS}/p")).await.code(404);
}

#[tokio::test]
async fn wildcards_are_accepted_where_a_document_has_no_route_of_its_own() {
    let cluster = issuing().await;
    let created = define(&cluster, definition(&[served("v1", json!({"type": "object"}))])).await;
    let group = format!("/apis/{}", created["spec"]["group"].as_str().unwrap());
    let version = format!("{group}/v1");
    let without = ["/apis", "/apis/apps", &group, &version];
    let with =
        ["/api", "/api/v1", "/apis/apps/v1", "/apis/apiregistration.k8s.io", "/version", CONFIGURATION];
    for accept in ["application/*", "*", "application/*, text/html"] {
        for path in without {
            cluster.get(path).accept(accept).await.code(200);
        }
        for path in with {
            let status = cluster.get(path).accept(accept).await.refused(406, "NotAcceptable");
            let message = status["message"].as_str().unwrap();
            assert!(
                message.starts_with("406: Not Acceptable\n\nAvailable representations: "),
                "{path} {message}"
            );
        }
    }
    for path in without {
        let status = cluster.get(path).accept("text/html").await.refused(406, "NotAcceptable");
        let expected = "only the following media types are accepted: ";
        assert!(status["message"].as_str().unwrap().starts_with(expected), "{path} {status}");
        cluster.request(Method::HEAD, path).await.code(200);
    }
    for path in with {
        cluster.request(Method::HEAD, path).await.code(405);
    }
    for path in ["/openapi/v2", "/openapi/v3/apis/apps/v1"] {
        for accept in ["application/*", "*", "*/json", "application/json;q=0.1"] {
            cluster.get(path).accept(accept).await.code(200);
        }
        let refused = cluster.get(path).accept("application/yaml").await.code(406);
        assert_eq!(refused.text(), "", "{path}");
    }
}

const CONFIGURATION: &str = "/.well-known/openid-configuration";

#[tokio::test]
async fn below_a_document_with_a_route_there_is_a_status() {
    let cluster = issuing().await;
    for path in [&*format!("{CONFIGURATION}/x"), "/openid/v1/jwks/x", "/version/x", "/api/v1x"] {
        cluster.get(path).await.refused(404, "NotFound");
    }
    for path in [&*format!("{CONFIGURATION}x"), "/openid/v1", "/versions", "/openapi/v2/", "/metrics/"] {
        assert_eq!(cluster.get(path).await.code(404).text(), "404 page not found\n", "{path}");
    }
    for path in ["/openapi/v3/x", "/openapi/v3/"] {
        assert_eq!(cluster.get(path).await.code(404).text(), "", "{path}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_segment_is_the_last_problem_of_a_request() {
    let cluster = Cluster::start().await;
    let path = format!("{CONFIGMAPS}/%2e%2e");
    for method in [Method::GET, Method::DELETE] {
        let refused = cluster.request(method.clone(), &path).await.refused(400, "BadRequest");
        assert_eq!(refused["message"], "Name parameter invalid: \"..\": may not be '..'");
        cluster.request(method, &path).accept("text/html").await.refused(406, "NotAcceptable");
    }
    let named = json!({"metadata": {"name": ".."}});
    let refused = cluster.put(&path, named).await.refused(400, "BadRequest");
    assert!(refused["message"].as_str().unwrap().starts_with("Name parameter invalid"), "{refused}");
    let unread = cluster.put(&path, "x").await.refused(400, "BadRequest");
    assert!(unread["message"].as_str().unwrap().contains("unrecognized"), "{unread}");
    let scale = cluster.get("/apis/apps/v1/namespaces/default/deployments/%2e%2e/scale").await;
    assert_eq!(scale.refused(404, "NotFound")["message"], "deployments/scale.apps \"..\" not found");
    let scale = cluster.get("/apis/apps/v1/namespaces/default/statefulsets/%2e%2e/scale").await;
    scale.refused(400, "BadRequest");
}
