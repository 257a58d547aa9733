//! Policies that writes must fulfil, written as expressions.

use super::*;
use apiserver::Gates;
use kinds::Serving;
use tests::{Cluster, Options};

pub(super) const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1alpha1/validatingadmissionpolicies";
pub(super) const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1alpha1/validatingadmissionpolicybindings";

pub(super) async fn cluster(open: bool) -> Cluster {
    let served = ["admissionregistration.k8s.io/v1alpha1=true"];
    let serving = Serving::parse(served, &names::Names::default()).unwrap();
    let gates = Gates { validating_admission_policy: open, ..Gates::default() };
    Cluster::with(Options { serving, gates, ..Options::default() }).await
}

/// A policy about config maps.
pub(super) fn policy(name: &str, validations: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"validations": validations, "matchConstraints": {"resourceRules": [
        {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}}})
}

pub(super) fn binding(name: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": policy}})
}

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn a_bound_policy_denies_violations() {
    let cluster = cluster(true).await;
    let validations = json!([
        {"expression": "object == null || !has(object.data) || !has(object.data.big)"},
        {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "message": " it is kept ",
            "reason": "Forbidden"},
    ]);
    cluster.create(POLICIES, policy("small", validations)).await;
    cluster.create(CONFIGMAPS, map("kept", json!({"big": "1"}))).await;
    cluster.create(BINDINGS, binding("everywhere", "small")).await;
    let refused = cluster.post(CONFIGMAPS, map("a", json!({"big": "1"}))).await.refused(422, "Invalid");
    let message = "ValidatingAdmissionPolicy 'small' with binding 'everywhere' denied request: failed expression: \
                object == null || !has(object.data) || !has(object.data.big)";
    assert_eq!(refused["message"], format!("configmaps \"a\" is forbidden: {message}"));
    assert_eq!(refused["details"]["causes"], json!([{"message": message}]));
    cluster.create(CONFIGMAPS, map("a", json!({"small": "1"}))).await;
    let refused = cluster.delete(&format!("{CONFIGMAPS}/kept")).await.refused(403, "Forbidden");
    assert!(refused["message"].as_str().unwrap().ends_with("denied request: it is kept"), "{refused}");
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    // changes take effect with the next write
    cluster.delete(&format!("{BINDINGS}/everywhere")).await.code(200);
    cluster.create(CONFIGMAPS, map("a", json!({"big": "1"}))).await;
}

#[tokio::test]
async fn expressions_see_the_request_and_parameters() {
    let cluster = cluster(true).await;
    let validations = json!([{"expression":
        "request.namespace == 'default' && request.userInfo.groups.exists(it, it == 'system:masters') && \
         (!has(object.data) || !has(object.data.level) || int(object.data.level) <= int(params.data.most))"}]);
    let mut limit = policy("limit", validations);
    limit["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    cluster.create(POLICIES, limit).await;
    let mut bound = binding("limited", "limit");
    bound["spec"]["paramRef"] = json!({"namespace": "kube-system", "name": "limits"});
    bound["spec"]["matchResources"] = json!({"objectSelector": {"matchLabels": {"limited": "yes"}}});
    cluster.create(BINDINGS, bound).await;
    let object = |level: &str| json!({"metadata": {"generateName": "m-", "labels": {"limited": "yes"}}, "data": {"level": level}});
    let refused = cluster.post(CONFIGMAPS, object("3")).await.refused(422, "Invalid");
    assert!(refused["message"].as_str().unwrap().contains("failed to configure binding: "), "{refused}");
    cluster.create("/api/v1/namespaces/kube-system/configmaps", map("limits", json!({"most": "5"}))).await;
    cluster.post(CONFIGMAPS, object("3")).await.code(201);
    cluster.post(CONFIGMAPS, object("7")).await.refused(422, "Invalid");
    cluster.create(CONFIGMAPS, map("elsewhere", json!({"level": "7"}))).await;
    // parameters may change
    let path = "/api/v1/namespaces/kube-system/configmaps/limits";
    cluster.patch(path, json!({"data": {"most": "9"}})).await.code(200);
    cluster.post(CONFIGMAPS, object("7")).await.code(201);
}

#[tokio::test]
async fn evaluation_errors_follow_the_failure_policy() {
    let cluster = cluster(true).await;
    let validations = json!([{"expression": "object.data.missing == 'x'"}]);
    cluster.create(POLICIES, policy("strict", validations)).await;
    cluster.create(BINDINGS, binding("strict", "strict")).await;
    let refused = cluster.post(CONFIGMAPS, map("a", json!({"k": "v"}))).await.refused(422, "Invalid");
    let message = "expression 'object.data.missing == 'x'' resulted in error: no such key: missing";
    assert!(refused["message"].as_str().unwrap().ends_with(message), "{refused}");
    cluster
        .patch(&format!("{POLICIES}/strict"), json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .code(200);
    cluster.create(CONFIGMAPS, map("a", json!({"k": "v"}))).await;
    // one that is none is not taken
    let broken = policy("broken", json!([{"expression": "object.data +"}]));
    let refused = cluster.post(POLICIES, broken).await.refused(422, "Invalid");
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("spec.validations[0].expression: Invalid value: ")
            && message.contains("Syntax error"),
        "{message}"
    );
}

#[tokio::test]
async fn policies_match_by_constraints() {
    let cluster = cluster(true).await;
    let mut never = policy("never", json!([{"expression": "false"}]));
    never["spec"]["matchConstraints"]["excludeResourceRules"] = json!([{"operations": ["CREATE"], "apiGroups": ["*"],
        "apiVersions": ["*"], "resources": ["*"], "resourceNames": ["spared"]}]);
    never["spec"]["matchConstraints"]["namespaceSelector"] = json!({"matchLabels": {"checked": "yes"}});
    cluster.create(POLICIES, never).await;
    cluster.create(BINDINGS, binding("never", "never")).await;
    cluster.labelled(NAMESPACES, "checked", json!({"checked": "yes"})).await;
    let checked = "/api/v1/namespaces/checked/configmaps";
    cluster.named(CONFIGMAPS, "a").await;
    cluster.named(checked, "spared").await;
    cluster.post(checked, json!({"metadata": {"name": "a"}})).await.refused(422, "Invalid");
    cluster.named("/api/v1/namespaces/checked/secrets", "a").await;
    // policies are not theirs to judge
    let mut all = policy("all", json!([{"expression": "false"}]));
    all["spec"]["matchConstraints"] = json!({"resourceRules": [
        {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    cluster.create(POLICIES, all).await;
    cluster.create(BINDINGS, binding("all", "all")).await;
    cluster.post(SECRETS, json!({"metadata": {"name": "a"}})).await.refused(422, "Invalid");
    cluster.delete(&format!("{BINDINGS}/all")).await.code(200);
    cluster.named(SECRETS, "a").await;
}

#[tokio::test]
async fn nothing_is_enforced_if_the_gate_is_off() {
    let cluster = cluster(false).await;
    cluster.create(POLICIES, policy("never", json!([{"expression": "false"}]))).await;
    cluster.create(BINDINGS, binding("never", "never")).await;
    cluster.named(CONFIGMAPS, "a").await;
}

#[tokio::test]
async fn policy_decisions_are_counted() {
    let cluster = cluster(true).await;
    let names = json!([{"expression": "object == null || object.metadata.name != 'bad'"}]);
    cluster.create(POLICIES, policy("names", names)).await;
    cluster.create(BINDINGS, binding("names", "names")).await;
    let mut lax = policy("lax", json!([{"expression": "object.data.missing == 'x'"}]));
    lax["spec"]["failurePolicy"] = "Ignore".into();
    cluster.create(POLICIES, lax).await;
    cluster.create(BINDINGS, binding("laxer", "lax")).await;
    cluster.create(CONFIGMAPS, map("good", json!({"k": "v"}))).await;
    cluster.post(CONFIGMAPS, map("bad", json!({"k": "v"}))).await.refused(422, "Invalid");
    let metrics = cluster.get("/metrics").await.code(200).text();
    let value = |name: &str, labels: &[&str]| {
        let mut lines = metrics.lines().filter(|line| {
            line.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| line.contains(label))
        });
        let found = lines.next().unwrap_or_else(|| panic!("{name} {labels:?} in {metrics}"));
        assert_eq!(lines.next(), None);
        found.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let of = |name: &str| format!("apiserver_validating_admission_policy_{name}");
    for (labels, count) in [
        (["policy=\"names\"", "policy_binding=\"names\"", "enforcement_action=\"deny\""], 1),
        (["policy=\"lax\"", "policy_binding=\"laxer\"", "enforcement_action=\"allow\""], 2),
    ] {
        assert_eq!(value(&of("check_total"), &labels), count);
        assert_eq!(value(&of("check_duration_seconds_count"), &labels), count);
    }
    assert_eq!(value(&of("definition_total"), &["enforcement_action=\"deny\"", "state=\"active\""]), 2);
    assert_eq!(value("apiserver_cel_compilation_duration_seconds_count", &[]), 2);
    assert_eq!(value("apiserver_cel_evaluation_duration_seconds_count", &[]), 4);
    assert!(metrics.contains("le=\"5e-07\""), "{metrics}");
}
