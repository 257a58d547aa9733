//! Nodes, as several loops use them: conditions, events, and patches that are retried on conflict.

use api::Resource;
use api::core::v1::{Node, NodeCondition};
use client::events::{EventType, Recorder};
use client::{Api, Client, Failure, Key, Patch, unless};
use serde_json::Value;

/// The limit of attempts of one write; the key is then retried with backoff.
const TRIES: usize = 5;

/// The condition that says whether a node accepts pods.
pub const READY: &str = "Ready";

/// The part of a node that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

pub fn key(name: &str) -> Key {
    Key::new("", name)
}

pub fn condition<'a>(node: &'a Node, name: &str) -> Option<&'a NodeCondition> {
    node.status.conditions.iter().find(|it| it.type_ == name)
}

/// The status of the ready condition: `True`, `False` or `Unknown`; `None` before the first report.
pub fn ready(node: &Node) -> Option<&str> {
    condition(node, READY).map(|it| &*it.status)
}

/// Records an event about the state of a node.
pub fn record_state(events: &Recorder, node: &Node, state: &str) {
    let message = format!("Node {} status is now: {state}", node.name());
    events.record(node, EventType::Normal, state, message);
}

/// Patches a node as `decide` says. After a conflict it decides again from the newest state. Returns the node as
/// written; `None` if `decide` returns no change, or the node is gone.
pub async fn patch(
    client: &Client,
    node: &Node,
    part: Part,
    decide: impl Fn(&Node) -> Option<Value> + Send + Sync,
) -> Result<Option<Node>, Failure> {
    let api: Api<Node> = Api::all(client);
    let mut latest: Option<Node> = None;
    let mut tries = 0;
    loop {
        tries += 1;
        let current = latest.as_ref().unwrap_or(node);
        let Some(mut change) = decide(current) else { return Ok(None) };
        change["metadata"]["resourceVersion"] = current.resource_version().into();
        let change = Patch::strategic(change);
        let written = match part {
            Part::Main => api.patch(node.name(), &change).await,
            Part::Status => api.patch_status(node.name(), &change).await,
        };
        match unless(404, written) {
            Err(error) if error.is(409) && tries < TRIES => {
                let Some(fresh) = api.get_opt(node.name()).await? else { return Ok(None) };
                if fresh.uid() != node.uid() {
                    return Ok(None);
                }
                latest = Some(fresh);
            }
            answer => return Ok(answer?),
        }
    }
}
