//! Admission of CONNECT requests (exec, attach, portforward, proxy) by webhooks and policies.

use super::admission_policies::{self, BINDINGS, POLICIES, binding, policy};
use super::admission_webhooks::{
    BOTH, MUTATING, VALIDATING, allow, answer, configure, hook, message, patch, rule, with,
};
use super::*;
use http::Method;
use tests::{Cluster, HttpsServer};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn connecting(server: &HttpsServer, name: &str) -> Value {
    let rules = json!([rule(&["CONNECT"], "", "v1", "*/*")]);
    with(hook(server, name, "/"), "rules", rules)
}

async fn with_objects() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    cluster.create(NODES, json!({"metadata": {"name": "n"}})).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    cluster.create(SERVICES, service).await;
    cluster
}

/// The answer once a request was admitted: the pod has no node and no address, the service no endpoints, the node no
/// address.
fn refusal(plural: &str) -> (u16, &'static str) {
    match plural {
        "services" => (404, "NotFound"),
        "nodes" => (500, ""),
        _ => (400, "BadRequest"),
    }
}

#[tokio::test]
async fn webhooks_review_connect_requests() {
    // a request, the subresource and kind of its parameters, and these as they are shown
    let cases = [
        (
            "POST",
            "pods/p/exec?command=ls&command=-l&stdout=true&container=c&odd=1",
            "exec",
            "PodExecOptions",
            json!({"stdout": true, "container": "c", "command": ["ls", "-l"]}),
        ),
        (
            "GET",
            "pods/p/exec?command=ls&stdin=1&tty=false&stderr=yes",
            "exec",
            "PodExecOptions",
            json!({"stdin": true, "stderr": true, "command": ["ls"]}),
        ),
        ("POST", "pods/p/exec", "exec", "PodExecOptions", json!({"command": null})),
        (
            "POST",
            "pods/p/attach?stdin=true&tty=true",
            "attach",
            "PodAttachOptions",
            json!({"stdin": true, "tty": true}),
        ),
        (
            "POST",
            "pods/p/portforward?ports=80,90&ports=443",
            "portforward",
            "PodPortForwardOptions",
            json!({"ports": [80, 90, 443]}),
        ),
        ("GET", "pods/p/proxy", "proxy", "PodProxyOptions", json!({})),
        ("GET", "pods/p/proxy/a/b%20c/?x=y&path=z", "proxy", "PodProxyOptions", json!({"path": "/a/b c/"})),
        ("PUT", "services/s/proxy/", "proxy", "ServiceProxyOptions", json!({"path": "/"})),
        ("DELETE", "nodes/n/proxy/pods", "proxy", "NodeProxyOptions", json!({"path": "/pods"})),
    ];
    for kind in BOTH {
        let server = HttpsServer::start(allow).await;
        let cluster = with_objects().await;
        configure(&cluster, kind, "all", vec![connecting(&server, "a")]).await;
        for (nth, (method, path, sub, options, shown)) in cases.iter().enumerate() {
            let (plural, rest) = path.split_once('/').unwrap();
            let place = if plural == "nodes" {
                NODES.to_owned()
            } else {
                format!("/api/v1/namespaces/default/{plural}")
            };
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let (code, reason) = refusal(plural);
            cluster.request(method, &format!("{place}/{rest}")).await.refused(code, reason);
            let seen = server.requests();
            assert_eq!(seen.len(), nth + 1, "{path}");
            let request = &seen[nth].body["request"];
            let mut object = json!({"kind": options, "apiVersion": "v1"});
            object.as_object_mut().unwrap().extend(shown.as_object().unwrap().clone());
            assert_eq!(request["object"], object, "{path}");
            let gvk = json!({"group": "", "version": "v1", "kind": options});
            assert_eq!([&request["kind"], &request["requestKind"]], [&gvk, &gvk]);
            assert_eq!(request["resource"]["resource"], *plural);
            assert_eq!([&request["subResource"], &request["requestSubResource"]], [*sub, *sub]);
            assert_eq!(request["name"], rest.split('/').next().unwrap());
            let space = if plural == "nodes" { Value::Null } else { json!("default") };
            assert_eq!(request["namespace"], space);
            assert_eq!([&request["operation"], &request["dryRun"]], [&json!("CONNECT"), &json!(false)]);
            assert_eq!([&request["oldObject"], &request["options"]], [&Value::Null, &Value::Null]);
            assert_eq!(request["userInfo"]["groups"][0], "system:masters");
        }
        // absent objects are reviewed as well, invalid requests are not, and logs are reads
        cluster.post(&format!("{PODS}/none/exec?command=ls"), "").await.refused(404, "NotFound");
        assert_eq!(server.count(), cases.len() + 1);
        let wrong =
            cluster.post(&format!("{PODS}/p/portforward?ports=80,x"), "").await.refused(400, "BadRequest");
        assert_eq!(
            message(&wrong),
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax"
        );
        let wrong =
            cluster.post(&format!("{PODS}/p/portforward?ports=70000"), "").await.refused(400, "BadRequest");
        assert!(message(&wrong).ends_with("parsing \"70000\": value out of range"), "{wrong}");
        cluster.get(&format!("{PODS}/p/log")).await.code(204);
        assert_eq!(server.count(), cases.len() + 1);
    }
}

#[tokio::test]
async fn webhooks_deny_and_change_connect_requests() {
    let server = HttpsServer::start(|seen| {
        let path = seen.path.split('?').next().unwrap();
        let command = &seen.body["request"]["object"]["command"];
        match (path, command == &json!(["true"])) {
            ("/change", false) => {
                patch(seen, json!([{"op": "replace", "path": "/command", "value": ["true"]}]))
            }
            ("/refuse", false) => answer(seen, json!({"allowed": false, "status": {"message": "not this"}})),
            _ => allow(seen),
        }
    })
    .await;
    let cluster = with_objects().await;
    let to = |path: &str| {
        let mut one = connecting(&server, "a");
        one["clientConfig"]["url"] = format!("{}{path}", server.url).into();
        one
    };
    configure(&cluster, VALIDATING, "refusing", vec![to("/refuse")]).await;
    let exec = format!("{PODS}/p/exec?command=rm");
    let refused = cluster.post(&exec, "").await.code(400).json();
    assert_eq!(message(&refused), "admission webhook \"a.example.com\" denied the request: not this");
    // validating webhooks see the mutations
    configure(&cluster, MUTATING, "changing", vec![to("/change")]).await;
    let admitted = cluster.post(&exec, "").await.refused(400, "BadRequest");
    assert_eq!(message(&admitted), "pod p does not have a host assigned");
    // other writes are not their concern
    cluster.create(PODS, pod("q")).await;
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn object_selectors_match_no_connect_request() {
    let server = HttpsServer::start(allow).await;
    let cluster = with_objects().await;
    let labels = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    let by_object = with(connecting(&server, "o"), "objectSelector", labels.clone());
    let by_space = with(connecting(&server, "n"), "namespaceSelector", labels);
    configure(&cluster, VALIDATING, "selecting", vec![by_object, by_space]).await;
    cluster.post(&format!("{PODS}/p/attach"), "").await.refused(400, "BadRequest");
    assert_eq!(server.count(), 1);
    cluster
        .patch(&format!("{NAMESPACES}/default"), json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .code(200);
    cluster.post(&format!("{PODS}/p/attach"), "").await.refused(400, "BadRequest");
    assert_eq!(server.count(), 1);
    cluster.get(&format!("{NODES}/n/proxy/")).await.refused(500, "");
    assert_eq!(server.count(), 2, "what is in no namespace is not spared for that");
}

#[tokio::test]
async fn policies_validate_connect_requests() {
    let cluster = admission_policies::cluster(true).await;
    cluster.create(PODS, pod("p")).await;
    let validations = json!([{"expression":
        "request.operation == 'CONNECT' && request.subResource == 'exec' && request.name == 'p' && oldObject == null && \
         object.kind == 'PodExecOptions' && !('rm' in object.command)"}]);
    let mut shells = policy("shells", validations);
    shells["spec"]["matchConstraints"]["resourceRules"] = json!([rule(&["CONNECT"], "", "v1", "pods/exec")]);
    cluster.create(POLICIES, shells).await;
    cluster.create(BINDINGS, binding("everywhere", "shells")).await;
    let admitted = cluster.post(&format!("{PODS}/p/exec?command=ls"), "").await.refused(400, "BadRequest");
    assert_eq!(message(&admitted), "pod p does not have a host assigned");
    let refused = cluster.post(&format!("{PODS}/p/exec?command=rm"), "").await.refused(422, "Invalid");
    let expected = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'shells' with binding 'everywhere' denied request";
    assert!(message(&refused).starts_with(expected), "{refused}");
    cluster.post(&format!("{PODS}/p/attach"), "").await.refused(400, "BadRequest");
}

/// Requests are passed on to `name`, `name:port` or `scheme:name:port`.
#[tokio::test]
async fn names_of_proxied_objects_may_have_schemes_and_ports() {
    let cluster = with_objects().await;
    let namespace = "/api/v1/namespaces/default";
    for (place, name, kind) in [
        (format!("{namespace}/pods"), "p", "pod"),
        (format!("{namespace}/services"), "s", "service"),
        (NODES.to_owned(), "n", "node"),
    ] {
        for path in
            [format!("{name}:80"), format!("https:{name}:web"), format!("http:{name}:"), format!(":{name}:")]
        {
            let (code, reason) = refusal(&format!("{kind}s"));
            cluster.get(&format!("{place}/{path}/proxy/a")).await.refused(code, reason);
        }
        let missing = cluster.get(&format!("{place}/https:none:80/proxy/")).await.refused(404, "NotFound");
        assert_eq!(missing["details"]["name"], "none");
        for path in ["ftp:p:80", "a:b:c:d", "::"] {
            let wrong = cluster.get(&format!("{place}/{path}/proxy/")).await.refused(400, "BadRequest");
            assert_eq!(message(&wrong), format!("invalid {kind} request \"{path}\""));
        }
    }
    cluster.get(&format!("{namespace}/pods/p:80")).await.refused(404, "NotFound");
}
