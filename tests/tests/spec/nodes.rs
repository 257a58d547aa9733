//! "Authorization mode `Node`" and `NodeRestriction`: an agent accesses only objects of its own pods.

use super::identity::signing;
use super::*;
use tests::{ApiRequest, ApiResponse, Cluster, Options, TestUser, authority};

const SECRETS_OF_ALL: &str = "/api/v1/secrets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const NODE_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csinodes";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const UNRELATED: &str = "no relationship found between node 'n' and this object";

/// A server that knows agents and keeps them to their nodes, with nodes `n` and `m`.
async fn guarded() -> Cluster {
    let cluster = Cluster::with(Options {
        authorization: apiserver::authorization::Options {
            modes: vec![auth::Mode::Node, auth::Mode::Rbac],
            ..Default::default()
        },
        admission: apiserver::admission::Options {
            enable: vec!["NodeRestriction".to_owned()],
            ..Options::default().admission
        },
        authentication: signing(),
        ..Options::default()
    })
    .await;
    cluster.named(NODES, "n").await;
    cluster.named(NODES, "m").await;
    cluster
}

fn agent(node: &str) -> TestUser {
    TestUser::Certificate(authority().client(&format!("system:node:{node}"), "system:nodes"))
}

/// A pod that uses a secret of its own name.
fn using_secret(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": name}}]);
    pod
}

async fn refused(ask: ApiRequest<'_>, why: &str) -> ApiResponse {
    let answer = ask.await;
    let text = answer.text();
    assert_eq!(answer.status, 403, "{text}");
    assert!(text.contains(why), "{text}\nshould say: {why}");
    answer
}

#[tokio::test]
async fn an_agent_reads_the_references_of_its_bound_pods() {
    let cluster = guarded().await;
    let (n, m) = (agent("n"), agent("m"));
    for at in 0..10 {
        let name = format!("p{at}");
        let secret = format!("{SECRETS}/{name}");
        cluster.named(SECRETS, &name).await;
        cluster.create(PODS, using_secret(&name)).await;
        refused(cluster.get(&secret).user(&n), UNRELATED).await;
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        cluster.post(&format!("{PODS}/{name}/binding"), binding).await.code(201);
        // access holds as soon as the pod is bound
        cluster.get(&secret).user(&n).await.code(200);
        refused(cluster.get(&secret).user(&m), "no relationship found between node 'm'").await;
        cluster.delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).await.code(200);
        refused(cluster.get(&secret).user(&n), UNRELATED).await;
    }
    // one by one, never all of them
    refused(cluster.get(SECRETS).user(&n), "No Object name found").await;
    refused(cluster.get(SECRETS_OF_ALL).user(&n), "can only read namespaced object of this type").await;
    let mut bound = using_secret("s");
    bound["spec"]["nodeName"] = json!("n");
    cluster.create(PODS, bound).await;
    cluster.named(SECRETS, "s").await;
    cluster.get(&format!("{SECRETS}?fieldSelector=metadata.name%3Ds")).user(&n).await.code(200);
    refused(cluster.delete(&format!("{SECRETS}/s")).user(&n), "can only read resources of this type").await;
}

#[tokio::test]
async fn everything_that_a_pod_refers_to_is_found() {
    let cluster = guarded().await;
    let n = agent("n");
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for name in ["claim", "p-scratch", "other"] {
        cluster.create(CLAIMS, json!({"metadata": {"name": name}, "spec": claim})).await;
    }
    let volume = |name: &str, claim: &str| {
        json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": claim},
            "csi": {"driver": "d", "volumeHandle": "h",
                "nodeStageSecretRef": {"namespace": "default", "name": format!("{name}-stage")},
                "controllerPublishSecretRef": {"namespace": "default", "name": format!("{name}-attach")}}}})
    };
    for (name, claim) in [("mine", "claim"), ("theirs", "other")] {
        cluster.create(VOLUMES, volume(name, claim)).await;
        cluster.named(SECRETS, &format!("{name}-stage")).await;
        cluster.named(SECRETS, &format!("{name}-attach")).await;
    }
    cluster.named(CONFIGMAPS, "settings").await;
    let mut pod = pod("p");
    pod["spec"]["nodeName"] = json!("n");
    pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    pod["spec"]["volumes"] = json!([
        {"name": "v", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
    ]);
    cluster.create(PODS, pod).await;
    for path in [
        format!("{CONFIGMAPS}/settings"),
        format!("{CLAIMS}/claim"),
        format!("{CLAIMS}/p-scratch"),
        format!("{VOLUMES}/mine"),
        format!("{SECRETS}/mine-stage"),
    ] {
        cluster.get(&path).user(&n).await.code(200);
    }
    for path in [
        format!("{CLAIMS}/other"),
        format!("{VOLUMES}/theirs"),
        format!("{SECRETS}/theirs-stage"),
        // other secrets of the volume are not readable
        format!("{SECRETS}/mine-attach"),
    ] {
        refused(cluster.get(&path).user(&n), UNRELATED).await;
    }
    // agents may not list, and the response says so
    let review =
        cluster.post(RULES, json!({"spec": {"namespace": "default"}})).user(&n).await.code(201).json();
    assert_eq!(review["status"]["incomplete"], true);
}

#[tokio::test]
async fn a_mirror_of_a_pod_gives_its_node_nothing() {
    let cluster = guarded().await;
    cluster.named(SECRETS, "s").await;
    let mut mirror = using_secret("s");
    mirror["spec"]["nodeName"] = json!("n");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    // even an object that another user wrote
    cluster.create(PODS, mirror).await;
    refused(cluster.get(&format!("{SECRETS}/s")).user(&agent("n")), UNRELATED).await;
}

#[tokio::test]
async fn an_agent_is_one_by_name_and_group() {
    let cluster = guarded().await;
    let holder = |name: &str, group: &str| TestUser::Certificate(authority().client(name, group));
    cluster.get(NODES).user(&holder("system:node:n", "system:nodes")).await.code(200);
    for other in [holder("system:node:n", "people"), holder("n", "system:nodes")] {
        cluster.get(NODES).user(&other).await.refused(403, "Forbidden");
    }
    let nameless = holder("system:node:", "system:nodes");
    refused(cluster.get(NODES).user(&nameless), "unknown node for user \\\"system:node:\\\"").await;
}

#[tokio::test]
async fn an_agent_changes_its_own_node_except_scheduling_labels() {
    let cluster = guarded().await;
    let n = agent("n");
    let (own, other) = (format!("{NODES}/n"), format!("{NODES}/m"));
    let labelled = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    cluster.patch(&own, labelled("example.com/x")).user(&n).await.code(200);
    cluster.patch(&own, labelled("kubernetes.io/hostname")).user(&n).await.code(200);
    for key in ["node-restriction.kubernetes.io/team", "node-role.kubernetes.io/master"] {
        let why = format!("is not allowed to modify labels: {key}");
        refused(cluster.patch(&own, labelled(key)).user(&n), &why).await;
        refused(cluster.patch(&format!("{own}/status"), labelled(key)).user(&n), &why).await;
    }
    let taints = json!({"spec": {"taints": []}});
    refused(cluster.patch(&own, taints).user(&n), "is not allowed to modify taints").await;
    refused(cluster.patch(&other, labelled("a")).user(&n), "is not allowed to modify node \\\"m\\\"").await;
    let new = json!({"metadata": {"name": "q"}});
    refused(cluster.post(NODES, new).user(&n), "is not allowed to modify node \\\"q\\\"").await;
    cluster.delete(&own).user(&n).await.refused(403, "Forbidden");
    // its own lease and drivers
    for collection in [NODE_LEASES, DRIVERS] {
        let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
        let named = |name: &str| {
            if collection == DRIVERS { named(name) } else { json!({"metadata": {"name": name}}) }
        };
        cluster.post(collection, named("n")).user(&n).await.code(201);
        refused(cluster.post(collection, named("m")).user(&n), "with the same name as the requesting node")
            .await;
        cluster.create(collection, named("m")).await;
        let path = format!("{collection}/m");
        refused(cluster.delete(&path).user(&n), "with the same name as the requesting node").await;
    }
}

#[tokio::test]
async fn an_agent_writes_pods_of_its_own_node_only() {
    let cluster = guarded().await;
    let n = agent("n");
    for (name, node) in [("here", "n"), ("there", "m")] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!(node);
        cluster.create(PODS, pod).await;
    }
    let uid = cluster.read(&format!("{NODES}/n")).await["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true});
    let mirror = || {
        let mut pod = pod("mirror");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["metadata"]["ownerReferences"] = json!([owner]);
        pod["spec"]["nodeName"] = json!("n");
        pod
    };
    let with = |path: &str, value: Value| {
        let mut pod = mirror();
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let volume = |source: Value| {
        let mut pod = mirror();
        pod["spec"]["volumes"] = json!([source]);
        pod
    };
    for (pod, why) in [
        (with("/metadata/annotations", json!({})), "node \\\"n\\\" can only create mirror pods"),
        (with("/spec/nodeName", json!("m")), "can only create pods with spec.nodeName set to itself"),
        (with("/metadata/ownerReferences", json!([])), "with an owner reference set to itself"),
        (with("/metadata/ownerReferences/0/uid", json!("other")), "node n UID mismatch"),
        (with("/metadata/ownerReferences/0/controller", json!(false)), "with a controller owner reference"),
        (volume(json!({"name": "v", "secret": {"secretName": "s"}})), "reference secrets"),
        (volume(json!({"name": "v", "configMap": {"name": "s"}})), "reference configmaps"),
        (
            volume(json!({"name": "v", "persistentVolumeClaim": {"claimName": "s"}})),
            "reference persistentvolumeclaims",
        ),
    ] {
        refused(cluster.post(PODS, pod).user(&n), why).await;
    }
    let mut accounted = mirror();
    accounted["spec"]["serviceAccountName"] = json!("robot");
    refused(cluster.post(PODS, accounted).user(&n), "reference a service account").await;
    cluster.post(PODS, mirror()).user(&n).await.code(201);
    let running = json!({"status": {"phase": "Running"}});
    let status = |name: &str| format!("{PODS}/{name}/status");
    cluster.patch(&status("here"), running.clone()).user(&n).await.code(200);
    refused(cluster.patch(&status("there"), running).user(&n), "can only update pod status for pods").await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    refused(cluster.patch(&status("here"), labels).user(&n), "cannot update labels through pod status").await;
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let evict = |name: &str| cluster.post(&format!("{PODS}/{name}/eviction"), eviction(name)).user(&n);
    refused(evict("there"), "can only evict pods with spec.nodeName set to itself").await;
    refused(cluster.delete(&format!("{PODS}/there")).user(&n), "can only delete pods").await;
    evict("here").await.code(201);
    cluster.delete(&format!("{PODS}/mirror?gracePeriodSeconds=0")).user(&n).await.code(200);
}

#[tokio::test]
async fn an_agent_gets_tokens_for_its_pods_only() {
    let cluster = guarded().await;
    let n = agent("n");
    for name in ["robot", "other"] {
        cluster.named(ACCOUNTS, name).await;
    }
    let mut uids = Vec::new();
    for (name, node) in [("here", "n"), ("there", "m")] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["serviceAccountName"] = json!("robot");
        uids.push(cluster.create(PODS, pod).await["metadata"]["uid"].clone());
    }
    let bound = |name: &str, uid: &Value| {
        let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        json!({"spec": {"audiences": ["a"], "boundObjectRef": reference}})
    };
    let ask = |account: &str, request: Value| {
        cluster.post(&format!("{ACCOUNTS}/{account}/token"), request).user(&n)
    };
    ask("robot", bound("here", &uids[0])).await.code(201);
    refused(ask("other", bound("here", &uids[0])), UNRELATED).await;
    refused(ask("robot", json!({"spec": {"audiences": ["a"]}})), "token not bound to a pod").await;
    refused(ask("robot", bound("here", &Value::Null)), "pod binding without a uid").await;
    refused(ask("robot", bound("here", &uids[1])), "does not match the UID in record").await;
    refused(ask("robot", bound("there", &uids[1])), "bound to a pod scheduled on a different node").await;
}

#[tokio::test]
async fn an_agent_does_not_set_owners_of_its_node() {
    let cluster = guarded().await;
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "u"}]);
    let owned = json!({"metadata": {"ownerReferences": owner}});
    let why = "is not allowed to modify ownerReferences";
    for path in [format!("{NODES}/n"), format!("{NODES}/n/status")] {
        refused(cluster.patch(&path, owned.clone()).user(&agent("n")), why).await;
    }
    let new = json!({"metadata": {"name": "o", "ownerReferences": owner}});
    refused(cluster.post(NODES, new).user(&agent("o")), why).await;
    cluster.patch(&format!("{NODES}/n"), owned).await.code(200);
    // existing owners stay, and other updates work
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    cluster.patch(&format!("{NODES}/n"), annotated).user(&agent("n")).await.code(200);
    let released = json!({"metadata": {"ownerReferences": null}});
    refused(cluster.patch(&format!("{NODES}/n"), released).user(&agent("n")), why).await;
}
