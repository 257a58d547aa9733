//! The table of cases of [`plan`](super::plan::plan).

use super::backoff::BackoffTable;
use super::dead_containers::DeadContainerPolicy;
use super::observation::PodObservation;
use super::plan::{Plan, PlanInput, plan, superseded};
use super::spec::{container_hash, find};
use crate::runtime::{ContainerState, ContainerStatus, SandboxInfo, SandboxStatus};
use api::core::v1::{EphemeralContainer, Pod};
use std::collections::BTreeSet;
use std::time::Duration;

/// A pod with the init containers `i`, `j`, ... and app containers `a`, `b`, ... of a spec such as `ij|ab`.
fn pod(policy: &str, containers: &str) -> Pod {
    let (init, app) = containers.split_once('|').unwrap_or(("", containers));
    let list = |names: &str| {
        let each = names.chars().map(|name| format!(r#"{{"name":"{name}","image":"x"}}"#));
        each.collect::<Vec<_>>().join(",")
    };
    let (init, app) = (list(init), list(app));
    let text = format!(
        r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},"spec":{{"restartPolicy":"{policy}","initContainers":[{init}],"containers":[{app}]}}}}"#
    );
    api::from_json(text.as_bytes()).unwrap()
}

/// The state of containers, newest last: `a:run`, `a:0` (exit code), `a:created`, `a:unknown`, `a:old` (runs with
/// another definition); `sandbox` and `sandbox:dead`.
fn observe(pod: &Pod, states: &str) -> PodObservation {
    let mut observed = PodObservation::default();
    for (index, state) in states.split_whitespace().enumerate() {
        let (name, state) = state.split_once(':').unwrap_or((state, "ready"));
        let created_at = index as i64 + 1;
        if name == "sandbox" {
            let info = SandboxInfo {
                id: format!("s{index}"),
                attempt: observed.sandboxes.len() as u32,
                is_ready: state == "ready",
                created_at,
                ..SandboxInfo::default()
            };
            observed.set_sandbox(SandboxStatus {
                info,
                ips: vec!["10.0.0.1".into()],
                ..SandboxStatus::default()
            });
            continue;
        }
        let mut status = ContainerStatus {
            id: format!("{name}{index}"),
            name: name.into(),
            created_at,
            ..Default::default()
        };
        let mut hash = find(pod, name).map_or(0, |it| container_hash(&it.container));
        status.state = match state {
            "run" => ContainerState::Running,
            "old" => {
                hash ^= 1;
                ContainerState::Running
            }
            "created" => ContainerState::Created,
            "unknown" => ContainerState::Unknown,
            code => {
                status.exit_code = code.parse().unwrap();
                status.finished_at = 1_000_000_000_000;
                ContainerState::Exited
            }
        };
        status.annotations.insert(names::node::CONTAINER_HASH.into(), format!("{hash:x}"));
        observed.set_container(status);
    }
    observed
}

/// The plan in one line.
fn describe(plan: &Plan) -> String {
    let mut text = Vec::new();
    if plan.kill_pod {
        text.push("end".to_owned());
    }
    text.extend(plan.kill.iter().map(|it| format!("kill {} ({})", it.name, it.message)));
    text.extend(plan.create_sandbox.map(|attempt| format!("sandbox {attempt}")));
    text.extend(plan.start.iter().map(|it| match it.wait {
        Some((delay, _)) => format!("wait {} {}s", it.name, delay.as_secs()),
        None => format!("start {}", it.name),
    }));
    text.join(", ")
}

struct Case<'a> {
    policy: &'a str,
    containers: &'a str,
    observed: &'a str,
    plan: &'a str,
}

const fn case<'a>(policy: &'a str, containers: &'a str, observed: &'a str, plan: &'a str) -> Case<'a> {
    Case { policy, containers, observed, plan }
}

fn check(pod: &Pod, observed: &str, failed: [&[&str]; 2], backoff: u32) -> String {
    let observed = observe(pod, observed);
    let set = |ids: &[&str]| ids.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let mut table = BackoffTable::default();
    let now = Duration::from_secs(1000);
    for spec in super::spec::containers(pod) {
        for _ in 0..backoff {
            table.advance((spec.container.name.clone(), container_hash(&spec.container)), now, now);
        }
    }
    describe(&plan(&PlanInput {
        pod,
        observed: &observed,
        failed_liveness: &set(failed[0]),
        failed_startup: &set(failed[1]),
        backoff: &table,
        now,
        unix_now: 1_000_000_000_000,
    }))
}

#[test]
fn cases() {
    let cases = [
        // sandboxes
        case("Always", "ab", "", "end, sandbox 0, start a, start b"),
        case("Always", "ij|a", "", "end, sandbox 0, start i"),
        case("Always", "a", "sandbox:dead", "end, sandbox 1, start a"),
        case("Always", "ij|a", "sandbox:dead i:0 j:0 a:run", "end, sandbox 1, start i"),
        case("Never", "a", "sandbox:dead a:0", "end"),
        case("Never", "a", "sandbox:dead", "end, sandbox 1, start a"),
        case("OnFailure", "ab", "sandbox:dead a:0 b:1", "end, sandbox 1, start b"),
        case("OnFailure", "a", "sandbox:dead a:0", "end"),
        case("Always", "a", "sandbox sandbox a:run", "end, sandbox 2, start a"),
        // app containers
        case("Always", "ab", "sandbox", "start a, start b"),
        case("Always", "ab", "sandbox a:run", "start b"),
        case("Always", "ab", "sandbox a:run b:run", ""),
        case("Always", "ab", "sandbox a:run b:0", "start b"),
        case("Always", "ab", "sandbox a:run b:1", "start b"),
        case("OnFailure", "ab", "sandbox a:run b:0", ""),
        case("OnFailure", "ab", "sandbox a:run b:1", "start b"),
        case("Never", "ab", "sandbox a:run b:1", ""),
        case("Never", "ab", "sandbox a:0 b:1", "end"),
        case("OnFailure", "ab", "sandbox a:0 b:0", "end"),
        case("Always", "a", "sandbox a:created", "start a"),
        case(
            "Always",
            "a",
            "sandbox a:unknown",
            "kill a (Container is in unknown state, try killing it before restart: a), start a",
        ),
        case("Always", "a", "sandbox a:1 a:run", ""),
        // changed definitions, whatever the policy
        case(
            "Never",
            "a",
            "sandbox a:old",
            "kill a (Container a definition changed, will be restarted), start a",
        ),
        case(
            "Always",
            "ab",
            "sandbox a:run b:old",
            "kill b (Container b definition changed, will be restarted), start b",
        ),
        // init containers
        case("Always", "ij|a", "sandbox", "start i"),
        case("Always", "ij|a", "sandbox i:run", ""),
        case("Always", "ij|a", "sandbox i:0", "start j"),
        case("Always", "ij|a", "sandbox i:0 j:run", ""),
        case("Always", "ij|a", "sandbox i:0 j:0", "start a"),
        case("Always", "ij|a", "sandbox i:0 j:1", "start j"),
        case("OnFailure", "ij|a", "sandbox i:1", "start i"),
        case("Never", "ij|a", "sandbox i:1", "end"),
        case("Never", "ij|a", "sandbox i:unknown", "end"),
        case("Never", "ij|a", "sandbox i:created", "start i"),
        // an app container that ran: init containers may have been removed
        case("Always", "ij|a", "sandbox a:run", ""),
        case("Always", "ij|a", "sandbox a:1", "start a"),
    ];
    for Case { policy, containers, observed, plan } in cases {
        let pod = pod(policy, containers);
        assert_eq!(check(&pod, observed, [&[], &[]], 0), plan, "{policy} {containers} {observed}");
    }
}

#[test]
fn failed_probes_end_a_container() {
    let liveness = |policy, observed| check(&pod(policy, "ab"), observed, [&["a1"], &[]], 0);
    let restarted = "kill a (Container a failed liveness probe, will be restarted), start a";
    assert_eq!(liveness("Always", "sandbox a:run b:run"), restarted);
    assert_eq!(liveness("Never", "sandbox a:run b:run"), "kill a (Container a failed liveness probe)");
    assert_eq!(liveness("Never", "sandbox a:run b:0"), "end");
    // the verdict belongs to one run of the container
    assert_eq!(check(&pod("Always", "a"), "sandbox a:1 a:run", [&["a1"], &[]], 0), "");
    assert_eq!(
        check(&pod("Always", "a"), "sandbox a:run", [&[], &["a1"]], 0),
        "kill a (Container a failed startup probe, will be restarted), start a"
    );
}

#[test]
fn restarts_wait_for_their_delay() {
    let wait =
        |policy, containers, observed, tries| check(&pod(policy, containers), observed, [&[], &[]], tries);
    assert_eq!(wait("Always", "a", "sandbox a:1", 1), "wait a 10s");
    assert_eq!(wait("Always", "a", "sandbox a:1", 3), "wait a 40s");
    assert_eq!(wait("OnFailure", "i|a", "sandbox i:1", 2), "wait i 20s");
    assert_eq!(wait("Always", "ab", "sandbox a:1 b:run", 1), "wait a 10s");
    // a container that has not ended has no delay
    assert_eq!(wait("Always", "a", "sandbox a:created", 1), "start a");
}

#[test]
fn ephemeral_containers_run_once_and_keep_no_pod_alive() {
    let mut pod = pod("Never", "i|a");
    pod.spec.ephemeral_containers = vec![EphemeralContainer { name: "d".into(), ..Default::default() }];
    for (observed, plan) in [
        ("sandbox i:run", "start d"),
        ("sandbox i:0 a:run", "start d"),
        ("sandbox i:0 a:run d:run", ""),
        ("sandbox i:0 a:run d:1", ""),
        ("sandbox i:0 a:0 d:run", "end"),
        ("sandbox i:0 a:0", "end"),
    ] {
        assert_eq!(check(&pod, observed, [&[], &[]], 0), plan, "{observed}");
    }
}

#[test]
fn a_deleted_pod_restarts_nothing() {
    let mut pod = pod("Always", "a");
    pod.metadata.deletion_timestamp = Some(api::Time(1));
    assert_eq!(check(&pod, "sandbox a:1", [&[], &[]], 0), "end");
}

#[test]
fn all_but_the_newest_ended_run_of_a_name_are_superseded() {
    let pod = pod("Always", "i|ab");
    let observed = observe(&pod, "sandbox i:1 i:0 a:1 a:1 a:run b:1");
    let ids = |policy: DeadContainerPolicy| superseded(&pod, &observed, &policy, 1 << 40);
    assert_eq!(ids(DeadContainerPolicy::default()), ["i1", "a3"]);
    let all = DeadContainerPolicy { per_container: None, ..DeadContainerPolicy::default() };
    assert_eq!(ids(all), [""; 0]);
    let young = DeadContainerPolicy { min_age: Duration::from_secs(3600), ..DeadContainerPolicy::default() };
    assert_eq!(ids(young), [""; 0]);
}
