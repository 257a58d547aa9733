//! When faults are over and nothing changes any more, everything is as its object asks.
//!
//! Asserted of the last state: workloads have their pods, updated and ready; Jobs are over, unless they are suspended;
//! nothing waits for its deletion; every owner exists; budgets, quotas and endpoints show the pods that there are; each
//! pod is bound to a node that exists.

use super::breach::Breach;
use super::quota::usage;
use crate::cluster::fields::{
    controller, flag, has_finalizer, is_over, is_ready, is_terminating, is_true, items, label, number,
    selects, text, uid,
};
use crate::cluster::history::{ObjectKey, Objects};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// What is not as it should be at a time of the cluster.
pub fn check(objects: &Objects, at: Duration) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let uids: HashSet<&str> = objects.iter().map(|(_, it)| uid(it)).collect();
    for (key, object) in objects.iter() {
        let mut problems = problems_of(key, object, objects, at);
        if is_terminating(object) {
            problems.push(format!("still waits for its deletion: {}", object["metadata"]["finalizers"]));
        }
        let owners =
            items(object, "/metadata/ownerReferences").iter().filter(|it| !uids.contains(text(it, "/uid")));
        problems.extend(owners.map(|it| format!("its owner {} {} does not exist", it["kind"], it["name"])));
        breaches.extend(problems.into_iter().map(|detail| Breach {
            rule: "everything becomes as it should be",
            revision: 0,
            namespace: key.namespace.clone(),
            detail: format!("{key}: {detail}"),
        }));
    }
    breaches
}

fn problems_of(key: &ObjectKey, object: &Value, objects: &Objects, at: Duration) -> Vec<String> {
    match &*key.resource {
        "deployments.apps" => {
            equal(object, "replicas", &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"])
        }
        "statefulsets.apps" => {
            equal(object, "replicas", &["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"])
        }
        "replicasets.apps" => replica_set(key, object, objects),
        "daemonsets.apps" => daemon_set(object, objects),
        "jobs.batch" => job(object),
        "pods" => pod(key, object, objects),
        "poddisruptionbudgets.policy" => budget(key, object, objects),
        "resourcequotas" => quota(key, object, objects, at),
        "services" => service(key, object, objects),
        "nodes" if !is_true(object, "Ready") => vec!["is not ready".to_owned()],
        _ => Vec::new(),
    }
}

fn equal(object: &Value, wanted: &str, fields: &[&str]) -> Vec<String> {
    let wanted = number(object, &format!("/spec/{wanted}"));
    let mut problems = observed(object);
    for field in fields {
        let found = number(object, &format!("/status/{field}"));
        if found != wanted {
            problems.push(format!("{field} is {found}, not {wanted}"));
        }
    }
    problems
}

fn observed(object: &Value) -> Vec<String> {
    let [seen, current] = ["/status/observedGeneration", "/metadata/generation"].map(|it| number(object, it));
    if seen == current {
        Vec::new()
    } else {
        vec![format!("generation {current} was not observed, but {seen}")]
    }
}

fn count(pods: impl Iterator<Item = impl Sized>) -> i64 {
    i64::try_from(pods.count()).unwrap_or(i64::MAX)
}

fn replica_set(key: &ObjectKey, set: &Value, objects: &Objects) -> Vec<String> {
    let is_own = |pod: &Value| {
        !is_over(pod) && controller(pod, "ReplicaSet").is_some_and(|it| text(it, "/uid") == uid(set))
    };
    let found = count(objects.within("pods", &key.namespace).filter(|(_, pod)| is_own(pod)));
    let wanted = number(set, "/spec/replicas");
    if found == wanted { Vec::new() } else { vec![format!("has {found} pods, not {wanted}")] }
}

fn daemon_set(set: &Value, objects: &Objects) -> Vec<String> {
    let nodes = count(objects.of("nodes"));
    let mut problems = observed(set);
    for field in ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady"]
    {
        let found = number(set, &format!("/status/{field}"));
        if found != nodes {
            problems.push(format!("{field} is {found} on {nodes} nodes"));
        }
    }
    problems
}

fn job(job: &Value) -> Vec<String> {
    let is_done = is_true(job, "Complete") || is_true(job, "Failed");
    if is_done || flag(job, "/spec/suspend") {
        Vec::new()
    } else {
        vec![format!("is not over: {}", job["status"])]
    }
}

fn pod(key: &ObjectKey, pod: &Value, objects: &Objects) -> Vec<String> {
    let node = text(pod, "/spec/nodeName");
    let mut problems = Vec::new();
    if !is_over(pod) && !is_ready(pod) && !is_terminating(pod) {
        problems.push(format!(
            "is {} and not ready: {}",
            text(pod, "/status/phase"),
            pod["status"]["conditions"]
        ));
    }
    if objects.get("nodes", "", node).is_none() {
        problems.push(format!("its node {node:?} does not exist"));
    }
    let job =
        controller(pod, "Job").and_then(|it| objects.get("jobs.batch", &key.namespace, text(it, "/name")));
    let is_counted = job.is_none_or(|it| is_true(it, "Complete") || is_true(it, "Failed"));
    if is_counted && has_finalizer(pod, "batch.kubernetes.io/job-tracking") {
        problems.push("its Job is over, and it has its finalizer still".to_owned());
    }
    problems
}

fn budget(key: &ObjectKey, budget: &Value, objects: &Objects) -> Vec<String> {
    let selector = &budget["spec"]["selector"];
    let ready =
        objects.within("pods", &key.namespace).filter(|(_, it)| selects(selector, it) && is_ready(it));
    let ready = count(ready);
    let [current, desired, allowed] = ["currentHealthy", "desiredHealthy", "disruptionsAllowed"]
        .map(|it| number(budget, &format!("/status/{it}")));
    let mut problems = observed(budget);
    if current != ready {
        problems.push(format!("counts {current} healthy pods, {ready} are ready"));
    }
    if allowed != (current - desired).max(0) {
        problems
            .push(format!("allows {allowed} disruptions of {current} pods, of which {desired} must stay"));
    }
    problems
}

fn quota(key: &ObjectKey, quota: &Value, objects: &Objects, at: Duration) -> Vec<String> {
    let mut problems = Vec::new();
    for resource in ["count/configmaps", "pods"] {
        let used = quota["status"]["used"][resource].as_str().and_then(|it| it.parse().ok());
        let actual = usage(objects, &key.namespace, resource, at);
        if quota["spec"]["hard"].get(resource).is_some() && used != Some(actual) {
            problems.push(format!("says {used:?} {resource} are used, of {actual}"));
        }
    }
    problems
}

fn service(key: &ObjectKey, service: &Value, objects: &Objects) -> Vec<String> {
    let Some(selector) = service["spec"].get("selector").filter(|it| it.is_object()) else {
        return Vec::new();
    };
    let selector = serde_json::json!({"matchLabels": selector});
    let pods =
        objects.within("pods", &key.namespace).filter(|(_, it)| selects(&selector, it) && is_ready(it));
    let expected: BTreeSet<&str> = pods.map(|(_, it)| text(it, "/status/podIP")).collect();
    let mut found = BTreeSet::new();
    for (_, slice) in objects.within("endpointslices.discovery.k8s.io", &key.namespace) {
        if label(slice, "kubernetes.io/service-name") != key.name {
            continue;
        }
        for endpoint in items(slice, "/endpoints").iter().filter(|it| flag(it, "/conditions/ready")) {
            found.extend(items(endpoint, "/addresses").iter().filter_map(Value::as_str));
        }
    }
    if found == expected {
        Vec::new()
    } else {
        vec![format!("leads to {found:?}, and {expected:?} are ready")]
    }
}
