//! The defaults of the API server that the engine depends on.

use serde_json::{Map, Value, json};

use super::text;

/// Fields of an object, made if absent.
fn object<'v>(value: &'v mut Value, path: &[&str]) -> &'v mut Map<String, Value> {
    let mut at = value;
    for key in path {
        if at[*key].is_null() {
            at[*key] = json!({});
        }
        at = &mut at[*key];
    }
    at.as_object_mut().unwrap()
}

fn set_default(fields: &mut Map<String, Value>, key: &str, value: Value) {
    if fields.get(key).is_none_or(Value::is_null) {
        fields.insert(key.to_owned(), value);
    }
}

pub fn apply(value: &mut Value, classes: &Classes) {
    let kind = text(&value["kind"]).to_owned();
    let name = text(&value["metadata"]["name"]).to_owned();
    match &*kind {
        "Node" => {
            let labels = object(value, &["metadata", "labels"]);
            set_default(labels, "kubernetes.io/hostname", json!(name));
            labels.insert("replay.test/run".to_owned(), json!("1"));
            let capacity = value["status"]["capacity"].clone();
            set_default(object(value, &["status"]), "allocatable", capacity);
        }
        "Pod" => apply_to_pod(value, classes),
        "StorageClass" => {
            set_default(value.as_object_mut().unwrap(), "volumeBindingMode", json!("Immediate"));
        }
        "CSIDriver" => set_default(object(value, &["spec"]), "storageCapacity", json!(false)),
        _ => {}
    }
    let namespaced = ["Pod", "PersistentVolumeClaim", "Service", "PodDisruptionBudget", "ReplicaSet"];
    let metadata = object(value, &["metadata"]);
    if namespaced.contains(&&*kind) {
        set_default(metadata, "namespace", json!("default"));
    }
    let uid = format!("{kind}/{}/{name}", text(&metadata.get("namespace").cloned().unwrap_or_default()));
    set_default(metadata, "uid", json!(uid));
}

/// Priority and runtime classes by name.
#[derive(Default)]
pub struct Classes {
    pub priority: Map<String, Value>,
    pub runtime: Map<String, Value>,
}

fn apply_to_pod(pod: &mut Value, classes: &Classes) {
    let spec = object(pod, &["spec"]);
    set_default(spec, "schedulerName", json!("default-scheduler"));
    let name = spec.get("priorityClassName").map(text).unwrap_or_default().to_owned();
    let class = match &*name {
        "" => classes.priority.values().find(|class| class["globalDefault"] == true).cloned(),
        "system-node-critical" => Some(json!({"value": 2_000_001_000})),
        "system-cluster-critical" => Some(json!({"value": 2_000_000_000})),
        name => Some(classes.priority.get(name).cloned().unwrap_or_default()),
    };
    let class = class.unwrap_or_default();
    set_default(spec, "priority", if class["value"].is_null() { json!(0) } else { class["value"].clone() });
    let policy = &class["preemptionPolicy"];
    set_default(
        spec,
        "preemptionPolicy",
        if policy.is_null() { json!("PreemptLowerPriority") } else { policy.clone() },
    );
    let runtime = spec.get("runtimeClassName").map(text).unwrap_or_default().to_owned();
    if let Some(class) = classes.runtime.get(&runtime) {
        let overhead = &class["overhead"]["podFixed"];
        if !overhead.is_null() {
            spec.insert("overhead".to_owned(), overhead.clone());
        }
        for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
            let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
            selector[key] = value.clone();
        }
        let tolerations = class["scheduling"]["tolerations"].as_array().cloned().unwrap_or_default();
        add_tolerations(spec, tolerations);
    }
    add_tolerations(
        spec,
        ["not-ready", "unreachable"]
            .map(|key| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
            .into(),
    );
    let on_host = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            apply_to_container(container, on_host);
        }
    }
}

fn add_tolerations(spec: &mut Map<String, Value>, tolerations: Vec<Value>) {
    let all = spec.entry("tolerations").or_insert_with(|| json!([]));
    all.as_array_mut().unwrap().extend(tolerations);
}

fn apply_to_container(container: &mut Value, on_host: bool) {
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    for (name, limit) in limits {
        set_default(object(container, &["resources", "requests"]), &name, limit);
    }
    for port in container["ports"].as_array_mut().into_iter().flatten() {
        if on_host && port["hostPort"].is_null() {
            port["hostPort"] = port["containerPort"].clone();
        }
    }
}
