//! Planted faults: for each invariant a history that keeps it and one that breaks it.

mod objects;
mod workloads;

use crate::cluster::history::{Event, Note, ObjectKey, Objects};
use crate::cluster::invariants::{Breach, all};
use serde_json::{Value, json};
use std::time::Duration;

/// A history, event by event, and what the invariants say of it.
struct Story {
    objects: Objects,
    invariants: Vec<Box<dyn super::Invariant>>,
    breaches: Vec<Breach>,
    revision: u64,
    at: Duration,
}

impl Story {
    fn new() -> Self {
        let mut story = Story {
            objects: Objects::default(),
            invariants: all(),
            breaches: Vec::new(),
            revision: 0,
            at: Duration::from_secs(1_000),
        };
        story.put("namespaces", "", "n", json!({}));
        story.put("nodes", "", "node-0", json!({}));
        story
    }

    fn wait(&mut self, seconds: u64) {
        self.at += Duration::from_secs(seconds);
    }

    /// A new state of an object, whose uid is its name.
    fn put(&mut self, resource: &str, namespace: &str, name: &str, object: Value) {
        self.change(resource, namespace, name, object, false);
    }

    /// The object vanishes as it was.
    fn remove(&mut self, resource: &str, namespace: &str, name: &str) {
        let object = self.objects.get(resource, namespace, name).unwrap().as_ref().clone();
        self.change(resource, namespace, name, object, true);
    }

    /// Sets a field of an object.
    fn set(&mut self, resource: &str, name: &str, path: &[&str], value: Value) {
        let namespace = if matches!(resource, "nodes" | "namespaces") { "" } else { "n" };
        let mut object = self.objects.get(resource, namespace, name).unwrap().as_ref().clone();
        path.iter().fold(&mut object, |at, field| &mut at[*field]).clone_from(&value);
        self.change(resource, namespace, name, object, false);
    }

    fn change(&mut self, resource: &str, namespace: &str, name: &str, mut object: Value, is_gone: bool) {
        self.revision += 1;
        for (field, value) in [("name", name), ("namespace", namespace)] {
            object["metadata"][field] = json!(value);
        }
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(name);
        }
        let key = ObjectKey::new(resource, namespace, name);
        let change = self.objects.apply((self.revision, self.at), key, object, is_gone);
        self.see(&Event::Change(change));
    }

    fn note(&mut self, note: Note) {
        self.see(&Event::Note(note));
    }

    fn see(&mut self, event: &Event) {
        for invariant in &mut self.invariants {
            invariant.see(event, &self.objects, &mut self.breaches);
        }
    }

    /// The rules that were broken, in order, each once.
    fn broken(&self) -> Vec<&'static str> {
        let mut rules: Vec<_> = self.breaches.iter().map(|it| it.rule).collect();
        rules.dedup();
        rules
    }
}

const TERMINATING: &str = "2026-01-01T00:00:00Z";

fn owner(kind: &str, name: &str) -> Value {
    json!([{"kind": kind, "name": name, "uid": name, "controller": true, "blockOwnerDeletion": true}])
}

/// A ready pod on the node.
fn ready_pod(owners: Value) -> Value {
    json!({
        "metadata": {"ownerReferences": owners, "labels": {"app": "web"}},
        "spec": {"nodeName": "node-0"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "c", "state": {"running": {}}}],
        },
    })
}
