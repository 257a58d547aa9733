//! The part of an API server that scenarios need: objects as JSON, patches, versions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::defaults::{self, Classes};
use super::text;

/// Kind and `namespace/name`, or the name of an object of the cluster.
pub type Key = (String, String);

#[derive(Default)]
pub struct Server {
    objects: BTreeMap<Key, Value>,
    classes: Classes,
    version: u64,
}

pub fn key_of(object: &Value) -> Key {
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    (text(&object["kind"]).to_owned(), name)
}

/// The key of the object that an operation names.
pub fn key_in(operation: &Value) -> Key {
    let (kind, name) = (text(&operation["kind"]), text(&operation["name"]));
    let namespace = operation["namespace"].as_str().unwrap_or("default");
    let in_cluster =
        ["Node", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "Namespace", "PriorityClass"];
    let name = if in_cluster.contains(&kind) { name.to_owned() } else { format!("{namespace}/{name}") };
    (kind.to_owned(), name)
}

impl Server {
    /// Creates an object with the defaults of the server.
    pub fn create(&mut self, object: &Value) -> Key {
        let mut object = object.clone();
        defaults::apply(&mut object, &self.classes);
        let (kind, name) = key_of(&object);
        match &*kind {
            "PriorityClass" => drop(self.classes.priority.insert(name.clone(), object.clone())),
            "RuntimeClass" => drop(self.classes.runtime.insert(name.clone(), object.clone())),
            _ => {}
        }
        self.write((kind.clone(), name.clone()), object);
        (kind, name)
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    pub fn of_kind(&self, kind: &str) -> Vec<Key> {
        self.objects.keys().filter(|(of, _)| of == kind).cloned().collect()
    }

    pub fn write(&mut self, key: Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key, object);
    }

    pub fn remove(&mut self, key: &Key) -> Option<Value> {
        self.objects.remove(key)
    }

    /// Applies a merge patch. Returns whether the object exists.
    pub fn merge(&mut self, key: &Key, patch: &Value) -> bool {
        let Some(mut object) = self.objects.get(key).cloned() else { return false };
        merge(&mut object, patch);
        self.write(key.clone(), object);
        true
    }

    /// Applies a JSON patch of removals, replacements and additions at the end.
    pub fn patch(&mut self, key: &Key, operations: &Value) {
        let mut object = self.objects[key].clone();
        for operation in operations.as_array().unwrap() {
            let (parent, last) = text(&operation["path"]).rsplit_once('/').unwrap();
            let parent = object.pointer_mut(parent).unwrap();
            match (text(&operation["op"]), parent) {
                ("remove", Value::Array(list)) => drop(list.remove(last.parse::<usize>().unwrap())),
                ("remove", Value::Object(map)) => drop(map.remove(last)),
                ("add", Value::Array(list)) => list.push(operation["value"].clone()),
                (_, Value::Object(map)) => drop(map.insert(last.to_owned(), operation["value"].clone())),
                (other, _) => panic!("patch operation {other}"),
            }
        }
        self.write(key.clone(), object);
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}
