//! "API versioning and deprecation": served versions, and warnings about deprecated ones.

use super::*;
use tests::{Cluster, Options};

async fn serving(pairs: &str) -> Cluster {
    let serving = kinds::Serving::parse(pairs.split(','), &names::Names::kubernetes()).unwrap();
    Cluster::with(Options { serving, ..Options::default() }).await
}

#[tokio::test]
async fn versions_are_turned_on_and_off() {
    let cluster = serving("api/alpha=true,batch/v1=false,apps/v1/daemonsets=false").await;
    let listed = cluster.read("/apis").await.to_string();
    assert!(listed.contains("resource.k8s.io/v1alpha1") && !listed.contains("batch/v1"), "{listed}");
    cluster.get("/apis/resource.k8s.io/v1alpha1/resourceclaims").await.code(200);
    cluster.get("/apis/batch/v1/jobs").await.code(404);
    cluster.get("/apis/apps/v1/daemonsets").await.refused(404, "NotFound");
    cluster.get("/apis/apps/v1/deployments").await.code(200);
    let paths = cluster.read("/openapi/v2").await["paths"].clone();
    assert!(
        paths.get("/apis/apps/v1/deployments").is_some() && paths.get("/apis/apps/v1/daemonsets").is_none()
    );
    let index = cluster.read("/openapi/v3").await["paths"].clone();
    assert!(index.get("apis/batch/v1").is_none() && index.get("apis/resource.k8s.io/v1alpha1").is_some());
}

#[tokio::test]
async fn a_version_is_served_without_the_one_it_is_stored_as() {
    let cluster = serving("storage.k8s.io/v1=false").await;
    let path = "/apis/storage.k8s.io/v1beta1/namespaces/default/csistoragecapacities";
    let created = cluster.create(path, json!({"metadata": {"name": "a"}, "storageClassName": "s"})).await;
    assert_eq!(created["apiVersion"], "storage.k8s.io/v1beta1");
    let listed = cluster.read(path).await;
    assert_eq!(listed["apiVersion"], "storage.k8s.io/v1beta1");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn deprecated_versions_warn() {
    let cluster = Cluster::start().await;
    let warned = |path: &'static str| {
        let cluster = &cluster;
        async move { cluster.get(path).await.warnings() }
    };
    let expect = "299 - \"flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema is deprecated in v1.26+, unavailable in \
                  v1.29+; use flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema\"";
    assert_eq!(warned("/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas").await, [expect]);
    // refusals too
    assert_eq!(warned("/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas/none").await, [expect]);
    assert!(warned("/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas").await.is_empty());
    assert_eq!(
        warned("/api/v1/componentstatuses").await,
        ["299 - \"v1 ComponentStatus is deprecated in v1.19+\""]
    );
}

#[tokio::test]
async fn a_later_release_serves_no_removed_versions() {
    let release = schema::table::Release { major: 1, minor: 29 };
    let serving = kinds::Serving::default().at(release);
    let cluster = Cluster::with(Options { serving, ..Options::default() }).await;
    let listed = cluster.read("/apis").await.to_string();
    assert!(!listed.contains("flowcontrol.apiserver.k8s.io/v1beta2"), "{listed}");
    assert!(!listed.contains("storage.k8s.io/v1beta1"), "{listed}");
    cluster.get("/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas").await.code(404);
    // objects stored in removed versions stay, and deprecated versions warn
    let next = cluster.get("/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas").await.code(200);
    assert_eq!(
        next.warnings(),
        [
            "299 - \"flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+\""
        ]
    );
    assert!(!next.json()["items"].as_array().unwrap().is_empty());
    let paths = cluster.read("/openapi/v2").await["paths"].clone();
    assert!(paths.get("/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas").is_none());
}
