use super::*;
use crate::objects::testing::object;
use crate::resource_managers::policy_state::State;
use crate::resource_managers::topology::NumaNode;
use serde_json::Value;

const GI: u64 = 1 << 30;

fn machine(nodes: &[(u64, u64)]) -> MachineTopology {
    let node = |(id, (memory, pages)): (usize, &(u64, u64))| NumaNode {
        id: u32::try_from(id).unwrap(),
        memory: *memory,
        hugepages: vec![(2 << 20, *pages)],
        ..NumaNode::default()
    };
    MachineTopology { nodes: nodes.iter().enumerate().map(node).collect() }
}

fn policy(nodes: &[(u64, u64)]) -> StaticPolicy {
    let machine = machine(nodes);
    let reserved = machine.node_ids().into_iter().map(|id| (id, Sizes::from([(MEMORY.to_owned(), GI)])));
    let reserved = reserved.collect();
    StaticPolicy::new(machine, reserved).unwrap()
}

fn pod(uid: &str, init: &[(u64, u64)], app: &[(u64, u64)]) -> Pod {
    let list = |prefix: &str, sizes: &[(u64, u64)]| {
        let container = |(at, (memory, pages)): (usize, &(u64, u64))| {
            let pages = if *pages > 0 { format!(r#","hugepages-2Mi":"{pages}""#) } else { String::new() };
            let amounts = format!(r#"{{"cpu":"1","memory":"{memory}"{pages}}}"#);
            format!(r#"{{"name":"{prefix}{at}","resources":{{"requests":{amounts},"limits":{amounts}}}}}"#)
        };
        sizes.iter().enumerate().map(container).collect::<Vec<_>>().join(",")
    };
    object(&format!(
        r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"initContainers":[{}],"containers":[{}]}}}}"#,
        list("i", init),
        list("c", app)
    ))
}

fn shown(hints: &ProviderHints) -> BTreeMap<String, String> {
    let text = |it: &TopologyHint| {
        format!("{}{}", it.affinity.unwrap().bits(), if it.is_preferred { '+' } else { '-' })
    };
    let list =
        |hints: &Option<Vec<TopologyHint>>| hints.iter().flatten().map(text).collect::<Vec<_>>().join(" ");
    hints.iter().map(|(name, hints)| (name.clone(), list(hints))).collect()
}

fn pairs(value: &Value) -> Vec<(u64, u64)> {
    let pair = |it: &Value| (it[0].as_u64().unwrap(), it[1].as_u64().unwrap());
    value.as_array().unwrap().iter().map(pair).collect()
}

/// Admissions and removals with the hints, errors and states that upstream had.
#[test]
fn memory_is_assigned_as_upstream_does() {
    for (line, row) in include_str!("../sequences.jsonl").lines().enumerate() {
        let row: Value = serde_json::from_str(row).unwrap();
        let mut policy = policy(&pairs(&row["nodes"]));
        let mut state = MemoryState::default();
        policy.start(&mut state).unwrap();
        for step in row["steps"].as_array().unwrap() {
            if let Some(removed) = step["remove"].as_array() {
                policy.remove(&mut state, removed[0].as_str().unwrap(), removed[1].as_str().unwrap());
            } else {
                let pod = pod(step["pod"].as_str().unwrap(), &pairs(&step["init"]), &pairs(&step["app"]));
                let expected = serde_json::from_value::<BTreeMap<String, String>>(step["podHints"].clone());
                assert_eq!(shown(&policy.pod_hints(&state, &pod)), expected.unwrap(), "{line}: {step}");
                let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
                for (container, result) in containers.zip(step["results"].as_array().unwrap()) {
                    let expected =
                        serde_json::from_value::<BTreeMap<String, String>>(result["hints"].clone());
                    let hints = shown(&policy.container_hints(&state, &pod, container));
                    assert_eq!(hints, expected.unwrap(), "{line}: {step}");
                    let affinity = result["affinity"][0].as_u64().map(NumaMask::from_bits);
                    let is_preferred = result["affinity"][1].as_bool().unwrap();
                    let hint = TopologyHint { affinity, is_preferred };
                    let error = policy.allocate(&mut state, &pod, container, hint).err().unwrap_or_default();
                    assert_eq!(error, result["error"].as_str().unwrap(), "{line}: {step}");
                }
            }
            let written: Value = serde_json::from_str(&state.text("Static")).unwrap();
            assert_eq!(written["machineState"], step["state"], "{line}: {step}");
            if let Some(blocks) = step["blocks"].as_object().filter(|it| !it.is_empty()) {
                assert_eq!(written["entries"].as_object(), Some(blocks), "{line}: {step}");
            }
        }
    }
}

#[test]
fn states_that_do_not_fit_the_machine_are_refused() {
    let mut first = policy(&[(4 * GI, 0), (4 * GI, 0)]);
    let mut state = MemoryState::default();
    first.start(&mut state).unwrap();
    let it = pod("p", &[], &[(2 * GI, 0)]);
    first.allocate(&mut state, &it, &it.spec.containers[0], TopologyHint::default()).unwrap();
    first.start(&mut state.clone()).unwrap();
    let error = |policy: &StaticPolicy, state: &MemoryState| policy.start(&mut state.clone()).unwrap_err();
    assert_eq!(
        error(&policy(&[(5 * GI, 0), (4 * GI, 0)]), &state),
        "[memorymanager] the expected machine state is different from the real one"
    );
    let mut other = state.clone();
    other.assignments.get_mut("p").unwrap().get_mut("c0").unwrap()[0].nodes = vec![9];
    assert!(error(&first, &other).ends_with("uses the NUMA that does not exist"));
    other.assignments.get_mut("p").unwrap().get_mut("c0").unwrap()[0] =
        MemoryBlock { nodes: vec![0], resource: "hugepages-1Gi".to_owned(), size: 1 };
    assert!(error(&first, &other).ends_with("uses memory resource that does not exist"));
    other.nodes.clear();
    assert!(error(&first, &other).contains("can not be empty"));
}

#[test]
fn requests_for_pages_that_the_machine_does_not_have_are_refused() {
    let mut policy = policy(&[(4 * GI, 0)]);
    let mut state = MemoryState::default();
    policy.start(&mut state).unwrap();
    let it: Pod = object(
        r#"{"metadata":{"uid":"p"},"spec":{"containers":[{"name":"c","resources":{
            "requests":{"cpu":"1","memory":"1Gi","hugepages-1Gi":"1Gi"},
            "limits":{"cpu":"1","memory":"1Gi","hugepages-1Gi":"1Gi"}}}]}}"#,
    );
    let refused = policy.allocate(&mut state, &it, &it.spec.containers[0], TopologyHint::default());
    assert!(refused.unwrap_err().contains("no NUMA nodes with enough memory"));
}

#[test]
fn memory_must_be_held_back_for_the_system() {
    let made = StaticPolicy::new(machine(&[(GI, 0)]), BTreeMap::new());
    assert_eq!(made.unwrap_err(), "[memorymanager] you should specify the system reserved memory");
    assert!(
        StaticPolicy::new(machine(&[(GI, 0); 17]), BTreeMap::new()).unwrap_err().contains("more than 16")
    );
}
