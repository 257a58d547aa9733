//! Discovery, `/version`, the index and `/metrics`.

use super::*;
use tests::Cluster;

fn resource<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list["resources"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {list}"))
}

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

#[tokio::test]
async fn the_core_group_is_at_api() {
    let cluster = Cluster::start().await;
    for path in ["/api", "/api/"] {
        let versions = cluster.read(path).await;
        assert_eq!((&versions["kind"], &versions["versions"]), (&json!("APIVersions"), &json!(["v1"])));
    }
}

#[tokio::test]
async fn named_groups_are_at_apis() {
    let cluster = Cluster::start().await;
    let list = cluster.read("/apis").await;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    for name in ["events.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "node.k8s.io"] {
        let group = list["groups"].as_array().unwrap().iter().find(|group| group["name"] == name).unwrap();
        let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
        assert_eq!((&group["versions"], &group["preferredVersion"]), (&json!([version]), &version));
        let alone = cluster.read(&format!("/apis/{name}")).await;
        assert_eq!((&alone["kind"], &alone["name"]), (&json!("APIGroup"), &json!(name)));
    }
}

#[tokio::test]
async fn resources_are_listed_with_verbs_and_short_names() {
    let cluster = Cluster::start().await;
    let list = cluster.read("/api/v1").await;
    assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!("v1")));
    for (name, kind, namespaced, short) in [
        ("pods", "Pod", true, json!(["po"])),
        ("configmaps", "ConfigMap", true, json!(["cm"])),
        ("serviceaccounts", "ServiceAccount", true, json!(["sa"])),
        ("events", "Event", true, json!(["ev"])),
        ("secrets", "Secret", true, Value::Null),
        ("nodes", "Node", false, json!(["no"])),
    ] {
        let one = resource(&list, name);
        assert_eq!((&one["kind"], &one["namespaced"]), (&json!(kind), &json!(namespaced)));
        assert_eq!(one["verbs"], json!(VERBS), "{name}");
        assert_eq!(one.get("shortNames").unwrap_or(&Value::Null), &short, "{name}");
        assert!(!one["storageVersionHash"].as_str().unwrap().is_empty());
    }
    assert_eq!(resource(&list, "pods")["categories"], json!(["all"]));
    let namespaces = resource(&list, "namespaces")["verbs"].as_array().unwrap();
    assert!(!namespaces.contains(&json!("deletecollection")));
}

#[tokio::test]
async fn subresources_are_listed_beside_their_resource() {
    let cluster = Cluster::start().await;
    let core = cluster.read("/api/v1").await;
    for name in ["pods/status", "nodes/status", "namespaces/status"] {
        assert_eq!(resource(&core, name)["verbs"], json!(["get", "patch", "update"]));
    }
    assert_eq!(resource(&core, "namespaces/finalize")["verbs"], json!(["update"]));
    let certificates = cluster.read("/apis/certificates.k8s.io/v1").await;
    for part in ["approval", "status"] {
        let one = resource(&certificates, &format!("certificatesigningrequests/{part}"));
        assert_eq!(one["kind"], "CertificateSigningRequest");
        assert_eq!(one["verbs"], json!(["get", "patch", "update"]));
    }
}

#[tokio::test]
async fn listed_resources_are_served() {
    let cluster = Cluster::start().await;
    let mut versions = vec!["/api/v1".to_owned()];
    for group in cluster.read("/apis").await["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    for base in versions {
        for one in cluster.read(&base).await["resources"].as_array().unwrap() {
            let name = one["name"].as_str().unwrap();
            if one["verbs"].as_array().unwrap().contains(&json!("list")) {
                let list = cluster.read(&format!("{base}/{name}")).await;
                assert_eq!(list["kind"], format!("{}List", one["kind"].as_str().unwrap()));
            }
        }
    }
}

#[tokio::test]
async fn discovery_is_negotiated_too() {
    let cluster = Cluster::start().await;
    let yaml = cluster.get("/api").accept("application/yaml").await.code(200);
    assert!(yaml.text().starts_with("kind: APIVersions\n"), "{}", yaml.text());
    // the aggregated form of later releases is not known here, and clients fall back
    let newer = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    cluster.get("/apis").accept(newer).await.refused(406, "NotAcceptable");
    let list = cluster.get("/apis").accept(&format!("{newer},application/json")).await.code(200).json();
    assert_eq!(list["kind"], "APIGroupList");
}

/// Scripts compare the text.
#[tokio::test]
async fn documents_have_their_keys_in_the_order_of_their_types() {
    let cluster = Cluster::start().await;
    let text = async |path: &str| cluster.get(path).await.code(200).text();
    let api = text("/api").await;
    let start = r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":""#;
    assert!(api.starts_with(start), "{api}");
    let version = r#"{"groupVersion":"apps/v1","version":"v1"}"#;
    let rest = format!(r#""name":"apps","versions":[{version}],"preferredVersion":{version}}}"#);
    assert_eq!(text("/apis/apps").await, format!(r#"{{"kind":"APIGroup","apiVersion":"v1",{rest}"#));
    let apis = text("/apis").await;
    assert!(apis.starts_with(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"#), "{apis}");
    assert!(apis.contains(&format!("{{{rest}")), "{apis}");
    let core = text("/api/v1").await;
    let start = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"bindings","singularName":"","namespaced":true,"kind":"Binding","verbs":["create"]}"#;
    assert!(core.starts_with(start), "{core}");
    let apps = text("/apis/apps/v1").await;
    assert!(
        apps.starts_with(r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","#),
        "{apps}"
    );
    let scale = r#"{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}"#;
    assert!(apps.contains(scale), "{apps}");
    let hash = r#""shortNames":["deploy"],"categories":["all"],"storageVersionHash":""#;
    assert!(apps.contains(hash), "{apps}");
    // these two are indented in every format
    assert!(text("/version").await.starts_with("{\n  \"major\": \"1\",\n  \"minor\": \"26\",\n"));
    let index = cluster.get("/").accept("application/yaml").await.code(200);
    assert!(index.text().starts_with("{\n  \"paths\": [\n    \"/api\",\n    \"/api/v1\",\n"));
}

#[tokio::test]
async fn the_version_is_that_of_the_api() {
    let cluster = Cluster::start().await;
    let version = cluster.read("/version").await;
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("26")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.26."), "{version}");
    for field in ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"] {
        assert!(version[field].is_string(), "{field}: {version}");
    }
    let commit = version["gitCommit"].as_str().unwrap();
    assert!(!commit.is_empty() && commit.bytes().all(|c| c.is_ascii_hexdigit()), "{commit}");
}

#[tokio::test]
async fn the_index_lists_paths_that_exist() {
    let cluster = Cluster::start().await;
    let index = cluster.read("/").await;
    let paths: Vec<_> =
        index["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    for path in
        ["/api", "/api/v1", "/apis", "/apis/node.k8s.io/v1", "/healthz", "/livez/ping", "/readyz", "/version"]
    {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
    assert!(paths.is_sorted());
    for path in paths {
        // the documents below it have names, and it is none of them
        let expected = if path == "/openapi/v3/" { 404 } else { 200 };
        assert_eq!(cluster.get(path).await.status, expected, "{path}");
    }
}

#[tokio::test]
async fn metrics_count_requests_and_objects() {
    let cluster = Cluster::start().await;
    cluster.named(CONFIGMAPS, "a").await;
    let answer = cluster.get("/metrics").await.code(200);
    let text = answer.text();
    let sample = |name: &str, labels: &[&str]| {
        let fits = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
        let line = text.lines().find(fits).unwrap_or_else(|| panic!("no {name} {labels:?} in {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let labels = ["verb=\"POST\"", "resource=\"configmaps\"", "code=\"201\""];
    assert_eq!(sample("apiserver_request_total", &labels), 1.0);
    // the server keeps one itself
    assert_eq!(sample("apiserver_storage_objects", &["resource=\"configmaps\""]), 2.0);
    // names that do not exist make no counters
    cluster.get("/api/v1/namespaces/default/inventions").await.code(404);
    assert!(!cluster.get("/metrics").await.code(200).text().contains("inventions"));
}

#[tokio::test]
async fn unchanged_documents_are_not_sent_again() {
    let cluster = Cluster::start().await;
    for path in ["/api", "/apis", "/apis/apps", "/api/v1", "/apis/apps/v1", "/openapi/v2", "/openapi/v3"] {
        let first = cluster.get(path).await.code(200);
        let tag = first.header("etag").to_owned();
        assert!(tag.len() > 60 && tag.starts_with('"') && tag.ends_with('"'), "{path}: {tag}");
        for have in [tag.clone(), format!("W/{tag}, \"other\""), "*".to_owned()] {
            let again = cluster.get(path).header("if-none-match", &have).await.code(304);
            assert_eq!((again.text().as_str(), again.header("etag")), ("", tag.as_str()), "{path}");
            assert_eq!(again.header("content-type"), "");
        }
        let other = cluster.get(path).header("if-none-match", "\"other\"").await.code(200);
        assert_eq!(other.body, first.body, "{path}");
    }
    // another form of a document is another document
    let plain = cluster.get("/apis").await.header("etag").to_owned();
    for form in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
        let other = cluster.get("/apis").accept(form).header("if-none-match", &plain).await.code(200);
        assert_ne!(other.header("etag"), plain);
        cluster.get("/apis").accept(form).header("if-none-match", other.header("etag")).await.code(304);
    }
}
