//! Tests of plans: a set, its pods and claims in words, and the actions in short.

use super::identity::LabelNames;
use super::plan::{Plan, plan};
use super::view::View;
use crate::gates::Gates;
use crate::testing::object;
use api::apps::v1::StatefulSet;
use api::core::v1::{PersistentVolumeClaim, Pod};
use api::{Resource, Time};
use client::Key;
use names::Names;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

const NOW: i64 = 1_000_000;

fn on() -> Gates {
    Gates { claim_retention: true, max_unavailable: true, ordinals: true, ..Gates::default() }
}

fn time(seconds: i64) -> String {
    Time(seconds).to_string()
}

/// `db-3 new ready`: the pod db-3 of the new revision, which is ready. Further words: `since=N` for how many seconds,
/// `pending`, `failed`, `terminating`, `bare` without its label.
fn pod(text: &str) -> Arc<Pod> {
    let mut words = text.split(' ');
    let (name, revision) = (words.next().unwrap(), words.next().unwrap());
    let (mut phase, mut ready, mut terminating, mut since, mut bare) = ("Running", "False", None, 100, false);
    for word in words {
        match word {
            "ready" => ready = "True",
            "pending" => phase = "Pending",
            "failed" => phase = "Failed",
            "succeeded" => phase = "Succeeded",
            "terminating" => terminating = Some(time(NOW)),
            "bare" => bare = true,
            other => since = other.strip_prefix("since=").unwrap().parse().unwrap(),
        }
    }
    let mut labels = json!({"controller-revision-hash": revision});
    if !bare {
        labels["statefulset.kubernetes.io/pod-name"] = name.into();
    }
    let json = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels, "deletionTimestamp": terminating},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": time(NOW - since)}]
        }
    });
    Arc::new(object(json))
}

fn set(spec: Value) -> StatefulSet {
    let mut whole = json!({
        "replicas": 3, "serviceName": "", "selector": {}, "template": {},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let json =
        json!({"metadata": {"name": "db", "namespace": "ns", "uid": "set", "generation": 7}, "spec": whole});
    object(json)
}

fn plan_for(set: &StatefulSet, pods: &[&str], claims: &[PersistentVolumeClaim], gates: Gates) -> Plan {
    let pods: Vec<_> = pods.iter().map(|it| pod(it)).collect();
    let claims: HashMap<Key, Arc<PersistentVolumeClaim>> =
        claims.iter().map(|it| (Key::of(it), Arc::new(it.clone()))).collect();
    let view = View {
        set,
        pods: &pods,
        current: "old",
        update: "new",
        collisions: 0,
        claim: &|key| claims.get(key).cloned(),
        labels: &LabelNames::new(&Names::kubernetes()),
        gates,
        now: Time(NOW),
    };
    plan(&view)
}

/// The actions, in short: `+2` creates a pod, `~db-1` restores it, `!db-1` deletes a finished pod, `-db-1` deletes a pod.
fn summary(plan: &Plan) -> String {
    let named = |sign: &str, pods: &[Arc<Pod>]| {
        pods.iter().map(|it| format!("{sign}{}", it.name())).collect::<Vec<_>>()
    };
    let made = plan.make.iter().map(|it| format!("+{it}")).collect();
    [named("!", &plan.ended), made, named("~", &plan.mend), named("-", &plan.remove)].concat().join(" ")
}

fn check(spec: Value, pods: &[&str], expected: &str) {
    assert_eq!(
        summary(&plan_for(&set(spec.clone()), pods, &[], Gates::default())),
        expected,
        "{spec} {pods:?}"
    );
}

#[test]
fn pods_are_created_in_order() {
    let plain = || json!({});
    check(plain(), &[], "+0");
    check(plain(), &["db-0 new pending"], "");
    check(plain(), &["db-0 new"], "");
    check(plain(), &["db-0 new ready"], "+1");
    check(plain(), &["db-0 new ready", "db-1 new ready", "db-2 new"], "");
    // a gap is filled first, and a terminating pod is waited for
    check(plain(), &["db-0 new ready", "db-2 new ready"], "+1");
    check(plain(), &["db-0 new ready terminating", "db-1 new ready"], "");
    check(json!({"replicas": 0}), &[], "");
    check(json!({"replicas": 2147483647}), &[], "+0");
    // with a minimum time ready
    let slow = json!({"minReadySeconds": 10});
    check(slow.clone(), &["db-0 new ready since=9"], "");
    check(slow, &["db-0 new ready since=10"], "+1");
}

#[test]
fn parallel_pods_are_created_at_once() {
    let parallel = |replicas: i32| json!({"podManagementPolicy": "Parallel", "replicas": replicas});
    check(parallel(3), &[], "+0 +1 +2");
    check(parallel(3), &["db-1 new pending"], "+0 +2");
    check(parallel(3), &["db-0 new terminating", "db-1 new failed"], "!db-1 +2");
    check(parallel(0), &["db-0 new", "db-1 new ready", "db-2 new terminating"], "-db-1 -db-0");
    let many = plan_for(&set(parallel(i32::MAX)), &[], &[], Gates::default());
    assert_eq!((many.make.len(), many.make[499]), (500, 499));
}

#[test]
fn finished_pods_are_created_again() {
    let plain = || json!({});
    check(plain(), &["db-0 new failed", "db-1 new failed"], "!db-0");
    check(plain(), &["db-0 new succeeded"], "!db-0");
    check(plain(), &["db-0 new failed terminating"], "");
    check(plain(), &["db-0 new ready", "db-1 new failed"], "!db-1");
    let plan = plan_for(&set(plain()), &["db-0 new ready", "db-1 new failed"], &[], Gates::default());
    assert_eq!((plan.status.replicas, plan.status.updated_replicas), (1, 1));
}

#[test]
fn the_highest_are_deleted_first() {
    let one = || json!({"replicas": 1});
    check(one(), &["db-0 new ready", "db-1 new ready", "db-2 new ready"], "-db-2");
    check(one(), &["db-0 new ready", "db-1 new ready", "db-2 new ready terminating"], "");
    // not while one that stays is not healthy
    check(one(), &["db-0 new", "db-1 new ready"], "");
    // an unhealthy one is deleted only if no lower one is unhealthy
    check(one(), &["db-0 new ready", "db-1 new ready", "db-2 new"], "-db-2");
    check(one(), &["db-0 new ready", "db-1 new", "db-2 new"], "");
    check(one(), &["db-0 new ready", "db-1 new", "db-2 new ready"], "-db-2");
    // scaling comes before updating
    check(one(), &["db-0 old ready", "db-1 old ready"], "-db-1");
    // a name without an ordinal is ignored
    check(one(), &["db-0 new ready", "db-x new ready"], "");
}

#[test]
fn a_rollout_goes_from_the_highest_to_the_partition() {
    let all = ["db-0 old ready", "db-1 old ready", "db-2 old ready"];
    check(json!({}), &all, "-db-2");
    check(json!({}), &["db-0 old ready", "db-1 old ready", "db-2 old ready terminating"], "");
    check(json!({}), &["db-0 old ready", "db-1 old ready", "db-2 new"], "");
    check(json!({}), &["db-0 old ready", "db-1 old ready", "db-2 new ready"], "-db-1");
    check(json!({}), &["db-0 old ready", "db-1 new ready", "db-2 new ready"], "-db-0");
    let until = |partition: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    check(until(2), &all, "-db-2");
    check(until(2), &["db-0 old ready", "db-1 old ready", "db-2 new ready"], "");
    check(until(3), &all, "");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), &all, "");
    // with the policy Parallel, unhealthy pods are replaced, too
    let parallel = json!({"podManagementPolicy": "Parallel"});
    check(parallel.clone(), &["db-0 old", "db-1 old", "db-2 old"], "-db-2");
    check(parallel, &["db-0 old", "db-1 old", "db-2 new"], "");
}

#[test]
fn pods_below_the_partition_have_the_old_template() {
    let updated = |strategy: Value, current: i32| {
        let mut set = set(json!({"updateStrategy": strategy}));
        set.status.current_replicas = current;
        (0..3)
            .map(|ordinal| {
                let labels = LabelNames::new(&Names::kubernetes());
                let view = View {
                    set: &set,
                    pods: &[],
                    current: "old",
                    update: "new",
                    collisions: 0,
                    claim: &|_| None,
                    labels: &labels,
                    gates: Gates::default(),
                    now: Time(NOW),
                };
                if view.is_updated(ordinal) { 'n' } else { 'o' }
            })
            .collect::<String>()
    };
    assert_eq!(updated(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}), 3), "nnn");
    assert_eq!(updated(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}), 3), "oon");
    // without one, the lowest are not updated yet
    assert_eq!(updated(json!({"type": "RollingUpdate"}), 2), "oon");
    assert_eq!(updated(json!({"type": "OnDelete"}), 2), "nnn");
}

#[test]
fn the_status_is_that_after_the_plan() {
    let counts = |pods: &[&str]| {
        let status = plan_for(&set(json!({})), pods, &[], Gates::default()).status;
        format!(
            "{} there, {} ready, {} available, {} {}, {} {}",
            status.replicas,
            status.ready_replicas,
            status.available_replicas,
            status.current_replicas,
            status.current_revision,
            status.updated_replicas,
            status.update_revision
        )
    };
    assert_eq!(counts(&[]), "1 there, 0 ready, 0 available, 0 old, 1 new");
    let all = ["db-0 old ready", "db-1 old ready", "db-2 old ready"];
    assert_eq!(counts(&all), "3 there, 3 ready, 3 available, 2 old, 0 new");
    let half = ["db-0 old ready", "db-1 old ready", "db-2 new"];
    assert_eq!(counts(&half), "3 there, 2 ready, 2 available, 2 old, 1 new");
    // the end of a rollout
    let done = ["db-0 new ready", "db-1 new ready", "db-2 new ready"];
    assert_eq!(counts(&done), "3 there, 3 ready, 3 available, 3 new, 3 new");
    let terminating = ["db-0 new ready", "db-1 new ready", "db-2 new ready terminating"];
    assert_eq!(counts(&terminating), "3 there, 3 ready, 3 available, 0 old, 2 new");
    // of a third revision
    assert_eq!(
        counts(&["db-0 odd ready", "db-1 odd ready", "db-2 odd ready"]),
        "3 there, 3 ready, 3 available, 0 old, 0 new"
    );
}

#[test]
fn a_terminating_set_does_nothing() {
    let mut set = set(json!({}));
    set.metadata.deletion_timestamp = Some(Time(NOW));
    let plan = plan_for(&set, &["db-0 old ready"], &[], on());
    assert_eq!((summary(&plan).as_str(), plan.status.replicas), ("", 1));
}

#[test]
fn identities_are_restored() {
    check(json!({}), &["db-0 new bare", "db-1 new ready"], "~db-0");
    check(json!({"replicas": 1}), &["db-0 new ready bare"], "~db-0");
}

#[test]
fn feature_gates() {
    let of = |spec: Value, pods: &[&str], gates: Gates| summary(&plan_for(&set(spec), pods, &[], gates));
    let off = Gates::default();
    let later = || json!({"replicas": 2, "ordinals": {"start": 5}});
    assert_eq!(of(later(), &[], off), "+0");
    assert_eq!(of(later(), &[], on()), "+5");
    assert_eq!(of(later(), &["db-5 new ready", "db-6 new ready", "db-0 new ready"], on()), "-db-0");
    let two = |partition: i32| {
        let rolling = json!({"partition": partition, "maxUnavailable": 2});
        json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})
    };
    let all = ["db-0 old ready", "db-1 old ready", "db-2 old ready"];
    assert_eq!(of(two(0), &all, off), "-db-2");
    assert_eq!(of(two(0), &all, on()), "-db-2 -db-1");
    assert_eq!(of(two(2), &all, on()), "-db-2");
    let mut parallel = two(0);
    parallel["podManagementPolicy"] = "Parallel".into();
    assert_eq!(of(parallel.clone(), &["db-0 old ready", "db-1 old ready", "db-2 new"], on()), "-db-1");
    assert_eq!(of(parallel, &["db-0 old ready", "db-1 new", "db-2 new"], on()), "");
}

fn claim(name: &str, owners: &[(&str, &str)]) -> PersistentVolumeClaim {
    let owners: Vec<_> = owners
        .iter()
        .map(|(kind, name)| {
            let uid = if *kind == "StatefulSet" { "set" } else { name };
            json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
        })
        .collect();
    let json = json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": owners}});
    object(json)
}

#[test]
fn owners_of_claims_follow_the_policy() {
    let changes = |deleted: &str, scaled: &str, claims: &[PersistentVolumeClaim]| {
        let set = set(json!({
            "replicas": 1,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}]
        }));
        let plan = plan_for(&set, &["db-0 new", "db-1 new"], claims, on());
        let owners = |(claim, owners): &super::retention::Change| {
            let owners: Vec<_> = owners.iter().map(|it| it.name.clone()).collect();
            format!("{}={}", claim.name(), owners.join("+"))
        };
        plan.retain.iter().map(owners).collect::<Vec<_>>().join(" ")
    };
    let unowned = [claim("data-db-0", &[]), claim("data-db-1", &[])];
    assert_eq!(changes("Retain", "Retain", &unowned), "");
    assert_eq!(changes("Delete", "Retain", &unowned), "data-db-0=db data-db-1=db");
    assert_eq!(changes("Retain", "Delete", &unowned), "data-db-1=db-1");
    assert_eq!(changes("Delete", "Delete", &unowned), "data-db-0=db data-db-1=db-1");
    let others = [
        claim("data-db-0", &[("StatefulSet", "db"), ("Backup", "b")]),
        claim("data-db-1", &[("Pod", "db-1")]),
    ];
    assert_eq!(changes("Retain", "Retain", &others), "data-db-0=b data-db-1=");
    assert_eq!(changes("Delete", "Delete", &others), "");
    // claims that do not exist
    assert_eq!(changes("Delete", "Delete", &[]), "");
}

#[test]
fn a_pod_waits_until_stale_claims_are_deleted() {
    let set = set(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}));
    let of = |claims: &[PersistentVolumeClaim], gates| {
        let plan = plan_for(&set, &[], claims, gates);
        (summary(&plan), plan.is_held_up)
    };
    let stale = [claim("data-db-0", &[("Pod", "db-0")])];
    assert_eq!(of(&stale, on()), (String::new(), true));
    assert_eq!(of(&stale, Gates::default()), ("+0".to_owned(), false));
    assert_eq!(of(&[claim("data-db-0", &[("Pod", "db-1")])], on()), ("+0".to_owned(), false));
}

#[test]
fn pending_pods_get_missing_claims() {
    let set = set(json!({"replicas": 1, "volumeClaimTemplates": []}));
    assert_eq!(summary(&plan_for(&set, &["db-0 new pending"], &[], Gates::default())), "");
    let mut with = set.clone();
    with.spec.volume_claim_templates = vec![object(json!({"metadata": {"name": "data"}}))];
    // it does not use the claim either
    assert_eq!(summary(&plan_for(&with, &["db-0 new pending"], &[], Gates::default())), "~db-0");
}
