//! The JSON of upstream's extender API (`k8s.io/kube-scheduler/extender/v1`).
//!
//! Field names are capitalized in requests. Responses are read without regard to case, because Go reads them so and
//! extenders in other languages rely on it.

use api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::{Candidate, Filtered};
use crate::node_info::NodeInfo;

/// The arguments of filter and prioritize: the names of the nodes, or the nodes themselves.
pub(super) fn args(pod: &Pod, nodes: &[&NodeInfo], is_cached: bool) -> Vec<u8> {
    let mut text = br#"{"Pod":"#.to_vec();
    text.extend(api::to_json(pod));
    if is_cached {
        let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
        text.extend(br#","Nodes":null,"NodeNames":"#);
        text.extend(Value::from(names).to_string().into_bytes());
    } else {
        text.extend(br#","Nodes":{"metadata":{},"items":["#);
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            text.extend(api::to_json(&*node.node));
        }
        text.extend(br#"]},"NodeNames":null"#);
    }
    text.push(b'}');
    text
}

/// The arguments of preempt. `pods` has the victims of each candidate, unless the extender knows them by uid.
pub(super) fn preemption_args(
    pod: &Pod,
    candidates: &[Candidate],
    pods: Option<Vec<Vec<std::sync::Arc<Pod>>>>,
) -> Vec<u8> {
    let mut text = br#"{"Pod":"#.to_vec();
    text.extend(api::to_json(pod));
    let Some(pods) = pods else {
        let meta = |candidate: &Candidate| {
            let pods: Vec<Value> =
                candidate.victims.iter().map(|victim| json!({"UID": victim.uid()})).collect();
            let victims = json!({"Pods": pods, "NumPDBViolations": candidate.violations});
            (candidate.node.clone(), victims)
        };
        let victims: Map<String, Value> = candidates.iter().map(meta).collect();
        text.extend(br#","NodeNameToVictims":null,"NodeNameToMetaVictims":"#);
        text.extend(Value::from(victims).to_string().into_bytes());
        text.push(b'}');
        return text;
    };
    text.extend(br#","NodeNameToVictims":{"#);
    for (at, (candidate, victims)) in candidates.iter().zip(pods).enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend(Value::from(&*candidate.node).to_string().into_bytes());
        text.extend(br#":{"Pods":["#);
        for (at, victim) in victims.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            text.extend(api::to_json(&**victim));
        }
        text.extend(format!("],\"NumPDBViolations\":{}}}", candidate.violations).into_bytes());
    }
    text.extend(br#"},"NodeNameToMetaVictims":null}"#);
    text
}

/// A field of a response; `null` is absent.
fn field<'v>(answer: &'v Value, name: &str) -> Option<&'v Value> {
    let fields = answer.as_object()?;
    let value = fields
        .get(name)
        .or_else(|| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value));
    value.filter(|value| !value.is_null())
}

fn wrong(name: &str, expected: &str) -> String {
    format!("the field {name} of the extender's response is not {expected}")
}

fn is_object(answer: &Value) -> Result<(), String> {
    match answer {
        Value::Object(_) | Value::Null => Ok(()),
        _ => Err("the extender's response is not an object".to_owned()),
    }
}

/// The error that a response contains.
pub(super) fn check_error(answer: &Value) -> Result<(), String> {
    is_object(answer)?;
    match field(answer, "Error") {
        None => Ok(()),
        Some(Value::String(message)) if message.is_empty() => Ok(()),
        Some(Value::String(message)) => Err(message.clone()),
        Some(_) => Err(wrong("Error", "text")),
    }
}

/// The response of a filter. Nodes come by name where the extender has them cached, and as objects otherwise.
pub(super) fn filtered(answer: &Value, is_cached: bool) -> Result<Filtered, String> {
    check_error(answer)?;
    let nodes = match (field(answer, "NodeNames").filter(|_| is_cached), field(answer, "Nodes")) {
        (Some(names), _) => texts(names).ok_or_else(|| wrong("NodeNames", "a list of texts"))?,
        (None, Some(list)) => node_names(list).ok_or_else(|| wrong("Nodes", "a list of nodes"))?,
        (None, None) => Vec::new(),
    };
    Ok(Filtered {
        nodes,
        failed: reasons(answer, "FailedNodes")?,
        failed_and_unresolvable: reasons(answer, "FailedAndUnresolvableNodes")?,
    })
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn node_names(list: &Value) -> Option<Vec<String>> {
    let Some(items) = field(list, "items") else { return Some(Vec::new()) };
    let name = |node: &Value| Some(field(field(node, "metadata")?, "name")?.as_str()?.to_owned());
    items.as_array()?.iter().map(name).collect()
}

fn reasons(answer: &Value, name: &str) -> Result<Vec<(String, String)>, String> {
    let Some(value) = field(answer, name) else { return Ok(Vec::new()) };
    let pairs = value.as_object().ok_or_else(|| wrong(name, "a map of texts"))?.iter();
    let pair = |(node, reason): (&String, &Value)| Some((node.clone(), reason.as_str()?.to_owned()));
    pairs.map(pair).collect::<Option<_>>().ok_or_else(|| wrong(name, "a map of texts"))
}

/// The response of prioritize: scores by node name.
pub(super) fn priorities(answer: &Value) -> Result<Vec<(String, i64)>, String> {
    if answer.is_null() {
        return Ok(Vec::new());
    }
    let items = answer.as_array().ok_or("the extender's response is not a list of scores")?.iter();
    let score = |item: &Value| {
        let host = field(item, "Host").map_or(Some(""), Value::as_str)?.to_owned();
        Some((host, field(item, "Score").map_or(Some(0), Value::as_i64)?))
    };
    items.map(score).collect::<Option<_>>().ok_or_else(|| "a score of the extender cannot be read".to_owned())
}

/// Victims of a node by uid, and how many of them a disruption budget protects.
pub(super) struct MetaVictims {
    pub node: String,
    pub uids: Vec<String>,
    pub violations: usize,
}

/// The response of preempt.
pub(super) fn meta_victims(answer: &Value) -> Result<Vec<MetaVictims>, String> {
    const NAME: &str = "NodeNameToMetaVictims";
    is_object(answer)?;
    let Some(nodes) = field(answer, NAME) else { return Ok(Vec::new()) };
    let nodes = nodes.as_object().ok_or_else(|| wrong(NAME, "a map of victims"))?.iter();
    let victims = |(node, victims): (&String, &Value)| {
        let uid = |pod: &Value| field(pod, "UID").map_or(Some(""), Value::as_str).map(str::to_owned);
        let uids = match field(victims, "Pods") {
            None => Vec::new(),
            Some(pods) => pods.as_array()?.iter().map(uid).collect::<Option<_>>()?,
        };
        let violations = field(victims, "NumPDBViolations").map_or(Some(0), Value::as_i64)?;
        let violations = usize::try_from(violations).unwrap_or(0);
        Some(MetaVictims { node: node.clone(), uids, violations })
    };
    nodes.map(victims).collect::<Option<_>>().ok_or_else(|| wrong(NAME, "a map of victims"))
}
