//! The image policy webhook.

use super::*;
use tests::{Cluster, HttpsServer, Options, ReceivedRequest, Reply};

/// Allows and fails by the name of the image.
fn by_image(seen: &ReceivedRequest) -> Reply {
    let spec = &seen.body["spec"];
    let image = |wanted: &str| spec["containers"].as_array().unwrap().iter().any(|it| it["image"] == wanted);
    if image("broken") {
        return Reply::Text(404, String::new());
    }
    let known = [
        ("odd", json!({"allowed": "yes"})),
        ("bad", json!({"allowed": false, "reason": "it is bad"})),
        ("none", json!({"allowed": false})),
    ];
    let status = known.into_iter().find(|(name, _)| image(name));
    let status = status.map_or(json!({"allowed": true}), |(_, status)| status);
    Reply::Json(json!({"apiVersion": seen.body["apiVersion"], "kind": "ImageReview", "status": status}))
}

async fn cluster(server: &HttpsServer, default_allow: bool) -> (Cluster, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(folder.path().join("ca.pem"), &server.certificate).unwrap();
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{}', certificate-authority: ca.pem}}}}]\n",
        server.url
    );
    std::fs::write(&file, text).unwrap();
    let configuration =
        json!({"imagePolicy": {"kubeConfigFile": file, "retryBackoff": 1, "defaultAllow": default_allow}});
    let options = Options::plugins(&["ImagePolicyWebhook"], &[], &[("ImagePolicyWebhook", configuration)]);
    (Cluster::with(options).await, folder)
}

fn with_image(name: &str, image: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"] = json!({"mine.image-policy.k8s.io/x": "y", "other": "z"});
    pod["spec"]["containers"][0]["image"] = image.into();
    pod
}

#[tokio::test]
async fn only_allowed_images_run() {
    let server = HttpsServer::start(by_image).await;
    let (cluster, _folder) = cluster(&server, false).await;
    cluster.create(PODS, with_image("a", "good")).await;
    let review = &server.requests()[0].body;
    assert_eq!([&review["kind"], &review["apiVersion"]], ["ImageReview", "imagepolicy.k8s.io/v1alpha1"]);
    let spec = json!({"containers": [{"image": "good"}], "annotations": {"mine.image-policy.k8s.io/x": "y"},
        "namespace": "default"});
    assert_eq!(review["spec"], spec);
    // responses are cached per image
    cluster.create(PODS, with_image("b", "good")).await;
    assert_eq!(server.count(), 1);
    cluster.advance(std::time::Duration::from_secs(301));
    cluster.create(PODS, with_image("c", "good")).await;
    assert_eq!(server.count(), 2);
    for (image, configuration) in [
        ("bad", "image policy webhook backend denied one or more images: it is bad"),
        ("none", "one or more images rejected by webhook backend"),
        ("broken", "the server responded with status 404 Not Found"),
        ("odd", "status.allowed in the server's answer is not what it should be"),
    ] {
        let refused = cluster.post(PODS, with_image("d", image)).await.refused(403, "Forbidden");
        assert_eq!(refused["message"], format!("pods \"d\" is forbidden: {configuration}"));
    }
    cluster.named(CONFIGMAPS, "a").await;
}

#[tokio::test]
async fn default_allow_runs_images_if_the_webhook_fails() {
    let server = HttpsServer::start(by_image).await;
    let (cluster, _folder) = cluster(&server, true).await;
    let created = cluster.create(PODS, with_image("a", "broken")).await;
    // the record of the request says so, and the pod does not
    assert_eq!(created["metadata"]["annotations"].as_object().unwrap().len(), 2, "{created}");
    cluster.post(PODS, with_image("b", "bad")).await.refused(403, "Forbidden");
}

#[tokio::test]
async fn a_policy_without_a_webhook_is_rejected() {
    let options = Options::plugins(&["ImagePolicyWebhook"], &[], &[]);
    let why = Cluster::attempt(options).await.err().unwrap().to_string();
    assert_eq!(why, "admission plugin ImagePolicyWebhook: no config specified");
}
