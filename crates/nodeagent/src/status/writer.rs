//! Writes the statuses of pods to the API, and removes pods that have ended there.
//!
//! One write at a time per pod, the newest status only. A pod that was deleted and has ended is removed once its final
//! status is written. The status of a static pod goes to its mirror.

use super::conditions::is_owned;
use crate::pod::worker::StatusSink;
use crate::pod_facts::{is_mirror, is_static};
use crate::stats::AgentMetrics;
use api::Resource;
use api::core::v1::{Pod, PodStatus};
use api::meta::v1::DeleteOptions;
use client::{
    Action, Api, Client, Error, Failure, Informer, Key, Patch, Queue, Reconcile, json_value, of_uid,
};
use env::World;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The time before a write that has failed is repeated.
const RETRY: Duration = Duration::from_secs(10);

struct Entry {
    target: Target,
    status: Arc<PodStatus>,
    is_finished: bool,
    /// The status that was written last, and to which object.
    written: Option<(String, Arc<PodStatus>)>,
}

/// The parts of a pod that a write needs. The version of the pod itself would stay in memory until the next status.
#[derive(Clone)]
struct Target {
    key: Key,
    uid: String,
    is_static: bool,
    is_deleted: bool,
}

impl Target {
    fn of(pod: &Pod) -> Self {
        Target {
            key: Key::of(pod),
            uid: pod.uid().to_owned(),
            is_static: is_static(pod),
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// See the module.
pub struct StatusWriter {
    client: Client,
    pods: Informer<Pod>,
    queue: Queue<String>,
    entries: Mutex<HashMap<String, Entry>>,
    world: World,
    metrics: AgentMetrics,
}

impl StatusWriter {
    pub fn new(client: Client, pods: Informer<Pod>, world: &World, metrics: AgentMetrics) -> Self {
        StatusWriter {
            client,
            pods,
            queue: Queue::new(world),
            entries: Mutex::default(),
            world: world.clone(),
            metrics,
        }
    }

    /// Writes until it is dropped.
    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        client::run::run(self, queue, client::run::WORKERS).await;
    }

    /// The newest status of a pod.
    pub fn status(&self, uid: &str) -> Option<PodStatus> {
        self.entries.lock().get(uid).map(|it| PodStatus::clone(&it.status))
    }

    /// Whether a pod has ended, and nothing of it is left on the node.
    pub fn is_finished(&self, uid: &str) -> bool {
        self.entries.lock().get(uid).is_some_and(|it| it.is_finished)
    }

    /// Writes the status of a pod again, for instance since its mirror is another one.
    pub fn renew(&self, uid: &str) {
        self.queue.add(uid.to_owned());
    }

    /// Drops the status of a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.entries.lock().remove(uid);
    }

    /// The object in the API that carries the status: the pod, or the mirror of a static pod.
    fn object(&self, target: &Target) -> Option<Arc<Pod>> {
        let object = self.pods.get(&target.key)?;
        let is_same = if target.is_static { is_mirror(&object) } else { object.uid() == target.uid };
        is_same.then_some(object)
    }
}

impl StatusSink for StatusWriter {
    fn set(&self, pod: &Arc<Pod>, status: &PodStatus, is_finished: bool) {
        let uid = pod.metadata.uid.clone();
        let status = Arc::new(status.clone());
        let mut entries = self.entries.lock();
        match entries.get_mut(&uid) {
            Some(entry) => {
                (entry.target, entry.status) = (Target::of(pod), status);
                entry.is_finished |= is_finished;
            }
            None => {
                let entry = Entry { target: Target::of(pod), status, is_finished, written: None };
                entries.insert(uid.clone(), entry);
            }
        }
        drop(entries);
        self.queue.add(uid);
    }

    fn restore(&self, pod: &Arc<Pod>, status: &PodStatus) {
        if let Some(entry) = self.entries.lock().get_mut(pod.uid()) {
            entry.written = None;
        }
        self.set(pod, status, false);
    }
}

impl Reconcile for StatusWriter {
    type Key = String;

    fn name(&self) -> &'static str {
        "pod-status"
    }

    async fn reconcile(&self, uid: &String) -> Result<Action, Failure> {
        match self.write(uid).await {
            Ok(()) => Ok(Action::AwaitChange),
            Err(why) => {
                // a server that comes back has all statuses soon, however long it was away
                tracing::info!(uid, %why, "the status of a pod could not be written yet");
                Ok(Action::Requeue(RETRY))
            }
        }
    }
}

impl StatusWriter {
    async fn write(&self, uid: &str) -> Result<(), Error> {
        let state = self
            .entries
            .lock()
            .get(uid)
            .map(|it| (it.target.clone(), it.status.clone(), it.is_finished, it.written.clone()));
        let Some((target, status, is_finished, written)) = state else { return Ok(()) };
        let Some(object) = self.object(&target) else { return Ok(()) };
        let api = Api::<Pod>::beside(&self.client, &*object);
        let next = (object.uid().to_owned(), status.clone());
        if written.as_ref() != Some(&next) {
            if let Some(patch) = status_patch(object.uid(), &object.status, &status) {
                let begun = self.world.elapsed();
                let patched = api.submit_status_patch(object.name(), &Patch::strategic(patch)).await;
                match patched {
                    Err(why) if why.is_not_found() => return Ok(()),
                    // a conflict is tried again: if another object has the name, the informer has it by then
                    patched => patched?,
                }
                self.metrics.status_written(self.world.elapsed().saturating_sub(begun));
            }
            if let Some(entry) = self.entries.lock().get_mut(uid) {
                entry.written = Some(next);
            }
        }
        let is_deleted = target.is_deleted || object.metadata.deletion_timestamp.is_some();
        if is_finished && is_deleted && !target.is_static {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                preconditions: Some(Box::new(of_uid(object.uid()))),
                ..DeleteOptions::default()
            };
            match api.delete(object.name(), &options).await {
                Err(why) if why.is_not_found() => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }
}

/// The strategic merge patch from the status in the API to another, or nothing if they are the same.
pub fn status_patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let object = |status: &PodStatus| match json_value(status) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let (old, new) = (object(old), object(new));
    let mut patch = Map::new();
    for (name, value) in &new {
        let before = old.get(name);
        if before == Some(value) {
            continue;
        }
        match (&**name, value) {
            ("conditions", Value::Array(conditions)) => {
                patch_conditions(&mut patch, conditions, before.and_then(Value::as_array));
            }
            ("podIPs", Value::Array(ips)) => {
                let mut ips = ips.clone();
                ips.push(json!({"$patch": "replace"}));
                patch.insert(name.clone(), ips.into());
            }
            _ => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|it| !new.contains_key(*it)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": patch}))
}

fn patch_conditions(patch: &mut Map<String, Value>, new: &[Value], old: Option<&Vec<Value>>) {
    let kind = |it: &Value| it["type"].as_str().unwrap_or_default().to_owned();
    let is_known = |it: &&Value| old.is_some_and(|old| old.contains(it));
    let changed: Vec<Value> =
        new.iter().filter(|it| is_owned(&kind(it)) && !is_known(it)).map(complete).collect();
    let order: Vec<Value> = new.iter().map(|it| json!({"type": kind(it)})).collect();
    if !changed.is_empty() {
        patch.insert("conditions".into(), changed.into());
        patch.insert("$setElementOrder/conditions".into(), order.into());
    }
}

/// A condition whose absent fields are removed from the one in the API.
fn complete(condition: &Value) -> Value {
    let mut condition = condition.clone();
    if let Value::Object(fields) = &mut condition {
        for name in ["reason", "message"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> PodStatus {
        api::from_json(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_patch_has_the_difference() {
        let old = status(
            r#"{"phase":"Pending","message":"x","podIPs":[{"ip":"1.1.1.1"}],
                "conditions":[{"type":"PodScheduled","status":"True"},{"type":"gate","status":"True"},
                              {"type":"Ready","status":"False","reason":"r"}]}"#,
        );
        let new = status(
            r#"{"phase":"Running","podIPs":[{"ip":"2.2.2.2"}],
                "conditions":[{"type":"gate","status":"True"},{"type":"Ready","status":"True"},
                              {"type":"PodScheduled","status":"True"}]}"#,
        );
        let patch = status_patch("u", &old, &new).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u");
        let status = &patch["status"];
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["message"], Value::Null);
        assert_eq!(status["podIPs"], json!([{"ip": "2.2.2.2"}, {"$patch": "replace"}]));
        assert_eq!(status["conditions"].as_array().map(Vec::len), Some(1));
        assert_eq!(status["conditions"][0]["reason"], Value::Null);
        assert_eq!(
            status["$setElementOrder/conditions"],
            json!([{"type": "gate"}, {"type": "Ready"}, {"type": "PodScheduled"}])
        );
        assert_eq!(status_patch("u", &new, &new), None);
    }
}
