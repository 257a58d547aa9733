use super::*;
use crate::objects::testing::object;
use crate::resource_managers::cpu::topology::testing::topology;

fn policy(machine: &str, reserved: usize, options: CpuPolicyOptions) -> StaticPolicy {
    StaticPolicy::new(topology(machine), reserved, &CpuSet::new(), options, TopologyPolicy::None).unwrap()
}

fn guaranteed(uid: &str, init: &[&str], app: &[&str]) -> Pod {
    let list = |prefix: &str, cpus: &[&str]| {
        let container = |(at, cpu): (usize, &&str)| {
            let amounts = format!(r#"{{"cpu":"{cpu}","memory":"1Gi"}}"#);
            format!(r#"{{"name":"{prefix}{at}","resources":{{"requests":{amounts},"limits":{amounts}}}}}"#)
        };
        cpus.iter().enumerate().map(container).collect::<Vec<_>>().join(",")
    };
    object(&format!(
        r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"initContainers":[{}],"containers":[{}]}}}}"#,
        list("i", init),
        list("c", app)
    ))
}

fn allocate(policy: &mut StaticPolicy, state: &mut CpuState, pod: &Pod) -> Result<String, AllocationError> {
    let mut shown = Vec::new();
    for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
        policy.allocate(state, pod, container, None)?;
        shown.push(state.get(&pod.metadata.uid, &container.name).map(cpuset::format).unwrap_or_default());
    }
    Ok(shown.join(" "))
}

/// Rows of results of upstream: machine, free CPUs, reusable ones, count, whether by socket, hints.
#[test]
fn hints_are_those_of_upstream() {
    let mut wrong = Vec::new();
    for row in include_str!("../hints.txt").lines() {
        let columns: Vec<&str> = row.split('|').collect();
        let [machine, free, reusable, count, by_socket, expected] = columns[..] else { panic!("{row}") };
        let options =
            CpuPolicyOptions { is_aligned_by_socket: by_socket == "true", ..CpuPolicyOptions::default() };
        let policy = StaticPolicy {
            topology: topology(machine),
            reserved: CpuSet::new(),
            options,
            reusable: Default::default(),
        };
        let (free, reusable) = (cpuset::parse(free).unwrap(), cpuset::parse(reusable).unwrap());
        let hints = policy.hints(&free, &reusable, count.parse().unwrap());
        let shown: Vec<String> = hints
            .iter()
            .map(|it| format!("{}{}", it.affinity.unwrap().bits(), if it.is_preferred { '+' } else { '-' }))
            .collect();
        if shown.join(" ") != expected {
            wrong.push(format!("{row}: {}", shown.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn guaranteed_pods_with_whole_cpus_have_their_own() {
    // two sockets of two cores with two threads
    let mut policy = policy("2 2 4 2 0", 1, CpuPolicyOptions::default());
    let mut state = CpuState::default();
    policy.start(&mut state).unwrap();
    assert_eq!(cpuset::format(&policy.allocatable()), "1-7");
    assert_eq!(allocate(&mut policy, &mut state, &guaranteed("a", &[], &["2", "500m"])).unwrap(), "1,5 ");
    assert_eq!(cpuset::format(&state.shared), "0,2-4,6-7");
    // a whole socket
    assert_eq!(allocate(&mut policy, &mut state, &guaranteed("b", &[], &["4"])).unwrap(), "2-3,6-7");
    let full = allocate(&mut policy, &mut state, &guaranteed("c", &[], &["2"])).unwrap_err();
    assert_eq!(full, AllocationError::Unexpected("not enough cpus available to satisfy request".to_owned()));
    policy.remove(&mut state, "a", "c0");
    assert_eq!(cpuset::format(&state.shared), "0-1,4-5");
    let burstable: Pod = object(
        r#"{"metadata":{"uid":"d"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#,
    );
    assert_eq!(allocate(&mut policy, &mut state, &burstable).unwrap(), "");
}

#[test]
fn containers_take_over_the_cpus_of_init_containers() {
    let mut policy = policy("1 1 8 1 0", 1, CpuPolicyOptions::default());
    let mut state = CpuState::default();
    policy.start(&mut state).unwrap();
    let pod = guaranteed("a", &["4", "2"], &["2", "2"]);
    assert_eq!(allocate(&mut policy, &mut state, &pod).unwrap(), "1-4 1-2 1-2 3-4");
    assert_eq!(cpuset::format(&state.shared), "0,5-7");
    // the app container keeps what the init container gives back
    policy.remove(&mut state, "a", "i0");
    assert_eq!(cpuset::format(&state.shared), "0,5-7");
    // a second admission of the same pod changes nothing
    assert_eq!(allocate(&mut policy, &mut state, &guaranteed("a", &[], &["2", "2"])).unwrap(), "1-2 3-4");
}

#[test]
fn whole_cores_only() {
    let options = CpuPolicyOptions { has_full_cores_only: true, ..CpuPolicyOptions::default() };
    let mut policy = policy("1 1 4 2 0", 2, options);
    let mut state = CpuState::default();
    policy.start(&mut state).unwrap();
    let odd = allocate(&mut policy, &mut state, &guaranteed("a", &[], &["3"])).unwrap_err();
    assert_eq!(odd.to_string(), "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2");
    assert_eq!(allocate(&mut policy, &mut state, &guaranteed("a", &[], &["4"])).unwrap(), "1-2,5-6");
}

#[test]
fn hints_guide_the_choice() {
    let mut policy = policy("2 2 4 2 0", 1, CpuPolicyOptions::default());
    let mut state = CpuState::default();
    policy.start(&mut state).unwrap();
    let pod = guaranteed("a", &[], &["2"]);
    let second = Some(NumaMask::from_iter([1]));
    policy.allocate(&mut state, &pod, &pod.spec.containers[0], second).unwrap();
    assert_eq!(state.get("a", "c0").map(cpuset::format).as_deref(), Some("2,6"));
    // what is assigned keeps its hint
    let hints = policy.container_hints(&state, &pod, &pod.spec.containers[0]);
    assert_eq!(
        hints[CPU].as_deref().unwrap(),
        [
            TopologyHint::new(NumaMask::from_iter([1]), true),
            TopologyHint::new(NumaMask::from_iter([0, 1]), false)
        ]
    );
    // CPUs beyond the hint come from other nodes
    let pod = guaranteed("b", &[], &["3"]);
    policy.allocate(&mut state, &pod, &pod.spec.containers[0], second).unwrap();
    assert_eq!(state.get("b", "c0").map(cpuset::format).as_deref(), Some("3-4,7"));
    let changed = guaranteed("b", &[], &["2"]);
    assert_eq!(policy.container_hints(&state, &changed, &changed.spec.containers[0])[CPU], Some(Vec::new()));
}

#[test]
fn states_that_do_not_fit_the_machine_are_refused() {
    let policy = policy("1 1 4 1 0", 1, CpuPolicyOptions::default());
    let check = |shared: &str, own: &str, expected: &str| {
        let mut state = CpuState { shared: cpuset::parse(shared).unwrap(), ..CpuState::default() };
        if !own.is_empty() {
            state.set("p", "c", cpuset::parse(own).unwrap());
        }
        assert_eq!(policy.start(&mut state).err().unwrap_or_default(), expected);
    };
    check("0,3", "1-2", "");
    check("", "1", "default cpuset cannot be empty");
    check("1-3", "0", "not all reserved cpus: \"0\" are present in defaultCpuSet: \"1-3\"");
    check("0-3", "1", "pod: p, container: c cpuset: \"1\" overlaps with default cpuset \"0-3\"");
    check("0-2", "", "current set of available CPUs \"0-3\" doesn't match with CPUs in state \"0-2\"");
}

#[test]
fn reservations_that_the_machine_does_not_have_are_refused() {
    let made = |reserved: &str, count, options, topology_policy| {
        let listed = cpuset::parse(reserved).unwrap();
        StaticPolicy::new(topology("2 1 4 1 0"), count, &listed, options, topology_policy)
            .err()
            .unwrap_or_default()
    };
    let none = CpuPolicyOptions::default();
    assert_eq!(made("1,3", 2, none, TopologyPolicy::None), "");
    assert_eq!(
        made("", 5, none, TopologyPolicy::None),
        "[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 5)"
    );
    let by_socket = CpuPolicyOptions { is_aligned_by_socket: true, ..none };
    assert!(made("", 1, by_socket, TopologyPolicy::SingleNumaNode).starts_with("Topolgy manager"));
    assert!(made("", 1, by_socket, TopologyPolicy::None).starts_with("Align by socket"));
}
