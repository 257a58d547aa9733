//! Planted faults of objects: garbage, quotas, finalizers, and a cluster that does not come to rest.

use super::*;
use crate::cluster::invariants::convergence;
use crate::cluster::invariants::finalizers::FINALIZER;
use crate::cluster::invariants::garbage::LABEL;

const GARBAGE: &[&str] = &["the garbage collector deletes what has no owner"];
const MAPS: &str = "configmaps";

/// Two owners and a dependent of the first, which blocks it.
fn family() -> Story {
    let mut story = Story::new();
    story.put(MAPS, "n", "owner", json!({}));
    story.put(MAPS, "n", "other", json!({}));
    story.put(
        MAPS,
        "n",
        "child",
        json!({"metadata": {"labels": {LABEL: "true"}, "ownerReferences": owner("ConfigMap", "owner")}}),
    );
    story
}

fn begin_deletion(story: &mut Story, finalizer: &str) {
    let mut object = story.objects.get(MAPS, "n", "owner").unwrap().as_ref().clone();
    object["metadata"]["deletionTimestamp"] = json!(TERMINATING);
    object["metadata"]["finalizers"] = json!([finalizer]);
    story.put(MAPS, "n", "owner", object);
}

#[test]
fn dependents_go_after_their_owner_or_before_one_that_waits() {
    let mut background = family();
    background.remove(MAPS, "n", "owner");
    background.remove(MAPS, "n", "child");
    let mut foreground = family();
    begin_deletion(&mut foreground, "foregroundDeletion");
    foreground.remove(MAPS, "n", "child");
    foreground.remove(MAPS, "n", "owner");
    let mut orphaned = family();
    begin_deletion(&mut orphaned, "orphan");
    orphaned.set(MAPS, "child", &["metadata", "ownerReferences"], json!([]));
    orphaned.remove(MAPS, "n", "owner");
    for story in [background, foreground, orphaned] {
        assert!(story.broken().is_empty(), "{:?}", story.breaches);
    }
}

#[test]
fn faults_of_the_garbage_collector_are_found() {
    let faults: &[&dyn Fn(&mut Story)] = &[
        &|it| it.remove(MAPS, "n", "child"),
        // one of two owners lives
        &|it| {
            let owners = json!([{"uid": "owner"}, {"uid": "other"}]);
            it.set(MAPS, "child", &["metadata", "ownerReferences"], owners);
            it.remove(MAPS, "n", "owner");
            it.remove(MAPS, "n", "child");
        },
        // what was orphaned goes
        &|it| {
            begin_deletion(it, "orphan");
            it.remove(MAPS, "n", "owner");
            it.remove(MAPS, "n", "child");
        },
        // the owner does not wait
        &|it| {
            begin_deletion(it, "foregroundDeletion");
            it.remove(MAPS, "n", "owner");
        },
        // never owned
        &|it| {
            it.put(MAPS, "n", "stray", json!({"metadata": {"labels": {LABEL: "true"}}}));
            it.remove(MAPS, "n", "stray");
        },
    ];
    for (at, plant) in faults.iter().enumerate() {
        let mut story = family();
        plant(&mut story);
        assert_eq!(story.broken(), GARBAGE, "fault {at}: {:?}", story.breaches);
    }
}

#[test]
fn an_exceeded_quota_is_found() {
    let quota = |used: &str| {
        json!({"spec": {"hard": {"count/configmaps": "2", "pods": "1"}},
               "status": {"hard": {"count/configmaps": "2", "pods": "1"}, "used": {"count/configmaps": used}}})
    };
    let rule = ["a quota is never exceeded"];
    let mut story = Story::new();
    story.put("resourcequotas", "n", "quota", quota("0"));
    story.put(MAPS, "n", "a", json!({}));
    story.put(MAPS, "n", "b", json!({}));
    story.put("pods", "n", "over", json!({"status": {"phase": "Succeeded"}}));
    story.put("pods", "n", "a", json!({}));
    assert!(story.broken().is_empty(), "{:?}", story.breaches);
    story.put(MAPS, "n", "c", json!({}));
    assert_eq!(story.broken(), rule);

    let mut pods = Story::new();
    pods.put("resourcequotas", "n", "quota", quota("0"));
    pods.put("pods", "n", "a", json!({}));
    pods.put("pods", "n", "b", json!({}));
    assert_eq!(pods.broken(), rule);

    // 1000 s: the pod of a silent node should have ended 10 s after its time
    for (since, is_broken) in [("1970-01-01T00:16:29Z", false), ("1970-01-01T00:16:30Z", true)] {
        let mut silent = Story::new();
        silent.put("resourcequotas", "n", "quota", quota("0"));
        let deletion = json!({"deletionTimestamp": since, "deletionGracePeriodSeconds": 10});
        silent.put("pods", "n", "a", json!({"metadata": deletion}));
        silent.put("pods", "n", "b", json!({}));
        assert_eq!(!silent.broken().is_empty(), is_broken, "{since}");
    }

    let mut used = Story::new();
    used.put("resourcequotas", "n", "quota", quota("3"));
    assert_eq!(used.broken(), rule);
}

#[test]
fn an_object_that_vanishes_with_its_finalizer_is_found() {
    for is_run in [true, false] {
        let mut story = Story::new();
        story.put(MAPS, "n", "held", json!({"metadata": {"finalizers": [FINALIZER]}}));
        if is_run {
            story.note(Note::RemovesFinalizer { uid: "held".to_owned() });
        }
        story.remove(MAPS, "n", "held");
        assert_eq!(story.broken().is_empty(), is_run, "{:?}", story.breaches);
    }
}

/// What is not as it should be, with the beginning of each text.
fn unsettled(story: &Story) -> Vec<String> {
    convergence::check(&story.objects, story.at).into_iter().map(|it| it.detail).collect()
}

#[test]
fn a_cluster_that_does_not_come_to_rest_is_found() {
    let rest = || {
        let mut story = Story::new();
        story.set(
            "nodes",
            "node-0",
            &["status"],
            json!({"conditions": [{"type": "Ready", "status": "True"}]}),
        );
        story
    };
    assert!(unsettled(&rest()).is_empty(), "{:?}", unsettled(&rest()));
    let ready = || ready_pod(json!([]));
    let unbound = json!({"status": {"phase": "Pending"}});
    let counts = |count: i64| json!({"replicas": count, "updatedReplicas": count, "readyReplicas": count, "availableReplicas": count});
    let faults: &[(&str, Value, &str)] = &[
        (
            "deployments.apps",
            json!({"spec": {"replicas": 2}, "status": counts(1)}),
            "readyReplicas is 1, not 2",
        ),
        (
            "deployments.apps",
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 0}}),
            "generation 2 was not observed",
        ),
        (
            "statefulsets.apps",
            json!({"spec": {"replicas": 2}, "status": counts(1)}),
            "readyReplicas is 1, not 2",
        ),
        ("daemonsets.apps", json!({}), "desiredNumberScheduled is 0 on 1 nodes"),
        ("replicasets.apps", json!({"spec": {"replicas": 1}}), "has 0 pods, not 1"),
        ("jobs.batch", json!({}), "is not over"),
        ("pods", unbound, "is Pending and not ready"),
        (
            "pods",
            {
                let mut pod = ready();
                pod["spec"]["nodeName"] = json!("gone");
                pod
            },
            "its node \"gone\" does not exist",
        ),
        ("pods", ready_pod(owner("ReplicaSet", "gone")), "its owner \"ReplicaSet\" \"gone\" does not exist"),
        (
            MAPS,
            json!({"metadata": {"deletionTimestamp": TERMINATING, "finalizers": [FINALIZER]}}),
            "still waits for its deletion",
        ),
        (
            "poddisruptionbudgets.policy",
            json!({"spec": {}, "status": {"currentHealthy": 1, "disruptionsAllowed": 1}}),
            "counts 1 healthy pods, 0 are ready",
        ),
        (
            "poddisruptionbudgets.policy",
            json!({"spec": {}, "status": {"disruptionsAllowed": 1}}),
            "allows 1 disruptions",
        ),
        (
            "resourcequotas",
            json!({"spec": {"hard": {"pods": "1"}}, "status": {"used": {"pods": "1"}}}),
            "says Some(1) pods are used, of 0",
        ),
        (
            "nodes",
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            "is not ready",
        ),
    ];
    for (resource, object, expected) in faults {
        let mut story = rest();
        let (namespace, name) = if *resource == "nodes" { ("", "node-0") } else { ("n", "x") };
        story.put(resource, namespace, name, object.clone());
        let found = unsettled(&story);
        assert!(found.iter().any(|it| it.contains(expected)), "{resource}: {expected}: {found:?}");
    }
    let mut service = rest();
    service.put("pods", "n", "a", {
        let mut pod = ready();
        pod["status"]["podIP"] = json!("10.0.0.1");
        pod
    });
    service.put("services", "n", "web", json!({"spec": {"selector": {"app": "web"}}}));
    assert!(unsettled(&service)[0].contains("leads to {}, and {\"10.0.0.1\"} are ready"));
    let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]});
    service.put("endpointslices.discovery.k8s.io", "n", "web-1", slice);
    assert!(unsettled(&service).is_empty(), "{:?}", unsettled(&service));
}
