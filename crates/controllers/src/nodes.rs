//! What loops about nodes share: writing nodes among others' writes, and what is told about them.

use client::events::{EventType, Recorder};
use client::{Failure, Key, unless};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

/// How often a write is decided anew before it is left for later.
const TRIES: usize = 5;

/// Whether it takes pods, or would.
pub const READY: &str = "Ready";

/// Which part of a node is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

pub fn key(name: &str) -> Key {
    Key::new("", name)
}

pub fn condition<'a>(node: &'a Node, name: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_deref()?.iter().find(|it| it.type_ == name)
}

/// What a node says of itself: `True`, `False` or `Unknown`; nothing where nobody has said anything yet.
pub fn ready(node: &Node) -> Option<&str> {
    condition(node, READY).map(|it| it.status.as_str())
}

/// Tells that a node is in a state now.
pub fn tell_state(events: &Recorder, node: &Node, state: &str) {
    let message = format!("Node {} status is now: {state}", node.name_any());
    events.tell(node, EventType::Normal, state, message);
}

/// Patches a node as was decided from it. Where somebody was faster it is decided anew, from what is there now. What the
/// node has become; nothing where there was nothing to change, or the node is gone.
pub async fn patch(
    client: &Client,
    node: &Node,
    part: Part,
    decide: impl Fn(&Node) -> Option<Value> + Send + Sync,
) -> Result<Option<Node>, Failure> {
    let api: Api<Node> = Api::all(client.clone());
    let name = node.name_any();
    let mut now: Option<Node> = None;
    let mut tries = 0;
    loop {
        tries += 1;
        let seen = now.as_ref().unwrap_or(node);
        let Some(mut change) = decide(seen) else { return Ok(None) };
        change["metadata"]["resourceVersion"] = seen.metadata.resource_version.clone().into();
        let (params, change) = (PatchParams::default(), Patch::Strategic(change));
        let written = match part {
            Part::Main => api.patch(&name, &params, &change).await,
            Part::Status => api.patch_status(&name, &params, &change).await,
        };
        match unless(404, written) {
            Err(kube::Error::Api(answer)) if answer.code == 409 && tries < TRIES => {
                let Some(fresh) = unless(404, api.get(&name).await)? else { return Ok(None) };
                if fresh.uid() != node.uid() {
                    return Ok(None);
                }
                now = Some(fresh);
            }
            answer => return Ok(answer?),
        }
    }
}
