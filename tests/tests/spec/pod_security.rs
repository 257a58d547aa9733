//! Pod Security Standards: levels of namespaces.

use super::pod_plugins::{message, plugins, refused_start};
use super::*;
use apiserver::audit::{self, Format, LogOptions, Mode, Policy, Rotation, Target};
use http::Method;
use tests::{Cluster, Options};

const MARK: &str = "pod-security.kubernetes.io";
const SPACE: &str = "/api/v1/namespaces/s";
const IN_SPACE: &str = "/api/v1/namespaces/s/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/s/deployments";

/// Labels that ask for something: `[("enforce", "baseline")]`.
fn labels(levels: &[(&str, &str)]) -> Value {
    levels
        .iter()
        .map(|(name, value)| (format!("{MARK}/{name}"), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A cluster with a namespace that asks for something.
async fn asking(options: Options, levels: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::with(options).await;
    cluster.labelled(NAMESPACES, "s", labels(levels)).await;
    cluster
}

fn sharing(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["hostPID"] = true.into();
    pod
}

/// As little as a pod can do with.
fn frugal(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}

fn deployment(pod: Value) -> Value {
    let labels = json!({"app": "d"});
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod["spec"]}}})
}

#[tokio::test]
async fn pods_are_held_to_the_level_of_their_namespace() {
    let levels = [("enforce", "baseline"), ("enforce-version", "v1.24"), ("warn", "restricted")];
    let cluster = asking(Options::default(), &levels).await;
    let why = "violates PodSecurity \"baseline:v1.24\": host namespaces (hostPID=true)";
    let refused = cluster.post(IN_SPACE, sharing("p")).await;
    assert_eq!(refused.warnings(), Vec::<String>::new());
    let refused = refused.refused(403, "Forbidden");
    assert_eq!(refused["message"], format!("pods \"p\" is forbidden: {why}"));
    assert_eq!(refused["details"], json!({"name": "p", "kind": "pods"}));
    // by whatever way it comes, and whatever is there already
    let applied =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": sharing("p")["spec"]});
    let apply = cluster.request(Method::PATCH, &format!("{IN_SPACE}/p?fieldManager=m")).body(applied);
    apply.content_type("application/apply-patch+yaml").await.refused(403, "Forbidden");
    let warned = cluster.post(IN_SPACE, pod("p")).await.code(201).warnings();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("would violate PodSecurity \\\"restricted:latest\\\""), "{warned:?}");
    cluster.post(IN_SPACE, sharing("p")).await.refused(403, "Forbidden");
    cluster.post(IN_SPACE, pod("p")).await.refused(409, "AlreadyExists");
    assert!(cluster.post(IN_SPACE, frugal("q")).await.code(201).warnings().is_empty());
    // a namespace that says nothing gets no opinion
    assert!(cluster.post(PODS, sharing("p")).await.code(201).warnings().is_empty());
    let counted = cluster.get("/metrics").await.code(200).text();
    let labels = "decision=\"deny\",mode=\"enforce\",policy_level=\"baseline\",policy_version=\"v1.24\"";
    assert!(counted.contains(&format!("pod_security_evaluations_total{{{labels},")), "{counted}");
}

#[tokio::test]
async fn only_relevant_changes_are_checked_again() {
    let cluster = asking(Options::default(), &[]).await;
    cluster.create(IN_SPACE, sharing("p")).await;
    cluster.patch(SPACE, json!({"metadata": {"labels": labels(&[("enforce", "baseline")])}})).await.code(200);
    let path = format!("{IN_SPACE}/p");
    cluster.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
    cluster.patch(&path, json!({"spec": {"activeDeadlineSeconds": 100}})).await.code(200);
    cluster.patch(&format!("{path}/status"), json!({"status": {"reason": "r"}})).await.code(200);
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}]);
    cluster.patch(&path, image).await.refused(403, "Forbidden");
    // containers that join later are containers
    cluster.create(IN_SPACE, frugal("q")).await;
    let joins = |context: Value| {
        let one = json!({"name": "e", "image": "i", "securityContext": context});
        cluster.patch(
            &format!("{IN_SPACE}/q/ephemeralcontainers"),
            json!({"spec": {"ephemeralContainers": [one]}}),
        )
    };
    let refused = joins(json!({"capabilities": {"add": ["SYS_ADMIN"]}})).await.refused(403, "Forbidden");
    assert!(message(&refused).contains("container \"e\" must not include \"SYS_ADMIN\""), "{refused}");
    joins(json!({})).await.code(200);
}

#[tokio::test]
async fn workloads_only_get_warnings() {
    let cluster = asking(Options::default(), &[("enforce", "baseline")]).await;
    let answer = cluster.post(DEPLOYMENTS, deployment(sharing("p"))).await.code(201);
    let expected =
        "299 - \"would violate PodSecurity \\\"baseline:latest\\\": host namespaces (hostPID=true)\"";
    assert_eq!(answer.warnings(), [expected]);
    let scale = cluster.patch(&format!("{DEPLOYMENTS}/d/scale"), json!({"spec": {"replicas": 3}})).await;
    assert!(scale.code(200).warnings().is_empty());
    assert!(cluster.post(DEPLOYMENTS, deployment(frugal("p"))).await.warnings().is_empty());
}

#[tokio::test]
async fn a_stricter_level_warns_of_existing_pods() {
    let cluster = asking(Options::default(), &[]).await;
    for name in ["a0", "a1", "a2"] {
        cluster.create(IN_SPACE, sharing(name)).await;
    }
    for name in ["b0", "b1"] {
        cluster.create(IN_SPACE, pod(name)).await;
    }
    cluster.create(IN_SPACE, frugal("c")).await;
    let ask = |levels: &[(&str, &str)]| {
        let labels = json!({"metadata": {"labels": labels(levels)}});
        let request = cluster.patch(SPACE, labels);
        async { request.await.code(200).warnings() }
    };
    let head = |standard: &str| {
        format!(
            "299 - \"existing pods in namespace \\\"s\\\" violate the new PodSecurity enforce level \\\"{standard}\\\"\""
        )
    };
    let version = ("enforce-version", "v1.5");
    let configuration = ask(&[("enforce", "restricted"), version]).await;
    let expected = [
        head("restricted:v1.5"),
        "299 - \"a0 (and 2 other pods): host namespaces, runAsNonRoot != true\"".to_owned(),
        "299 - \"b0 (and 1 other pod): runAsNonRoot != true\"".to_owned(),
    ];
    assert_eq!(configuration, expected);
    // the same, or less, is no news
    assert!(ask(&[("enforce", "restricted")]).await.is_empty());
    assert!(ask(&[("enforce", "baseline")]).await.is_empty());
    assert_eq!(ask(&[("enforce-version", "latest")]).await[0], head("baseline:latest"));
    assert!(ask(&[("warn", "restricted")]).await.is_empty());
}

#[tokio::test]
async fn invalid_labels_are_rejected() {
    let cluster = Cluster::start().await;
    let levels = [("enforce", "some"), ("audit-version", "1.5"), ("warn", "Baseline"), ("other", "x")];
    let object = json!({"metadata": {"name": "s", "labels": labels(&levels)}});
    let refused = cluster.post(NAMESPACES, object).await.refused(422, "Invalid");
    let expected = ["enforce", "audit-version", "warn"].map(|name| format!("metadata.labels[{MARK}/{name}]"));
    assert_eq!(fields(&refused), expected);
    cluster.named(NAMESPACES, "s").await;
    let bad = json!({"metadata": {"labels": labels(&[("enforce-version", "v1.01")])}});
    cluster.patch(SPACE, bad).await.refused(422, "Invalid");
}

#[tokio::test]
async fn invalid_stored_labels_count_as_restricted() {
    let directory = tempfile::tempdir().unwrap();
    let on = |disable: &[&str]| Options {
        store: apiserver::StoreChoice::Directory(directory.path().to_owned()),
        admission: apiserver::admission::Options {
            disable: disable.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        },
        ..Options::default()
    };
    let cluster = asking(on(&["PodSecurity", "ServiceAccount"]), &[("enforce", "some")]).await;
    cluster.stop().await;
    let cluster = Cluster::with(on(&["ServiceAccount"])).await;
    let refused = cluster.post(IN_SPACE, pod("p")).await.refused(403, "Forbidden");
    assert!(message(&refused).contains("violates PodSecurity \"restricted:latest\""), "{refused}");
    cluster.create(IN_SPACE, frugal("p")).await;
    // existing violations may stay
    cluster.patch(SPACE, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
    let worse = json!({"metadata": {"labels": labels(&[("warn", "x")])}});
    cluster.patch(SPACE, worse).await.refused(422, "Invalid");
}

#[tokio::test]
async fn the_operator_sets_defaults_and_exemptions() {
    let configuration = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline", "enforce-version": "v1.20"},
        "exemptions": {"usernames": ["trusted"], "namespaces": ["s"], "runtimeClasses": ["own"]}});
    let cluster = asking(plugins(&[], &[("PodSecurity", configuration)]), &[]).await;
    let refused = cluster.post(PODS, sharing("p")).await.refused(403, "Forbidden");
    assert!(message(&refused).contains("\"baseline:v1.20\""), "{refused}");
    cluster.create(IN_SPACE, sharing("p")).await;
    cluster.create(CLASSES, runtime_class("own")).await;
    let mut own = sharing("own");
    own["spec"]["runtimeClassName"] = "own".into();
    cluster.create(PODS, own).await;
    let rule = json!([{"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    cluster.create(&format!("{roles}/clusterroles"), json!({"metadata": {"name": "r"}, "rules": rule})).await;
    let bind = json!({"metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "r"}, "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "trusted"},
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "other"}]});
    cluster.create(&format!("{roles}/clusterrolebindings"), bind).await;
    let by = |user: &str| cluster.post(PODS, sharing(user)).header("impersonate-user", user);
    by("trusted").await.code(201);
    by("other").await.refused(403, "Forbidden");
    // labels of an exempt namespace cause a warning
    let levels = json!({"metadata": {"labels": labels(&[("enforce", "restricted")])}});
    let configuration = cluster.patch(SPACE, levels).await.code(200).warnings();
    let expected = "299 - \"namespace \\\"s\\\" is exempt from Pod Security, and the policy \
                    (enforce=restricted:v1.20) will be ignored\"";
    assert_eq!(configuration, [expected]);
    let bad =
        json!({"apiVersion": "v1", "kind": "PodSecurityConfiguration", "defaults": {"enforce": "some"}});
    let why = refused_start(plugins(&[], &[("PodSecurity", bad)])).await;
    assert!(why.contains("PodSecurity: apiVersion: ") && why.contains("defaults.enforce: "), "{why}");
}

#[tokio::test]
async fn violations_are_recorded_in_audit_annotations() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
    let log = LogOptions {
        target: Target::File(file.clone()),
        format: Format::Json,
        rotation: Rotation::default(),
        mode: Mode::Blocking,
        truncate: None,
    };
    let audit = audit::Options {
        policy: Some(Policy::parse(policy, &::names::Names::kubernetes()).unwrap()),
        log: Some(log),
        webhook: None,
    };
    let levels = [("enforce", "baseline"), ("audit", "restricted"), ("audit-version", "v1.5")];
    let cluster = asking(Options { audit, ..Options::default() }, &levels).await;
    cluster.post(IN_SPACE, sharing("p")).await.refused(403, "Forbidden");
    cluster.post(DEPLOYMENTS, deployment(frugal("p"))).await.code(201);
    cluster.stop().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |plural: &str| {
        let is = |event: &&Value| {
            event["verb"] == "create"
                && event["stage"] == "ResponseComplete"
                && event["objectRef"]["resource"] == plural
        };
        events.iter().find(is).unwrap_or_else(|| panic!("{text}"))["annotations"].clone()
    };
    let pods = of("pods");
    assert_eq!(pods[format!("{MARK}/enforce-policy")], "baseline:latest");
    let why = "would violate PodSecurity \"restricted:v1.5\": host namespaces (hostPID=true), runAsNonRoot != true (pod \
               or container \"c\" must set securityContext.runAsNonRoot=true)";
    assert_eq!(pods[format!("{MARK}/audit-violations")], why);
    assert_eq!(of("deployments")[format!("{MARK}/audit-violations")], Value::Null);
}
