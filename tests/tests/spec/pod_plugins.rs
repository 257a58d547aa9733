//! Plugins for pods and events: service accounts, node selectors, tolerations, rate limits.

use super::*;
use std::time::Duration;
use tests::{Cluster, Options};

const SPACE: &str = "/api/v1/namespaces/default";

/// Options with enabled plugins and plugin configurations.
pub(super) fn plugins(enable: &[&str], configuration: &[(&str, Value)]) -> Options {
    Options::plugins(enable, &[], configuration)
}

/// Why a server does not start.
pub(super) async fn refused_start(options: Options) -> String {
    match Cluster::attempt(options).await {
        Ok(_) => panic!("it started"),
        Err(why) => why.to_string(),
    }
}

pub(super) fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// The namespace's annotations.
async fn annotate(cluster: &Cluster, key: &str, value: &str) {
    let key = format!("scheduler.alpha.kubernetes.io/{key}");
    cluster.patch(SPACE, json!({"metadata": {"annotations": {key: value}}})).await.code(200);
}

async fn with_accounts() -> Cluster {
    let cluster = Cluster::with(plugins(&["ServiceAccount"], &[])).await;
    let default = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]});
    cluster.create(ACCOUNTS, default).await;
    cluster
}

#[tokio::test]
async fn pods_run_as_an_account_that_exists() {
    let cluster = Cluster::with(plugins(&["ServiceAccount"], &[])).await;
    let refused = cluster.post(PODS, pod("p")).await.refused(403, "Forbidden");
    let why = "error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!(refused["message"], format!("pods \"p\" is forbidden: {why}"));
    cluster.named(ACCOUNTS, "default").await;
    let created = cluster.create(PODS, pod("p")).await;
    assert_eq!(
        (&created["spec"]["serviceAccountName"], &created["spec"]["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    let mut other = pod("q");
    other["spec"]["serviceAccountName"] = "other".into();
    let refused = cluster.post(PODS, &other).await.refused(403, "Forbidden");
    assert!(message(&refused).contains("default/other: serviceaccount \"other\" not found"), "{refused}");
    cluster.named(ACCOUNTS, "other").await;
    cluster.create(PODS, other).await;
}

#[tokio::test]
async fn pods_find_the_server_by_a_volume() {
    let cluster = with_accounts().await;
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut object = pod("p");
    object["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
    let own = json!({"name": "own", "image": "i", "volumeMounts": [{"name": "v", "mountPath": path}]});
    object["spec"]["containers"].as_array_mut().unwrap().push(own);
    object["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let created = cluster.create(PODS, object).await;
    let volume = &created["spec"]["volumes"][1];
    let name = volume["name"].as_str().unwrap();
    assert_eq!((name.len(), name.starts_with("kube-api-access-")), ("kube-api-access-".len() + 5, true));
    let expected = json!({"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]});
    assert_eq!(volume["projected"], expected);
    let mount = json!([{"name": name, "readOnly": true, "mountPath": path}]);
    assert_eq!(created["spec"]["initContainers"][0]["volumeMounts"], mount);
    assert_eq!(created["spec"]["containers"][0]["volumeMounts"], mount);
    // an existing mount is kept
    assert_eq!(created["spec"]["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
    assert_eq!(created["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    // pod or account may decline, and the pod has the last word
    cluster
        .create(ACCOUNTS, json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false}))
        .await;
    for (account, said, mounted) in
        [("default", json!(false), false), ("quiet", Value::Null, false), ("quiet", json!(true), true)]
    {
        let mut object = pod("q");
        object["spec"]["serviceAccountName"] = account.into();
        object["spec"]["automountServiceAccountToken"] = said;
        let created = cluster.post(&format!("{PODS}?dryRun=All"), object).await.code(201).json();
        assert_eq!(created["spec"]["volumes"].is_array(), mounted, "{account} {created}");
    }
}

#[tokio::test]
async fn an_account_can_limit_its_pods_to_its_secrets() {
    let cluster = with_accounts().await;
    let account = json!({"metadata": {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]});
    cluster.create(ACCOUNTS, account).await;
    let with = |spec: Value, container: Value| {
        let mut pod = pod("p");
        pod["spec"]["serviceAccountName"] = "strict".into();
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        pod
    };
    let variable = |secret: &str| json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]});
    let whole = |secret: &str| json!({"envFrom": [{"secretRef": {"name": secret}}]});
    let first = |container: Value| {
        let mut container = container;
        (container["name"], container["image"]) = ("i".into(), "i".into());
        json!({"initContainers": [container]})
    };
    let volume = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
    let end = "is not allowed because service account strict does not reference that";
    for (spec, container, why) in [
        (volume("other"), json!({}), "volume with secret.secretName=\"other\""),
        (json!({}), variable("other"), "container c with envVar A referencing secret.secretName=\"other\""),
        (json!({}), whole("other"), "container c with envFrom referencing secret.secretName=\"other\""),
        (
            first(variable("other")),
            json!({}),
            "init container i with envVar A referencing secret.secretName=\"other\"",
        ),
        (json!({"imagePullSecrets": [{"name": "mine"}]}), json!({}), "imagePullSecrets[0].name=\"mine\""),
    ] {
        let refused = cluster.post(PODS, with(spec, container)).await.refused(403, "Forbidden");
        assert!(message(&refused).contains(&format!("{why} {end}")), "{refused}");
    }
    let mut good = with(volume("mine"), variable("mine"));
    good["spec"]["containers"][0]["envFrom"] = whole("mine")["envFrom"].clone();
    cluster.create(PODS, good).await;
    // ephemeral containers are limited too
    let joins = |mut container: Value| {
        (container["name"], container["image"]) = ("e".into(), "i".into());
        cluster.patch(
            &format!("{PODS}/p/ephemeralcontainers"),
            json!({"spec": {"ephemeralContainers": [container]}}),
        )
    };
    for container in [variable("other"), whole("other")] {
        let refused = joins(container).await.refused(403, "Forbidden");
        assert!(message(&refused).contains("ephemeral container e with env"), "{refused}");
    }
    joins(variable("mine")).await.code(200);
}

#[tokio::test]
async fn mirrored_pods_have_no_account() {
    let cluster = with_accounts().await;
    let mirror = |name: &str, more: Value| {
        let mut pod = assigned_pod(name);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pod
    };
    let created = cluster.create(PODS, mirror("p", json!({}))).await;
    assert_eq!(
        (&created["spec"]["serviceAccountName"], &created["spec"]["volumes"]),
        (&Value::Null, &Value::Null)
    );
    let projected = |source: Value| json!({"volumes": [{"name": "v", "projected": {"sources": [source]}}]});
    for (more, why) in [
        (json!({"serviceAccountName": "default"}), "reference service accounts"),
        (json!({"imagePullSecrets": [{"name": "s"}]}), "reference secrets"),
        (projected(json!({"secret": {"name": "s"}})), "reference secrets"),
        (
            projected(json!({"serviceAccountToken": {"path": "t"}})),
            "use ServiceAccountToken volume projections",
        ),
    ] {
        let refused = cluster.post(PODS, mirror("q", more)).await.refused(403, "Forbidden");
        assert!(message(&refused).ends_with(&format!("a mirror pod may not {why}")), "{refused}");
    }
}

#[tokio::test]
async fn pods_go_to_the_nodes_of_their_namespace() {
    let configuration = json!({"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "pool=all", "default": "pool=all,zone=a"}});
    let cluster = Cluster::with(plugins(&["PodNodeSelector"], &[("PodNodeSelector", configuration)])).await;
    let make = |selector: Value| {
        let mut pod = pod("p");
        pod["spec"]["nodeSelector"] = selector;
        cluster.post(&format!("{PODS}?dryRun=All"), pod)
    };
    let created = make(json!({"zone": "a"})).await.code(201).json();
    assert_eq!(created["spec"]["nodeSelector"], json!({"pool": "all", "zone": "a"}));
    let conflict = "pod node label selector conflicts with its namespace node label selector";
    let refused = make(json!({"pool": "mine"})).await.refused(403, "Forbidden");
    assert_eq!(refused["message"], format!("pods \"p\" is forbidden: {conflict}"));
    let refused = make(json!({"disk": "fast"})).await.refused(403, "Forbidden");
    assert!(message(&refused).ends_with("labels conflict with its namespace whitelist"), "{refused}");
    // the namespace's own word counts more than the default
    annotate(&cluster, "node-selector", "zone=a").await;
    assert_eq!(make(Value::Null).await.code(201).json()["spec"]["nodeSelector"], json!({"zone": "a"}));
    annotate(&cluster, "node-selector", "zone").await;
    assert_eq!(message(&make(Value::Null).await.code(500).json()), "invalid selector: [zone]");
    let bad = json!({"podNodeSelectorPluginConfig": {"a": "b c", "d": 1}, "more": {}});
    let why = refused_start(plugins(&["PodNodeSelector"], &[("PodNodeSelector", bad)])).await;
    for place in ["podNodeSelectorPluginConfig.a: ", "podNodeSelectorPluginConfig.d: ", "more: "] {
        assert!(why.contains(place), "{why}");
    }
}

#[tokio::test]
async fn namespaces_give_and_limit_tolerations() {
    let configuration = json!({"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration",
        "default": [{"key": "given", "operator": "Exists"}]});
    let cluster =
        Cluster::with(plugins(&["PodTolerationRestriction"], &[("PodTolerationRestriction", configuration)]))
            .await;
    let make = |tolerations: Value, resources: Value| {
        let mut pod = pod("p");
        pod["spec"]["tolerations"] = tolerations;
        pod["spec"]["containers"][0]["resources"] = resources;
        cluster.post(&format!("{PODS}?dryRun=All"), pod)
    };
    fn keys(pod: &Value) -> Vec<&str> {
        let all = pod["spec"]["tolerations"].as_array().unwrap().iter();
        let lost = |key: &&str| !key.ends_with("not-ready") && !key.ends_with("unreachable");
        all.map(|it| it["key"].as_str().unwrap_or("")).filter(lost).collect()
    }
    let own = json!([{"key": "own", "operator": "Exists"}]);
    assert_eq!(keys(&make(own.clone(), json!({})).await.code(201).json()), ["own", "given"]);
    let asking = json!({"requests": {"cpu": "1"}});
    let pressure = "node.kubernetes.io/memory-pressure";
    assert_eq!(keys(&make(Value::Null, asking).await.code(201).json()), ["given", pressure]);
    annotate(&cluster, "defaultTolerations", r#"[{"Key": "other", "operator": "Exists"}]"#).await;
    assert_eq!(keys(&make(Value::Null, json!({})).await.code(201).json()), ["other"]);
    let allowed = r#"[{"key": "other", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]"#;
    annotate(&cluster, "tolerationsWhitelist", allowed).await;
    make(Value::Null, json!({})).await.code(201);
    let refused = make(own, json!({})).await.code(500).json();
    let why = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    assert_eq!(message(&refused), why);
    annotate(&cluster, "tolerationsWhitelist", "[{\"key\": 1}]").await;
    assert!(message(&make(Value::Null, json!({})).await.code(500).json()).contains("key must be a text"));
    let bad = json!({"apiVersion": "v1", "kind": "Configuration", "default": [{"key": "a", "operator": "Some"}], "whitelist": 1});
    let why =
        refused_start(plugins(&["PodTolerationRestriction"], &[("PodTolerationRestriction", bad)])).await;
    for place in ["apiVersion: ", "default[0].operator: ", "whitelist: "] {
        assert!(why.contains(place), "{why}");
    }
}

#[tokio::test]
async fn events_are_rate_limited() {
    let limits = json!([{"type": "Namespace", "qps": 1, "burst": 3, "cacheSize": 10},
        {"type": "SourceAndObject", "qps": 1, "burst": 2}]);
    let configuration = |limits: Value| json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits});
    let options = plugins(&["EventRateLimit"], &[("EventRateLimit", configuration(limits))]);
    let cluster = Cluster::with(Options { simulated_clock: true, ..options }).await;
    let tell = |name: &str, about: &str, query: &str| {
        let event = json!({"metadata": {"name": name}, "reason": "r", "type": "Normal", "source": {"component": "c"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": about}});
        cluster.post(&format!("{EVENTS}{query}"), event)
    };
    tell("a", "x", "").await.code(201);
    tell("b", "x", "").await.code(201);
    let answer = tell("c", "x", "").await;
    assert_eq!(answer.header("retry-after"), "");
    let why = "limit reached on type SourceAndObject for key cPoddefaultx";
    assert_eq!(answer.refused(429, "TooManyRequests")["message"], format!("Too many requests: {why}"));
    // a rejected event counts for the other limits
    let refused = tell("d", "y", "").await.refused(429, "TooManyRequests");
    assert_eq!(refused["message"], "Too many requests: limit reached on type Namespace for key default");
    for _ in 0..5 {
        tell("e", "z", "?dryRun=All").await.code(201);
    }
    cluster.advance(Duration::from_secs(1));
    tell("f", "y", "").await.code(201);
    tell("g", "y", "").await.refused(429, "TooManyRequests");
    cluster.delete(&format!("{EVENTS}/a")).await.code(200);
    let bad = json!([{"type": "Everything", "qps": 0, "burst": "many", "cacheSize": -1}]);
    let why = refused_start(plugins(&["EventRateLimit"], &[("EventRateLimit", configuration(bad))])).await;
    for place in ["limits[0].type: ", "limits[0].qps: ", "limits[0].burst: ", "limits[0].cacheSize: "] {
        assert!(why.contains(place), "{why}");
    }
    assert!(refused_start(plugins(&["EventRateLimit"], &[])).await.contains("limits: "), "nothing to limit");
}
