//! Reviews of unusual writes, as upstream sends them.

use super::admission_webhooks::{MUTATING, VALIDATING, allow, configure, hook, map, with};
use super::*;
use apiserver::authentication::jose::Signer;
use apiserver::authentication::{self, ServiceAccounts};
use tests::{Cluster, HttpsServer, Options, authority};

const ISSUER: &str = "https://kubernetes.default.svc";

/// A mutating and a validating webhook for all requests.
async fn both() -> (Cluster, HttpsServer) {
    let server = HttpsServer::start(allow).await;
    let signer = Signer::from_pem(authority().client("signer", "").key.as_bytes()).unwrap();
    let issuers = vec![ISSUER.to_owned()];
    let service_accounts = ServiceAccounts { signer: Some(signer), issuers, ..ServiceAccounts::default() };
    let authentication = authentication::Options { service_accounts, ..authentication::Options::default() };
    let cluster = Cluster::with(Options { authentication, ..Options::default() }).await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["", "coordination.k8s.io"], "apiVersions": ["*"],
        "resources": ["configmaps", "namespaces/*", "namespaces", "leases", "pods", "pods/*", "bindings",
            "serviceaccounts/*"]}]);
    for (kind, path) in [(MUTATING, "/m"), (VALIDATING, "/v")] {
        configure(&cluster, kind, "all", vec![with(hook(&server, "a", path), "rules", rules.clone())]).await;
    }
    (cluster, server)
}

/// The mutating and the validating review after the first `count`.
fn pair(server: &HttpsServer, since: usize) -> [Value; 2] {
    let seen = server.requests();
    assert_eq!(seen.len(), since + 2, "{:?}", seen.iter().skip(since).map(|it| &it.path).collect::<Vec<_>>());
    assert!(seen[since].path.starts_with("/m") && seen[since + 1].path.starts_with("/v"));
    [seen[since].body["request"].clone(), seen[since + 1].body["request"].clone()]
}

#[tokio::test]
async fn reviews_have_the_options_as_sent() {
    let (cluster, server) = both().await;
    let options = |kind: &str, more: Value| {
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        options
    };
    let mut since = 0;
    let mut expect_options = |expected: Value| {
        for review in pair(&server, since) {
            assert_eq!(review["options"], expected);
        }
        since += 2;
    };
    cluster.create(CONFIGMAPS, map("a")).await;
    expect_options(options("CreateOptions", json!({})));
    for given in ["Warn", "Strict", "Ignore"] {
        let path = format!("{CONFIGMAPS}?fieldValidation={given}&fieldManager=me");
        cluster.create(&path, map(&given.to_lowercase())).await;
        expect_options(options("CreateOptions", json!({"fieldManager": "me", "fieldValidation": given})));
    }
    let path = format!("{CONFIGMAPS}/a?fieldValidation=Warn");
    cluster.put(&path, map("a")).await.code(200);
    expect_options(options("UpdateOptions", json!({"fieldValidation": "Warn"})));
    cluster.patch(&path, json!({"data": {"k": "w"}})).await.code(200);
    expect_options(options("UpdateOptions", json!({"fieldValidation": "Warn"})));
    // an applied object that is not there yet is created, and so is one that is put
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v"}});
    let path = format!("{CONFIGMAPS}/b?fieldManager=me&force=true");
    for kind in ["CreateOptions", "UpdateOptions"] {
        cluster.patch(&path, applied.clone()).content_type("application/apply-patch+yaml").await;
        expect_options(options(kind, json!({"fieldManager": "me"})));
    }
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}});
    cluster.put(&format!("{LEASES}/l?fieldValidation=Strict&dryRun=All"), lease).await.code(201);
    expect_options(options("CreateOptions", json!({"fieldValidation": "Strict", "dryRun": ["All"]})));
}

#[tokio::test]
async fn mutating_reviews_have_server_fields_as_sent() {
    let (cluster, server) = both().await;
    let mut object = map("a");
    object["metadata"]["uid"] = "mine".into();
    object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    let created = cluster.create(CONFIGMAPS, object).await;
    let of = |review: &Value| {
        let metadata = &review["object"]["metadata"];
        (metadata["uid"].clone(), metadata["creationTimestamp"].clone())
    };
    let given = (created["metadata"]["uid"].clone(), created["metadata"]["creationTimestamp"].clone());
    let none = (Value::Null, Value::Null);
    let [changing, refusing] = pair(&server, 0);
    assert_eq!((of(&changing), of(&refusing)), (none.clone(), given.clone()), "a new object has neither yet");
    let put = cluster.put(&format!("{CONFIGMAPS}/a"), map("a")).await.code(200).json();
    let [changing, refusing] = pair(&server, 2);
    assert_eq!((of(&changing), of(&refusing)), (none.clone(), given.clone()), "the client said nothing");
    assert_eq!(version(&put), version(&created), "and nothing came of it");
    cluster.put(&format!("{CONFIGMAPS}/a"), created.clone()).await.code(200);
    let [changing, refusing] = pair(&server, 4);
    assert_eq!((of(&changing), of(&refusing)), (given.clone(), given.clone()));
    cluster.patch(&format!("{CONFIGMAPS}/a"), json!({"data": {"k": "w"}})).await.code(200);
    assert_eq!(of(&pair(&server, 6)[0]), given, "a patch is made of what is there");
    // the status of a new object is the initial one
    cluster
        .create(PODS, {
            let mut pod = pod("p");
            pod["status"] = json!({"phase": "Running"});
            pod
        })
        .await;
    let [changing, refusing] = pair(&server, 8);
    let phase = |review: &Value| review["object"]["status"]["phase"].clone();
    assert_eq!([phase(&changing), phase(&refusing)], ["Running", "Pending"]);
}

#[tokio::test]
async fn a_namespace_deletion_is_reviewed_with_its_uid() {
    let (cluster, server) = both().await;
    let created = cluster.named(NAMESPACES, "n").await;
    let path = format!("{NAMESPACES}/n");
    assert_eq!(pair(&server, 0)[0]["object"]["status"], json!({"phase": "Active"}));
    cluster
        .put(&format!("{path}/finalize"), {
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "x.io/y"]}})
        })
        .await
        .code(200);
    let [changing, refusing] = pair(&server, 2);
    for review in [&changing, &refusing] {
        assert_eq!([&review["subResource"], &review["operation"]], ["finalize", "UPDATE"]);
        assert_eq!(review["object"]["spec"]["finalizers"], json!(["kubernetes", "x.io/y"]));
        assert_eq!(review["oldObject"]["spec"]["finalizers"], json!(["kubernetes"]));
    }
    assert_eq!(changing["object"]["metadata"]["uid"], Value::Null);
    assert_eq!(refusing["object"]["metadata"]["uid"], created["metadata"]["uid"]);
    cluster.delete(&path).await.code(200);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1",
        "preconditions": {"uid": created["metadata"]["uid"]}});
    for review in pair(&server, 4) {
        assert_eq!([&review["options"], &review["object"]], [&options, &Value::Null]);
        assert_eq!([&review["name"], &review["namespace"]], ["n", "n"]);
    }
    // a running deletion is reviewed once
    cluster.delete(&path).await.code(200);
    assert_eq!(server.count(), 6);
}

#[tokio::test]
async fn token_requests_are_reviewed_with_defaults() {
    let (cluster, server) = both().await;
    cluster.named(ACCOUNTS, "sa").await;
    let request = json!({"spec": {"expirationSeconds": 1000}});
    cluster.create(&format!("{ACCOUNTS}/sa/token"), request).await;
    let [changing, refusing] = pair(&server, 2);
    for review in [&changing, &refusing] {
        assert_eq!(
            review["kind"],
            json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"})
        );
        assert_eq!(
            [&review["operation"], &review["subResource"], &review["name"]],
            ["CREATE", "token", "sa"]
        );
        assert_eq!(review["object"]["spec"]["expirationSeconds"], 1000);
    }
    assert_eq!(changing["object"]["spec"]["audiences"], Value::Null);
    assert_eq!(changing["object"]["metadata"]["name"], Value::Null);
    assert_eq!(refusing["object"]["spec"]["audiences"], json!([ISSUER]));
    assert_eq!(refusing["object"]["metadata"]["name"], "sa");
    assert_eq!(refusing["object"]["metadata"]["creationTimestamp"], cluster.time());
}

#[tokio::test]
async fn subresource_actions_are_reviewed_as_requested() {
    let (cluster, server) = both().await;
    for name in ["p", "q"] {
        cluster.create(PODS, pod(name)).await;
    }
    let bind = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": "n"}})
    };
    cluster.post(&format!("{PODS}/p/binding"), bind("p")).await.code(201);
    for review in pair(&server, 4) {
        assert_eq!([&review["resource"]["resource"], &review["subResource"]], ["pods", "binding"]);
        assert_eq!(review["object"]["metadata"]["namespace"], "default");
        assert_eq!(review["object"]["metadata"]["managedFields"][0]["subresource"], "binding");
    }
    // the older way is not that of the pod
    cluster.post("/api/v1/namespaces/default/bindings", bind("q")).await.code(201);
    for review in pair(&server, 6) {
        assert_eq!([&review["resource"]["resource"], &review["name"]], ["bindings", "q"]);
        assert_eq!(review["subResource"], Value::Null);
        assert_eq!(review["options"]["kind"], "CreateOptions");
    }
    let bound = cluster.read(&format!("{PODS}/q")).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    let managers = bound["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().all(|it| it["subresource"] != "binding"), "{bound}");
    // an eviction has no separate deletion review
    let evict = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "q"},
        "deleteOptions": {"gracePeriodSeconds": 0}});
    cluster.post(&format!("{PODS}/q/eviction"), evict).await.code(201);
    for review in pair(&server, 8) {
        assert_eq!([&review["operation"], &review["subResource"]], ["CREATE", "eviction"]);
        let first = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
        assert_eq!(
            [&review["kind"], &review["requestKind"]],
            [&first, &first],
            "in whichever version it came"
        );
        assert_eq!(review["object"]["apiVersion"], "policy/v1");
        assert_eq!(review["object"]["metadata"]["managedFields"][0]["subresource"], "eviction");
    }
}
