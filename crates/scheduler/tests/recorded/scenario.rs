//! One scenario: its runs over all choices, and the comparison with the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use names::Names;
use scheduler::config::{Configuration, Gates};
use scheduler::framework::Profile;
use serde_json::{Map, Value};

use super::cluster::{Choices, Cluster};
use super::text;

/// More ties than this are not followed to the end.
const MOST_RUNS: usize = 3000;
/// How long a step may take to come to its end.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(100);

type States = BTreeMap<String, Value>;

/// The states after a step.
struct Observed {
    pods: States,
    problem: Option<String>,
}

pub fn check(scenario: &Value) -> Result<(), String> {
    let (profiles, percentage) = profiles(&scenario["config"])?;
    let mut runs = Vec::new();
    let mut choices = Some(Choices::default());
    let mut is_complete = true;
    while let Some(now) = choices {
        if runs.len() == MOST_RUNS {
            is_complete = false;
            break;
        }
        let (states, after) = run(scenario, &profiles, percentage, now);
        if let Some((at, problem)) =
            states.iter().enumerate().find_map(|(at, step)| Some((at, step.problem.clone()?)))
        {
            return Err(format!("step {}: {problem}", at + 1));
        }
        runs.push(states);
        choices = after.advance();
    }
    match is_complete {
        true => compare_ties(scenario, &runs),
        false => Ok(()),
    }
}

fn profiles(config: &Value) -> Result<(Vec<Profile>, i32), String> {
    let gates = Gates { pod_scheduling_readiness: true, ..Gates::default() };
    let names = Names::kubernetes();
    let config = match config {
        Value::Null => Configuration::with_defaults(&names, gates),
        config => {
            let text = serde_json::to_vec(config).unwrap();
            Configuration::read(&text, &names, gates).map_err(|error| error.to_string())?
        }
    };
    config.validate(&names, gates).map_err(|error| error.to_string())?;
    let profiles = config.profiles(gates).map_err(|error| error.to_string())?;
    Ok((profiles, config.percentage_of_nodes_to_score.unwrap_or(0)))
}

fn run(
    scenario: &Value,
    profiles: &[Profile],
    percentage: i32,
    choices: Choices,
) -> (Vec<Observed>, Choices) {
    let mut cluster = Cluster::new(profiles.to_vec(), percentage, choices);
    let rank = |object: &&Value| match text(&object["kind"]) {
        "PriorityClass" | "Namespace" | "RuntimeClass" => 0,
        "StorageClass" | "CSIDriver" | "CSINode" => 1,
        "PersistentVolume" => 2,
        "PersistentVolumeClaim" => 3,
        "Pod" => 9,
        "Node" => 5,
        _ => 4,
    };
    let mut objects: Vec<&Value> = scenario["objects"].as_array().unwrap().iter().collect();
    objects.sort_by_key(rank);
    for object in objects {
        cluster.create(object);
        cluster.sleep(Duration::from_millis(10));
    }
    cluster.sleep(Duration::from_millis(200));
    let mut states = Vec::new();
    for step in scenario["steps"].as_array().unwrap() {
        for operation in step["do"].as_array().unwrap() {
            cluster.operate(operation);
        }
        cluster.sleep(Duration::from_secs_f64(step["quiet"].as_f64().unwrap_or(0.0)));
        let mut waited = Duration::ZERO;
        let problem = loop {
            match compare(&step["expect"], &cluster) {
                Err(_) if waited < STEP_TIMEOUT => {}
                result => break result.err(),
            }
            cluster.sleep(TICK);
            waited += TICK;
        };
        let is_wrong = problem.is_some();
        states.push(Observed { pods: cluster.observe(), problem });
        if is_wrong {
            break;
        }
    }
    (states, cluster.choices)
}

fn compare(expected: &Value, cluster: &Cluster) -> Result<(), String> {
    compare_pods(expected["pods"].as_object().unwrap(), &cluster.observe())?;
    let volumes = cluster.observe_volumes();
    for (name, expected) in expected["volumes"].as_object().into_iter().flatten() {
        let seen = volumes.get(name).cloned().unwrap_or_default();
        for (field, expected) in expected.as_object().unwrap() {
            if !matches(expected, &seen[field]) {
                return Err(format!("{name}.{field} is {}, recorded {expected}", seen[field]));
            }
        }
    }
    Ok(())
}

fn compare_pods(expected: &Map<String, Value>, states: &States) -> Result<(), String> {
    if let Some(pod) = states.keys().find(|pod| !expected.contains_key(*pod)) {
        return Err(format!("{pod} is not recorded"));
    }
    for (pod, expected) in expected {
        let state = states.get(pod).ok_or_else(|| format!("{pod} is missing"))?;
        for field in ["gone", "node", "nominatedNodeName", "terminatingGrace"] {
            compare_field(&format!("{pod}.{field}"), &expected[field], &state[field])
                .map_err(|problem| format!("{problem}; {state}"))?;
        }
        for condition in ["PodScheduled", "DisruptionTarget"] {
            for field in ["status", "reason", "message"] {
                let (expected, seen) = (&expected[condition][field], &state[condition][field]);
                compare_field(&format!("{pod}.{condition}.{field}"), expected, seen)?;
            }
        }
    }
    Ok(())
}

fn compare_field(path: &str, expected: &Value, seen: &Value) -> Result<(), String> {
    let is_empty = |value: &Value| value.is_null() || value == "";
    match is_empty(expected) && is_empty(seen) || matches(expected, seen) {
        true => Ok(()),
        false => Err(format!("{path} is\n    {seen}\n  recorded\n    {expected}")),
    }
}

fn matches(expected: &Value, seen: &Value) -> bool {
    match expected["anyOf"].as_array() {
        Some(any) => any.contains(seen),
        None => expected == seen,
    }
}

/// The sets of ties, and the placements that are possible together.
fn compare_ties(scenario: &Value, runs: &[Vec<Observed>]) -> Result<(), String> {
    for (at, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        for (pod, expected) in step["expect"]["pods"].as_object().unwrap() {
            let Some(any) = expected["node"]["anyOf"].as_array() else { continue };
            let seen: BTreeSet<&str> = runs.iter().map(|run| text(&run[at].pods[pod]["node"])).collect();
            let listed: BTreeSet<&str> = any.iter().map(text).collect();
            if seen != listed {
                return Err(format!("step {}: {pod} can be on {seen:?}, recorded {listed:?}", at + 1));
            }
        }
    }
    let Some(joint) = scenario["joint"].as_object() else { return Ok(()) };
    let pods = joint["pods"].as_array().unwrap();
    let nodes = |run: &Vec<Observed>| -> Vec<String> {
        let last = &run.last().unwrap().pods;
        pods.iter().map(|pod| text(&last[text(pod)]["node"]).to_owned()).collect()
    };
    let seen: BTreeSet<Vec<String>> = runs.iter().map(nodes).collect();
    let allowed = joint["allowed"].as_array().unwrap().iter();
    let allowed: BTreeSet<Vec<String>> = allowed
        .map(|nodes| nodes.as_array().unwrap().iter().map(|node| text(node).to_owned()).collect())
        .collect();
    match seen == allowed {
        true => Ok(()),
        false => Err(format!("joint placements {seen:?}, recorded {allowed:?}")),
    }
}
