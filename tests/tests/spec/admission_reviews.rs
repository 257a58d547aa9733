//! What webhooks are told of writes that are not quite like others, as upstream tells it.

use super::admission_webhooks::{MUTATING, VALIDATING, allow, configure, hook, map, with};
use super::*;
use apiserver::authentication::jose::Signer;
use apiserver::authentication::{self, ServiceAccounts};
use tests::{Cluster, Elsewhere, Options, authority};

const ISSUER: &str = "https://kubernetes.default.svc";

/// A server that asks about everything, of those that may change it and of those that may refuse it.
async fn both() -> (Cluster, Elsewhere) {
    let server = Elsewhere::start(allow).await;
    let signer = Signer::from_pem(authority().client("signer", "").key.as_bytes()).unwrap();
    let issuers = vec![ISSUER.to_owned()];
    let service_accounts = ServiceAccounts { signer: Some(signer), issuers, ..ServiceAccounts::default() };
    let identity = authentication::Options { service_accounts, ..authentication::Options::default() };
    let cluster = Cluster::with(Options { identity, ..Options::default() }).await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["", "coordination.k8s.io"], "apiVersions": ["*"],
        "resources": ["configmaps", "namespaces/*", "namespaces", "leases", "pods", "pods/*", "bindings",
            "serviceaccounts/*"]}]);
    for (kind, path) in [(MUTATING, "/m"), (VALIDATING, "/v")] {
        configure(&cluster, kind, "all", vec![with(hook(&server, "a", path), "rules", rules.clone())]).await;
    }
    (cluster, server)
}

/// The reviews since so many: that of those who may change, that of those who may refuse.
fn pair(server: &Elsewhere, since: usize) -> [Value; 2] {
    let seen = server.seen();
    assert_eq!(seen.len(), since + 2, "{:?}", seen.iter().skip(since).map(|it| &it.path).collect::<Vec<_>>());
    assert!(seen[since].path.starts_with("/m") && seen[since + 1].path.starts_with("/v"));
    [seen[since].body["request"].clone(), seen[since + 1].body["request"].clone()]
}

#[tokio::test]
async fn options_are_shown_as_they_were_given() {
    let (cluster, server) = both().await;
    let options = |kind: &str, more: Value| {
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        options
    };
    let mut since = 0;
    let mut told = |expected: Value| {
        for review in pair(&server, since) {
            assert_eq!(review["options"], expected);
        }
        since += 2;
    };
    cluster.create(CONFIGMAPS, map("a")).await;
    told(options("CreateOptions", json!({})));
    for given in ["Warn", "Strict", "Ignore"] {
        let path = format!("{CONFIGMAPS}?fieldValidation={given}&fieldManager=me");
        cluster.create(&path, map(&given.to_lowercase())).await;
        told(options("CreateOptions", json!({"fieldManager": "me", "fieldValidation": given})));
    }
    let path = format!("{CONFIGMAPS}/a?fieldValidation=Warn");
    cluster.put(&path, map("a")).await.code(200);
    told(options("UpdateOptions", json!({"fieldValidation": "Warn"})));
    cluster.patch(&path, json!({"data": {"k": "w"}})).await.code(200);
    told(options("UpdateOptions", json!({"fieldValidation": "Warn"})));
    // an applied object that is not there yet is created, and so is one that is put
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v"}});
    let path = format!("{CONFIGMAPS}/b?fieldManager=me&force=true");
    for kind in ["CreateOptions", "UpdateOptions"] {
        cluster.patch(&path, applied.clone()).content_type("application/apply-patch+yaml").await;
        told(options(kind, json!({"fieldManager": "me"})));
    }
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}});
    cluster.put(&format!("{LEASES}/l?fieldValidation=Strict&dryRun=All"), lease).await.code(201);
    told(options("CreateOptions", json!({"fieldValidation": "Strict", "dryRun": ["All"]})));
}

#[tokio::test]
async fn what_only_the_server_decides_is_shown_as_it_was_said_to_those_who_change() {
    let (cluster, server) = both().await;
    let mut object = map("a");
    object["metadata"]["uid"] = "mine".into();
    object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    let made = cluster.create(CONFIGMAPS, object).await;
    let of = |review: &Value| {
        let metadata = &review["object"]["metadata"];
        (metadata["uid"].clone(), metadata["creationTimestamp"].clone())
    };
    let given = (made["metadata"]["uid"].clone(), made["metadata"]["creationTimestamp"].clone());
    let none = (Value::Null, Value::Null);
    let [changing, refusing] = pair(&server, 0);
    assert_eq!((of(&changing), of(&refusing)), (none.clone(), given.clone()), "a new object has neither yet");
    let put = cluster.put(&format!("{CONFIGMAPS}/a"), map("a")).await.code(200).json();
    let [changing, refusing] = pair(&server, 2);
    assert_eq!((of(&changing), of(&refusing)), (none.clone(), given.clone()), "the client said nothing");
    assert_eq!(version(&put), version(&made), "and nothing came of it");
    cluster.put(&format!("{CONFIGMAPS}/a"), made.clone()).await.code(200);
    let [changing, refusing] = pair(&server, 4);
    assert_eq!((of(&changing), of(&refusing)), (given.clone(), given.clone()));
    cluster.patch(&format!("{CONFIGMAPS}/a"), json!({"data": {"k": "w"}})).await.code(200);
    assert_eq!(of(&pair(&server, 6)[0]), given, "a patch is made of what is there");
    // the state of a new object is what its kind begins with, whatever was said
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
async fn a_namespace_is_meant_by_its_uid_when_it_is_deleted() {
    let (cluster, server) = both().await;
    let made = cluster.named(NAMESPACES, "n").await;
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
    assert_eq!(refusing["object"]["metadata"]["uid"], made["metadata"]["uid"]);
    cluster.delete(&path).await.code(200);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1",
        "preconditions": {"uid": made["metadata"]["uid"]}});
    for review in pair(&server, 4) {
        assert_eq!([&review["options"], &review["object"]], [&options, &Value::Null]);
        assert_eq!([&review["name"], &review["namespace"]], ["n", "n"]);
    }
    // what is under way is asked about once
    cluster.delete(&path).await.code(200);
    assert_eq!(server.count(), 6);
}

#[tokio::test]
async fn a_request_for_a_token_is_shown_with_what_it_will_be_issued_for() {
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
async fn actions_are_shown_as_what_was_asked_for_and_nothing_else() {
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
    // who takes a pod away by an eviction deletes nothing of their own
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
