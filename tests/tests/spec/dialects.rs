//! "Placeholders": with a domain and a vendor of one's own the service is the specification to the letter.

use super::*;
use names::Names;
use tests::{ApiResponse, Cluster, Options, escape};

async fn neutral() -> Cluster {
    Cluster::with(Options { names: Names::neutral("example.org", "acme"), ..Options::default() }).await
}

#[tokio::test]
async fn groups_are_in_the_domain() {
    let cluster = neutral().await;
    let groups = cluster.read("/apis").await;
    let found: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    for stem in ["node", "certificates", "coordination", "events"] {
        assert!(found.contains(&&json!(format!("{stem}.example.org"))), "{stem} in {found:?}");
    }
    cluster.get(CLASSES).await.code(404);
    let created = cluster.create("/apis/node.example.org/v1/runtimeclasses", runtime_class("a")).await;
    assert_eq!(created["apiVersion"], "node.example.org/v1");
}

#[tokio::test]
async fn media_types_are_the_vendors() {
    let cluster = neutral().await;
    let table = "application/json;as=Table;g=meta.example.org;v=v1";
    let answer = cluster.get(NAMESPACES).accept(table).await.code(200).json();
    assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("Table"), &json!("meta.example.org/v1")));
    let foreign = "application/json;as=Table;g=meta.k8s.io;v=v1";
    cluster.get(NAMESPACES).accept(foreign).await.refused(406, "NotAcceptable");
    let protobuf = "application/vnd.acme.protobuf";
    let answer = cluster.get(NAMESPACES).accept(protobuf).await.code(200);
    assert_eq!(answer.header("content-type"), protobuf);
    assert!(answer.body.starts_with(&[0x6b, 0x38, 0x73, 0x00]));
}

#[tokio::test]
async fn well_known_names_are_in_the_domain() {
    let cluster = neutral().await;
    let selector = escape("example.org/metadata.name=default");
    let list = cluster.read(&format!("{NAMESPACES}?labelSelector={selector}")).await;
    assert_eq!(names(&list), ["default"]);
    let all = cluster.read(NAMESPACES).await;
    assert!(names(&all).contains(&"cluster-system"), "{:?}", names(&all));
    let text = cluster.get(NAMESPACES).await.text();
    assert!(!text.contains("kubernetes"), "{text}");
}

#[tokio::test]
async fn errors_speak_of_the_domain() {
    let cluster = neutral().await;
    let status = cluster.get("/apis/node.example.org/v1/runtimeclasses/x").await.refused(404, "NotFound");
    assert_eq!(status["message"], "runtimeclasses.node.example.org \"x\" not found");
}

/// The requests of a client of a dialect, and the responses.
async fn script(names: &Names) -> Vec<(String, u16, Value)> {
    let cluster = Cluster::with(Options { names: names.clone(), ..Options::default() }).await;
    let (node, rbac) = (names.group("node"), names.group("rbac.authorization"));
    let (certificates, lease) = (names.group("certificates"), names.group("coordination"));
    let (reviews, storage) = (names.group("authorization"), names.group("storage"));
    let system = names.system_namespace();
    let mut done = Vec::new();
    let mut note = |what: &str, answer: ApiResponse| {
        let body: Value = serde_json::from_str(&answer.text()).unwrap_or_else(|_| answer.text().into());
        let warnings = answer.warnings();
        done.push((what.to_owned(), answer.status, json!({"body": body, "warnings": warnings})));
    };
    for path in ["/api", "/apis", "/api/v1", "/version", "/"] {
        note(path, cluster.get(path).await);
    }
    for group in [&node, &rbac, &storage] {
        let path = format!("/apis/{group}/v1");
        note(&path, cluster.get(&path).await);
    }
    let mut taken = pod("p");
    taken["metadata"]["labels"] = json!({names.well_known_under("app", "name"): "web"});
    taken["spec"]["runtimeClassName"] = "plain".into();
    let class = json!({"metadata": {"name": "standard", "annotations":
        {names.well_known_under("storageclass", "is-default-class"): "true"}}, "provisioner": "p.example"});
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [lease], "resources": ["leases"], "verbs": ["get"]}]});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "u"}]});
    let review = json!({"spec": {"user": "u", "resourceAttributes":
        {"verb": "get", "group": lease, "resource": "leases", "namespace": "default"}}});
    let request = json!({"metadata": {"name": "c"}, "spec": {"request": "bm9uc2Vuc2U=",
        "signerName": names.client_signer(), "usages": ["client auth"]}});
    let claim = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    for (path, object) in [
        (format!("/apis/{node}/v1/runtimeclasses"), runtime_class("plain")),
        (PODS.to_owned(), taken),
        (format!("/apis/{storage}/v1/storageclasses"), class),
        ("/api/v1/namespaces/default/persistentvolumeclaims".to_owned(), claim),
        (format!("/apis/{rbac}/v1/clusterroles"), role),
        (format!("/apis/{rbac}/v1/clusterrolebindings"), binding),
        (format!("/apis/{reviews}/v1/subjectaccessreviews"), review),
        (format!("/apis/{certificates}/v1/certificatesigningrequests"), request),
        (format!("/apis/{lease}/v1/namespaces/{system}/leases"), json!({"metadata": {"name": "l"}})),
        (NAMESPACES.to_owned(), json!({"metadata": {"name": "n"}})),
        (NAMESPACES.to_owned(), json!({"apiVersion": format!("{node}/v1"), "metadata": {"name": "wrong"}})),
        ("/api/v1/nodes".to_owned(), json!({"metadata": {"name": "one"}})),
    ] {
        note(&path, cluster.post(&path, object).await);
    }
    for path in ["/namespaces", "/namespaces/default/pods", "/nodes"] {
        let table = format!("application/json;as=Table;g={};v=v1", names.meta_group());
        note(path, cluster.get(&format!("/api/v1{path}")).accept(&table).await);
    }
    for path in [
        format!("/apis/{rbac}/v1/clusterroles/system:node"),
        format!("/apis/{rbac}/v1/namespaces/{system}/roles"),
        format!("/apis/{}/v1beta2/flowschemas", names.group("flowcontrol.apiserver")),
        format!("/apis/{}/v1/priorityclasses", names.group("scheduling")),
        format!("/apis/{node}/v1/runtimeclasses/missing"),
        format!("/api/v1/namespaces/{system}/configmaps"),
    ] {
        note(&path, cluster.get(&path).await);
    }
    done
}

/// Removes values that differ between servers, and sorts lists.
fn without_chance(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for chance in ["uid", "storageVersionHash", "resourceVersion", "serverAddress"] {
                fields.remove(chance);
            }
            fields.values_mut().for_each(without_chance);
            for list in ["items", "rows"] {
                if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
                    items.sort_by_key(Value::to_string);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_chance),
        _ => {}
    }
}

#[tokio::test]
async fn one_client_is_answered_alike_in_every_dialect() {
    let (known, own) = (Names::kubernetes(), Names::neutral("example.org", "acme"));
    let (known, own) = (script(&known).await, script(&own).await);
    assert_eq!(known.len(), own.len());
    // the table of the dialects, and nothing else, makes one of the other
    let spelled = |text: String| {
        let text = text.replace("kubernetes.io", "example.org").replace("k8s.io", "example.org");
        text.replace("kube-", "cluster-").replace("kubernetes", "acme")
    };
    for ((what, status, mut answer), (_, own_status, mut own_answer)) in known.into_iter().zip(own) {
        answer = serde_json::from_str(&spelled(answer.to_string())).unwrap();
        without_chance(&mut answer);
        without_chance(&mut own_answer);
        assert_eq!(status, own_status, "{what}: {own_answer}");
        assert_eq!(answer, own_answer, "{what}");
        assert!(status < 500, "{what}: {answer}");
    }
}
