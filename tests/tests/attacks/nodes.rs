//! A node agent whose machine was taken over, beyond its own node and pods.

use super::arena::{Arena, Attack, Attacker, attack};
use super::*;
use http::Method;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";
const STORAGE: &str = "/apis/storage.k8s.io/v1";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const UNRELATED: &str = "no relationship found between node 'n' and this object";

fn by_node(name: &'static str) -> Attack {
    attack(name).by(Attacker::Node)
}

fn reading() -> Vec<Attack> {
    vec![
        by_node("a node reads a secret that no pod of it uses")
            .get(format!("{SECRETS}/treasure"))
            .forbidden(UNRELATED),
        by_node("a node reads a config map that no pod of it uses")
            .get(format!("{CONFIGMAPS}/settings"))
            .forbidden(UNRELATED),
        by_node("a node watches a secret by its name")
            .get(format!("{SECRETS}?watch=1&fieldSelector=metadata.name%3Dtreasure"))
            .forbidden(UNRELATED),
        by_node("a node watches a secret by the old path")
            .get("/api/v1/watch/namespaces/default/secrets/treasure")
            .forbidden(UNRELATED),
        by_node("a node lists all secrets")
            .get("/api/v1/secrets")
            .forbidden("can only read namespaced object of this type"),
        by_node("a node lists the secrets of a namespace").get(SECRETS).forbidden("No Object name found"),
        by_node("a node selects two secrets")
            .get(format!("{SECRETS}?fieldSelector=metadata.name%21%3Dx"))
            .forbidden("No Object name found"),
        by_node("a node reads a claim that no pod of it uses")
            .get(format!("{CLAIMS}/c"))
            .forbidden(UNRELATED),
        by_node("a node reads a volume that no pod of it uses")
            .get("/api/v1/persistentvolumes/v")
            .forbidden(UNRELATED),
        by_node("a node reads an attachment of another node")
            .get(format!("{STORAGE}/volumeattachments/a"))
            .forbidden(UNRELATED),
        by_node("a node reads roles").get(format!("{RBAC}/clusterroles")).forbidden("cannot list resource"),
        by_node("a node reads the log of a pod through the API")
            .get(format!("{PODS}/there/log"))
            .forbidden("pods/log"),
        by_node("a node runs a command through the API")
            .post(format!("{PODS}/there/exec?command=sh"), json!({}))
            .forbidden("pods/exec"),
        by_node("a node uses the proxy of another node")
            .get(format!("{NODES}/m/proxy/pods"))
            .forbidden("nodes/proxy"),
    ]
}

fn writing() -> Vec<Attack> {
    let labelled = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    let (own, other) = (format!("{NODES}/n"), format!("{NODES}/m"));
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let lease = |name: &str| json!({"metadata": {"name": name}});
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "there"}});
    vec![
        by_node("a node marks another node as not ready").patch(format!("{other}/status"), ready).forbidden("is not allowed to modify node \\\"m\\\""),
        by_node("a node taints another node").patch(&other, taint.clone()).forbidden("is not allowed to modify node \\\"m\\\""),
        by_node("a node taints itself").patch(&own, taint).forbidden("is not allowed to modify taints"),
        by_node("a node takes the role of a control plane").patch(&own, labelled("node-role.kubernetes.io/control-plane")).forbidden("is not allowed to modify labels"),
        by_node("a node takes a label of the restricted domain").patch(&own, labelled("team.node-restriction.kubernetes.io/a")).forbidden("is not allowed to modify labels"),
        by_node("a node creates another node").post(NODES, json!({"metadata": {"name": "q"}})).forbidden("is not allowed to modify node \\\"q\\\""),
        by_node("a node replaces another node").put(&other, json!({"metadata": {"name": "m"}})).forbidden("is not allowed to modify node \\\"m\\\""),
        by_node("a node deletes another node").delete(&other).forbidden("nodes \\\"m\\\" is forbidden"),
        by_node("a node deletes all nodes").delete(NODES).forbidden("cannot deletecollection resource"),
        by_node("a node creates a lease of another node").post(format!("{LEASES}/kube-node-lease/leases"), lease("m")).forbidden("with the same name as the requesting node"),
        by_node("a node takes the lease of a control loop").post(format!("{LEASES}/kube-system/leases"), lease("kube-scheduler")).forbidden("leases"),
        by_node("a node registers drivers of another node").post(format!("{STORAGE}/csinodes"), json!({"metadata": {"name": "m"}, "spec": {"drivers": []}})).forbidden("with the same name as the requesting node"),
        by_node("a node changes the status of another node's pod").patch(format!("{PODS}/there/status"), json!({"status": {"phase": "Failed"}})).forbidden("can only update pod status for pods"),
        by_node("a node deletes another node's pod").delete(format!("{PODS}/there")).forbidden("can only delete pods"),
        by_node("a node evicts another node's pod").post(format!("{PODS}/there/eviction"), eviction).forbidden("can only evict pods"),
        by_node("a node changes the image of its pod").patch(format!("{PODS}/here"), json!({"spec": {"containers": [{"name": "c", "image": "evil"}]}})).forbidden("pods \\\"here\\\" is forbidden"),
        by_node("a node binds a pod to itself").post(format!("{PODS}/there/binding"), json!({"metadata": {"name": "there"}, "target": {"kind": "Node", "name": "n"}})).forbidden("pods/binding"),
        by_node("a node adds a container to its pod").patch(format!("{PODS}/here/ephemeralcontainers"), json!({})).forbidden("pods/ephemeralcontainers"),
        by_node("a node labels its pod by its status").patch(format!("{PODS}/here/status"), json!({"metadata": {"labels": {"app": "web"}}})).forbidden("cannot update labels through pod status"),
        by_node("a node changes a service account").patch(format!("{ACCOUNTS}/robot"), json!({"secrets": []})).forbidden("cannot patch resource"),
        by_node("a node changes endpoints").put("/api/v1/namespaces/default/endpoints/web", json!({"metadata": {"name": "web"}})).forbidden("cannot update resource"),
        by_node("a node grants itself a role").post(format!("{RBAC}/clusterrolebindings"), json!({"metadata": {"name": "x"}, "roleRef": cluster_role("cluster-admin"), "subjects": user("system:node:n")})).forbidden("cannot create resource"),
        by_node("a node approves a signing request").patch(format!("{REQUESTS}/x/approval"), approved).forbidden("cannot patch resource"),
        by_node("a node deletes a namespace").delete(format!("{NAMESPACES}/other")).forbidden("cannot delete resource"),
        by_node("a node lists secrets with another method").send(Method::HEAD, SECRETS).refused(403, "", ""),
    ]
}

fn tokens(here: &Value, there: &Value) -> Vec<Attack> {
    let path = |account: &str| format!("{ACCOUNTS}/{account}/token");
    let bound = |kind: &str, name: &str, uid: &Value| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}});
    vec![
        by_node("a node requests a token that is bound to nothing")
            .post(path("robot"), json!({"spec": {}}))
            .forbidden("token not bound to a pod"),
        by_node("a node requests a token that is bound to a secret")
            .post(path("robot"), bound("Secret", "treasure", here))
            .forbidden("token not bound to a pod"),
        by_node("a node requests a token for another node's pod")
            .post(path("robot"), bound("Pod", "there", there))
            .forbidden("bound to a pod scheduled on a different node"),
        by_node("a node requests a token of an account that no pod of it uses")
            .post(path("idle"), bound("Pod", "here", here))
            .forbidden(UNRELATED),
        by_node("a node requests a token with the uid of another pod")
            .post(path("robot"), bound("Pod", "here", there))
            .forbidden("does not match the UID in record"),
    ]
}

/// Mirror pods that refer to objects which the agent could then read.
fn mirrors(node: &Value) -> Vec<Attack> {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node, "controller": true});
    let mirror = |change: &dyn Fn(&mut Value)| {
        let mut pod = json!({"metadata": {"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        change(&mut pod);
        pod
    };
    let volume = |source: Value| mirror(&|pod| pod["spec"]["volumes"] = json!([source]));
    let container =
        |field: &str, value: Value| mirror(&|pod| pod["spec"]["containers"][0][field] = value.clone());
    let by = |name, pod: Value| by_node(name).post(PODS, pod);
    let projected = |source: Value| json!({"name": "v", "projected": {"sources": [source]}});
    vec![
        by(
            "a mirror pod with a variable of a secret",
            container(
                "env",
                json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": "treasure", "key": "key"}}}]),
            ),
        )
        .forbidden("reference secrets"),
        by(
            "a mirror pod with all variables of a secret",
            container("envFrom", json!([{"secretRef": {"name": "treasure"}}])),
        )
        .forbidden("reference secrets"),
        by(
            "a mirror pod with a projected secret",
            volume(projected(json!({"secret": {"name": "treasure"}}))),
        )
        .forbidden("reference secrets"),
        by(
            "a mirror pod with a projected config map",
            volume(projected(json!({"configMap": {"name": "settings"}}))),
        )
        .forbidden("reference configmaps"),
        by(
            "a mirror pod with a pull secret",
            mirror(&|pod| pod["spec"]["imagePullSecrets"] = json!([{"name": "treasure"}])),
        )
        .forbidden("reference secrets"),
        by(
            "a mirror pod with a secret of a volume driver",
            volume(
                json!({"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "treasure"}}}),
            ),
        )
        .forbidden("reference secrets"),
        by(
            "a mirror pod with a service account",
            mirror(&|pod| pod["spec"]["serviceAccountName"] = json!("robot")),
        )
        .forbidden("reference a service account"),
        by(
            "a mirror pod that blocks the deletion of its node",
            mirror(&|pod| pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true)),
        )
        .forbidden("must not set blockOwnerDeletion"),
        by("a pod that is no mirror", mirror(&|pod| pod["metadata"]["annotations"] = json!({})))
            .forbidden("can only create mirror pods"),
    ]
}

#[tokio::test]
async fn a_node_reads_nothing_of_others() {
    Arena::start().await.run("Nodes that read", reading()).await;
}

#[tokio::test]
async fn a_node_writes_nothing_of_others() {
    Arena::start().await.run("Nodes that write", writing()).await;
}

#[tokio::test]
async fn a_node_gets_no_tokens_and_no_mirrors_for_more() {
    let arena = Arena::start().await;
    let uid = async |path: String| arena.cluster.read(&path).await["metadata"]["uid"].clone();
    let (here, there) = (uid(format!("{PODS}/here")).await, uid(format!("{PODS}/there")).await);
    arena.run("Nodes that request tokens", tokens(&here, &there)).await;
    arena.run("Mirror pods", mirrors(&uid(format!("{NODES}/n")).await)).await;
}
