//! The objects that the work of a simulation consists of.

use super::choice::Choice;
use super::invariants::finalizers::FINALIZER;
use super::invariants::garbage::LABEL;
use serde_json::{Value, json};

/// A pod template. Its pods are ready some seconds after their start.
fn template(choice: &Choice, app: &str, version: u64) -> Value {
    let ready_after = format!("{}s", choice.below(15));
    json!({
        "metadata": {
            "labels": {"app": app},
            "annotations": {"simulation.pintle.io/ready-after": ready_after, "version": version.to_string()},
        },
        "spec": {
            "terminationGracePeriodSeconds": choice.between(1, 40),
            "containers": [{"name": "c", "image": "example.com/c:1"}],
        },
    })
}

fn selector(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

pub fn deployment(choice: &Choice, name: &str) -> Value {
    let pairs = [
        (json!("25%"), json!("25%")),
        (json!(1), json!(0)),
        (json!(0), json!(1)),
        (json!(2), json!(1)),
        (json!("100%"), json!("50%")),
    ];
    let (surge, unavailable) = choice.pick(&pairs);
    let strategy = match choice.chance(8) {
        true => json!({"type": "Recreate"}),
        false => {
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
        }
    };
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": choice.between(1, 6),
            "minReadySeconds": choice.below(2) * choice.below(10),
            "revisionHistoryLimit": choice.below(4),
            "strategy": strategy,
            "selector": selector(name),
            "template": template(choice, name, 0),
        },
    })
}

pub fn stateful_set(choice: &Choice, name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": choice.between(1, 4),
            "serviceName": name,
            "podManagementPolicy": if choice.chance(50) { "OrderedReady" } else { "Parallel" },
            "selector": selector(name),
            "template": template(choice, name, 0),
        },
    })
}

pub fn daemon_set(choice: &Choice, name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"selector": selector(name), "template": template(choice, name, 0)},
    })
}

/// The change of a template that rolls a workload out anew.
pub fn new_version(version: u64) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"version": version.to_string()}}}}})
}

/// The spec of a Job whose pods end by themselves, now and then with an error.
fn job_spec(choice: &Choice) -> Value {
    let exit_code = if choice.chance(20) { "1" } else { "0" };
    let completions = choice.between(1, 6);
    let mut spec = json!({
        "parallelism": choice.between(1, 4),
        "completions": completions,
        "backoffLimit": choice.below(4),
        "template": {
            "metadata": {"annotations": {
                "simulation.pintle.io/run-for": format!("{}s", choice.between(1, 60)),
                "simulation.pintle.io/exit-code": exit_code,
            }},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "example.com/c:1"}],
            },
        },
    });
    if choice.chance(40) {
        spec["completionMode"] = json!("Indexed");
    }
    if choice.chance(30) {
        spec["ttlSecondsAfterFinished"] = json!(choice.between(0, 300));
    }
    if choice.chance(10) {
        spec["activeDeadlineSeconds"] = json!(choice.between(20, 200));
    }
    spec
}

pub fn job(choice: &Choice, name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": job_spec(choice)})
}

pub fn cron_job(choice: &Choice, name: &str) -> Value {
    let mut spec = job_spec(choice);
    spec["completions"] = json!(1);
    spec["parallelism"] = json!(1);
    json!({
        "metadata": {"name": name},
        "spec": {
            "schedule": format!("*/{} * * * *", choice.between(1, 7)),
            "concurrencyPolicy": *choice.pick(&["Allow", "Forbid", "Replace"]),
            "successfulJobsHistoryLimit": choice.between(1, 3),
            "failedJobsHistoryLimit": choice.between(1, 3),
            "jobTemplate": {"spec": spec},
        },
    })
}

pub fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

pub fn budget(choice: &Choice, name: &str) -> Value {
    let amount = match choice.below(3) {
        0 => json!({"minAvailable": choice.between(1, 3)}),
        1 => json!({"maxUnavailable": 1}),
        _ => json!({"minAvailable": "50%"}),
    };
    let mut budget = json!({"metadata": {"name": name}, "spec": {"selector": selector(name)}});
    if let (Some(spec), Some(amount)) = (budget["spec"].as_object_mut(), amount.as_object()) {
        spec.extend(amount.clone());
    }
    budget
}

pub fn quota(hard: Value) -> Value {
    json!({"metadata": {"name": "quota"}, "spec": {"hard": hard}})
}

pub fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// An object that waits for a client before it is gone.
pub fn held_config_map(name: &str) -> Value {
    json!({"metadata": {"name": name, "finalizers": [FINALIZER]}})
}

/// An object that goes with its owners, given by name and uid.
pub fn dependent(name: &str, owners: &[(String, String)], blocks: bool) -> Value {
    let owners = owners.iter().map(|(name, uid)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
    });
    json!({"metadata": {"name": name, "labels": {LABEL: "true"}, "ownerReferences": owners.collect::<Vec<_>>()}})
}
