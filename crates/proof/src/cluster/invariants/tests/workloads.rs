//! Planted faults of workloads: availability, identity, Jobs, budgets, leaders.

use super::*;

/// A Deployment with three ready pods, of which one may be missing.
fn deployment() -> Story {
    let mut story = Story::new();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    story.put("deployments.apps", "n", "web", json!({"spec": {"replicas": 3, "strategy": strategy}}));
    story.put(
        "replicasets.apps",
        "n",
        "web-1",
        json!({"metadata": {"ownerReferences": owner("Deployment", "web")}}),
    );
    for pod in ["a", "b", "c"] {
        story.put("pods", "n", pod, ready_pod(owner("ReplicaSet", "web-1")));
    }
    story.wait(1000);
    story
}

fn delete_pod(story: &mut Story, pod: &str) {
    story.set("pods", pod, &["metadata", "deletionTimestamp"], json!(TERMINATING));
}

const AVAILABILITY: &[&str] = &["a Deployment keeps its availability"];

#[test]
fn a_rollout_that_takes_one_pod_at_a_time_is_correct() {
    let mut story = deployment();
    delete_pod(&mut story, "a");
    story.put("pods", "n", "d", ready_pod(owner("ReplicaSet", "web-1")));
    delete_pod(&mut story, "b");
    assert!(story.broken().is_empty(), "{:?}", story.breaches);
}

#[test]
fn a_rollout_that_takes_two_pods_breaks_the_availability() {
    let mut story = deployment();
    delete_pod(&mut story, "a");
    delete_pod(&mut story, "b");
    assert_eq!(story.broken(), AVAILABILITY);
}

#[test]
fn a_pod_that_was_lost_to_its_node_excuses_a_rollout_for_a_time() {
    for (wait, broken) in [(10, &[][..]), (1000, AVAILABILITY)] {
        let mut story = deployment();
        story.set("pods", "a", &["status", "conditions"], json!([{"type": "Ready", "status": "False"}]));
        story.wait(wait);
        delete_pod(&mut story, "b");
        assert_eq!(story.broken(), broken);
    }
}

#[test]
fn evictions_scaling_and_deleted_deployments_are_no_rollouts() {
    let mut evicted = deployment();
    for pod in ["a", "b"] {
        evicted.note(Note::Deletes { uid: pod.to_owned() });
        delete_pod(&mut evicted, pod);
    }
    let mut scaled = deployment();
    scaled.set("deployments.apps", "web", &["spec", "replicas"], json!(9));
    delete_pod(&mut scaled, "a");
    let mut deleted = deployment();
    deleted.remove("deployments.apps", "n", "web");
    ["a", "b", "c"].iter().for_each(|it| delete_pod(&mut deleted, it));
    for story in [evicted, scaled, deleted] {
        assert!(story.broken().is_empty(), "{:?}", story.breaches);
    }
}

#[test]
fn a_pod_that_vanishes_while_it_runs_breaks_its_identity() {
    let mut story = Story::new();
    story.put("pods", "n", "db-0", ready_pod(owner("StatefulSet", "db")));
    story.remove("pods", "n", "db-0");
    assert_eq!(story.broken(), ["a pod ends before it vanishes"]);

    let mut story = Story::new();
    story.put("pods", "n", "db-0", ready_pod(owner("StatefulSet", "db")));
    let ended = json!([{"name": "c", "state": {"terminated": {}}}]);
    story.set("pods", "db-0", &["status", "containerStatuses"], ended);
    story.remove("pods", "n", "db-0");
    story.put("pods", "n", "db-1", ready_pod(owner("StatefulSet", "db")));
    story.remove("nodes", "", "node-0");
    story.remove("pods", "n", "db-1");
    assert!(story.broken().is_empty(), "{:?}", story.breaches);
}

const COUNTED: &[&str] = &["a Job counts each pod once"];

/// A Job of two pods, of which one has succeeded and is listed as uncounted.
fn job() -> Story {
    let mut story = Story::new();
    story.put("jobs.batch", "n", "job", json!({"spec": {"completions": 2}}));
    for pod in ["a", "b"] {
        let finalizers = json!(["batch.kubernetes.io/job-tracking"]);
        let metadata = json!({"ownerReferences": owner("Job", "job"), "finalizers": finalizers});
        story.put("pods", "n", pod, json!({"metadata": metadata, "status": {"phase": "Running"}}));
    }
    story.set("pods", "a", &["status", "phase"], json!("Succeeded"));
    story.set("jobs.batch", "job", &["status"], json!({"uncountedTerminatedPods": {"succeeded": ["a"]}}));
    story
}

fn job_status(story: &mut Story, status: Value) {
    story.set("jobs.batch", "job", &["status"], status);
}

fn complete(succeeded: u64) -> Value {
    json!({"succeeded": succeeded, "conditions": [{"type": "Complete", "status": "True"}]})
}

#[test]
fn a_job_that_counts_each_pod_once_is_correct() {
    let mut story = job();
    story.set("pods", "a", &["metadata", "finalizers"], json!([]));
    job_status(&mut story, json!({"succeeded": 1}));
    story.set("pods", "b", &["status", "phase"], json!("Succeeded"));
    job_status(&mut story, json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["b"]}}));
    story.set("pods", "b", &["metadata", "finalizers"], json!([]));
    job_status(&mut story, complete(2));
    assert!(story.broken().is_empty(), "{:?}", story.breaches);
}

#[test]
fn a_job_with_indexes_counts_the_index_of_a_pod() {
    for (indexes, broken) in [("0-1,4", &[][..]), ("0,2-4", COUNTED)] {
        let mut story = job();
        story.set("jobs.batch", "job", &["status", "completedIndexes"], json!(indexes));
        let annotations = json!({"batch.kubernetes.io/job-completion-index": "1"});
        story.set("pods", "b", &["metadata", "annotations"], annotations);
        story.set("pods", "b", &["status", "phase"], json!("Succeeded"));
        story.set("pods", "b", &["metadata", "finalizers"], json!([]));
        assert_eq!(story.broken(), broken);
    }
}

#[test]
fn faults_of_the_count_of_a_job_are_found() {
    let faults: &[&dyn Fn(&mut Story)] = &[
        // more than have succeeded
        &|it| job_status(it, json!({"succeeded": 2})),
        &|it| job_status(it, json!({"failed": 2})),
        // one pod, twice
        &|it| job_status(it, json!({"succeeded": 1, "failed": 1})),
        &|it| job_status(it, json!({"uncountedTerminatedPods": {"succeeded": ["a", "a"]}})),
        &|it| job_status(it, json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}})),
        // a count that goes back
        &|it| {
            job_status(it, json!({"succeeded": 1}));
            job_status(it, json!({"succeeded": 0}));
        },
        // a pod that is forgotten
        &|it| {
            it.set("pods", "b", &["status", "phase"], json!("Succeeded"));
            it.set("pods", "b", &["metadata", "finalizers"], json!([]));
        },
        // an end that is none
        &|it| job_status(it, complete(1)),
        &|it| {
            it.set("pods", "b", &["status", "phase"], json!("Succeeded"));
            job_status(it, complete(2));
            job_status(it, json!({"succeeded": 2}));
        },
    ];
    for (at, plant) in faults.iter().enumerate() {
        let mut story = job();
        plant(&mut story);
        assert_eq!(story.broken(), COUNTED, "fault {at}: {:?}", story.breaches);
    }
}

#[test]
fn a_job_of_a_cron_job_that_is_made_twice_for_one_time_is_found() {
    // a crash before the time is recorded may make it twice
    for (recorded, broken) in [(json!(null), &[][..]), (json!(TERMINATING), COUNTED)] {
        let mut story = Story::new();
        story.put("cronjobs.batch", "n", "often", json!({"status": {}}));
        for uid in ["first", "second"] {
            let metadata = json!({"uid": uid, "ownerReferences": owner("CronJob", "often")});
            story.put("jobs.batch", "n", "often-100", json!({"metadata": metadata}));
            story.set("cronjobs.batch", "often", &["status", "lastScheduleTime"], recorded.clone());
            story.remove("jobs.batch", "n", "often-100");
        }
        assert_eq!(story.broken(), broken);
    }
}

/// A ready pod, and a budget that allows one disruption.
fn budget() -> Story {
    let mut story = Story::new();
    for pod in ["a", "b"] {
        story.put("pods", "n", pod, ready_pod(json!([])));
    }
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    let status = json!({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1});
    story.put("poddisruptionbudgets.policy", "n", "web", json!({"spec": spec, "status": status}));
    story
}

fn evict(story: &mut Story, pod: &str) {
    let conditions = json!([{"type": "Ready", "status": "True"},
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
    story.set("pods", pod, &["status", "conditions"], conditions);
    delete_pod(story, pod);
}

#[test]
fn an_eviction_needs_the_consent_of_each_budget() {
    let named = |allowed: i64, pods: Value| json!({"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "disruptedPods": pods});
    let budgets = "poddisruptionbudgets.policy";
    let mut correct = budget();
    correct.set(budgets, "web", &["status"], named(0, json!({"a": TERMINATING})));
    evict(&mut correct, "a");
    assert!(correct.broken().is_empty(), "{:?}", correct.breaches);

    let mut unnamed = budget();
    evict(&mut unnamed, "a");
    let mut both = budget();
    both.set(budgets, "web", &["status"], named(0, json!({"a": TERMINATING, "b": TERMINATING})));
    let mut below = budget();
    below.set(budgets, "web", &["status"], named(-1, json!({})));
    for story in [unnamed, both, below] {
        assert_eq!(story.broken(), ["a PodDisruptionBudget is respected"]);
    }
}

#[test]
fn two_leaders_and_a_stolen_lease_are_found() {
    let mut story = Story::new();
    let lease = |holder: &str, renewed: &str| json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}});
    let leases = "leases.coordination.k8s.io";
    story.put(leases, "n", "manager", lease("one", "1"));
    story.wait(16);
    story.put(leases, "n", "manager", lease("two", "2"));
    story.wait(5);
    story.put(leases, "n", "manager", lease("", "3"));
    story.put(leases, "n", "manager", lease("one", "4"));
    assert!(story.broken().is_empty(), "{:?}", story.breaches);
    story.wait(5);
    story.put(leases, "n", "manager", lease("two", "5"));
    assert_eq!(story.broken(), ["a lease has one holder"]);

    let mut story = Story::new();
    let mut lead = |component: &str, begins| {
        let (component, lease, at) = (component.to_owned(), "manager".to_owned(), Duration::ZERO);
        story.see(&Event::Leadership { component, lease, at, begins });
        story.broken().len()
    };
    assert_eq!((lead("one", true), lead("one", false), lead("two", true)), (0, 0, 0));
    assert_eq!(lead("one", true), 1);
}
