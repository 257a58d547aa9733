//! The owner of a namespace, and a reader in it, outside of their permissions.

use super::arena::{Arena, Attack, Attacker, attack};
use super::*;
use http::Method;

const OTHER: &str = "/api/v1/namespaces/other";
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

fn by_owner(name: &'static str) -> Attack {
    attack(name).by(Attacker::Owner)
}

fn across_namespaces() -> Vec<Attack> {
    let of_other = |mut object: Value| {
        object["metadata"]["namespace"] = json!("other");
        object
    };
    let named = |name: &str| json!({"metadata": {"name": name}});
    let binding =
        json!({"metadata": {"name": "x", "namespace": "other"}, "target": {"kind": "Node", "name": "n"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "there", "namespace": "other"}});
    let review = json!({"spec": {"namespace": "other", "user": "x", "resourceAttributes": {"namespace": "other",
        "verb": "get", "resource": "secrets"}}});
    let token =
        json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "treasure"}}});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "kube-system", "name": "x"}});
    vec![
        by_owner("the owner of a namespace reads a secret of another")
            .get(format!("{OTHER}/secrets/treasure"))
            .forbidden("in the namespace \\\"other\\\""),
        by_owner("the owner of a namespace lists the secrets of all")
            .get("/api/v1/secrets")
            .forbidden("at the cluster scope"),
        by_owner("the owner of a namespace selects its own among all secrets")
            .get("/api/v1/secrets?fieldSelector=metadata.namespace%3Ddefault")
            .forbidden("at the cluster scope"),
        by_owner("the owner of a namespace writes an object that names another")
            .post(CONFIGMAPS, of_other(named("x")))
            .refused(400, "BadRequest", "does not match the namespace"),
        by_owner("the owner of a namespace moves an object by a patch")
            .patch(format!("{CONFIGMAPS}/settings"), json!({"metadata": {"namespace": "other"}}))
            .refused(400, "BadRequest", "does not match the namespace"),
        by_owner("the owner of a namespace binds a pod of another")
            .post(format!("{PODS}/here/binding"), binding)
            .refused(400, "BadRequest", "does not match the namespace"),
        by_owner("the owner of a namespace evicts a pod of another")
            .post(format!("{PODS}/there/eviction"), eviction)
            .refused(400, "BadRequest", "does not match the namespace"),
        by_owner("the owner of a namespace reviews access to another")
            .post("/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", review)
            .refused(422, "Invalid", "spec.resourceAttributes.namespace"),
        by_owner("the owner of a namespace requests a token of another's account")
            .post(format!("{SYSTEM}/serviceaccounts/default/token"), token)
            .forbidden("in the namespace \\\"kube-system\\\""),
        by_owner("the owner of a namespace writes an event about another")
            .post("/api/v1/namespaces/default/events", event)
            .refused(422, "Invalid", "involvedObject.namespace"),
        by_owner("the owner of a namespace runs a command in another")
            .post(format!("{SYSTEM}/pods/x/exec?command=sh"), json!({}))
            .forbidden("pods/exec"),
        by_owner("the owner of a namespace continues a list in another")
            .get(format!("{OTHER}/secrets?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9"))
            .forbidden("in the namespace \\\"other\\\""),
        by_owner("the owner of a namespace continues a list that climbs out of it")
            // {"v":"meta.k8s.io/v1","rv":-1,"start":"../other/a\u0000"}
            .get(format!("{SECRETS}?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vb3RoZXIvYVx1MDAwMCJ9"))
            .refused(400, "BadRequest", "continue key is not valid"),
    ]
}

fn of_the_cluster() -> Vec<Attack> {
    let named = |name: &str| json!({"metadata": {"name": name}});
    let forbidden = |case: Attack| case.forbidden("at the cluster scope");
    vec![
        forbidden(by_owner("the owner of a namespace lists nodes").get(NODES)),
        forbidden(
            by_owner("the owner of a namespace cordons a node")
                .patch(format!("{NODES}/n"), json!({"spec": {"unschedulable": true}})),
        ),
        forbidden(
            by_owner("the owner of a namespace uses the proxy of a node")
                .get(format!("{NODES}/n/proxy/pods")),
        ),
        forbidden(by_owner("the owner of a namespace creates a namespace").post(NAMESPACES, named("mine"))),
        forbidden(
            by_owner("the owner of a namespace creates a volume")
                .post("/api/v1/persistentvolumes", named("v")),
        ),
        forbidden(
            by_owner("the owner of a namespace installs a webhook")
                .post(format!("{ADMISSION}/mutatingwebhookconfigurations"), named("w")),
        ),
        forbidden(
            by_owner("the owner of a namespace removes webhooks")
                .delete(format!("{ADMISSION}/validatingwebhookconfigurations")),
        ),
        forbidden(
            by_owner("the owner of a namespace defines a resource")
                .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", named("things.example.com")),
        ),
        forbidden(
            by_owner("the owner of a namespace registers an API server")
                .post("/apis/apiregistration.k8s.io/v1/apiservices", named("v1.example.com")),
        ),
        forbidden(
            by_owner("the owner of a namespace replaces a built-in API")
                .put("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", named("v1.apps")),
        ),
        forbidden(
            by_owner("the owner of a namespace creates a priority class")
                .post("/apis/scheduling.k8s.io/v1/priorityclasses", named("highest")),
        ),
        forbidden(
            by_owner("the owner of a namespace gets seats for its requests")
                .post("/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas", named("mine")),
        ),
        forbidden(by_owner("the owner of a namespace binds a cluster role everywhere").post(
            format!("{RBAC}/clusterrolebindings"),
            json!({"metadata": {"name": "x"}, "roleRef": cluster_role("view"), "subjects": user("owner")}),
        )),
        forbidden(
            by_owner("the owner of a namespace deletes a runtime class")
                .delete("/apis/node.k8s.io/v1/runtimeclasses/x"),
        ),
        forbidden(
            by_owner("the owner of a namespace reviews a token")
                .post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": "x"}})),
        ),
    ]
}

fn of_a_reader() -> Vec<Attack> {
    let reader = |name| attack(name).by(Attacker::Reader);
    let upgrade = |case: Attack| {
        case.header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", "v4.channel.k8s.io")
    };
    vec![
        reader("a reader of pods runs a command by POST")
            .post(format!("{PODS}/here/exec?command=sh"), json!({}))
            .forbidden("pods/exec"),
        reader("a reader of pods runs a command by GET")
            .get(format!("{PODS}/here/exec?command=sh"))
            .forbidden("cannot get resource \\\"pods/exec\\\""),
        upgrade(reader("a reader of pods upgrades to a command").get(format!("{PODS}/here/exec?command=sh")))
            .forbidden("cannot get resource \\\"pods/exec\\\""),
        upgrade(reader("a reader of pods attaches to a container").get(format!("{PODS}/here/attach")))
            .forbidden("pods/attach"),
        upgrade(reader("a reader of pods forwards a port").get(format!("{PODS}/here/portforward")))
            .forbidden("pods/portforward"),
        reader("a reader of pods reads a log").get(format!("{PODS}/here/log")).forbidden("pods/log"),
        reader("a reader of pods uses their proxy")
            .get(format!("{PODS}/here/proxy/"))
            .forbidden("pods/proxy"),
        reader("a reader of pods uses their proxy with another method")
            .send(Method::OPTIONS, format!("{PODS}/here/proxy/"))
            .forbidden("pods/proxy"),
        reader("a reader of pods adds a container")
            .patch(format!("{PODS}/here/ephemeralcontainers"), json!({}))
            .forbidden("pods/ephemeralcontainers"),
        reader("a reader of pods changes a status")
            .patch(format!("{PODS}/here/status"), json!({"status": {"podIP": "10.0.0.1"}}))
            .forbidden("pods/status"),
        reader("a reader of config maps deletes by collection")
            .delete(CONFIGMAPS)
            .forbidden("cannot deletecollection resource"),
        reader("a reader of config maps creates one by an update")
            .put(format!("{CONFIGMAPS}/x"), json!({"metadata": {"name": "x"}}))
            .forbidden("cannot update resource"),
        reader("a reader of config maps creates one by apply")
            .send(Method::PATCH, format!("{CONFIGMAPS}/x?fieldManager=m"))
            .body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}))
            .header("content-type", "application/apply-patch+yaml")
            .forbidden("cannot patch resource"),
        reader("a reader of config maps overrides the method")
            .get(format!("{CONFIGMAPS}/settings?method=DELETE&_method=DELETE"))
            .header("x-http-method-override", "DELETE")
            .header("accept", "text/none")
            .refused(406, "NotAcceptable", ""),
        reader("a reader of config maps selects fields of secrets")
            .get(format!("{SECRETS}?fieldSelector=type%3DOpaque"))
            .forbidden("cannot list resource"),
    ]
}

#[tokio::test]
async fn an_owner_of_a_namespace_stays_in_it() {
    Arena::start().await.run("Other namespaces", across_namespaces()).await;
}

#[tokio::test]
async fn an_owner_of_a_namespace_has_nothing_of_the_cluster() {
    Arena::start().await.run("Objects of the cluster", of_the_cluster()).await;
}

#[tokio::test]
async fn a_reader_only_reads() {
    Arena::start().await.run("Readers", of_a_reader()).await;
}
