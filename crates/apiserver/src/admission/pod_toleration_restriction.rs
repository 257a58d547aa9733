//! PodTolerationRestriction: default tolerations and a whitelist per namespace.
//!
//! Both are JSON in annotations of the namespace, or else in the plugin's configuration. Pods with resource requests
//! tolerate nodes with memory pressure, because pods without any are evicted first.

use super::configuration::{ConfigErrors, Part, whole};
use super::sync_plugin::is;
use apimachinery::qos::qos_class;
use env::MaybeReady;
use kinds::node_selection::{covers, merge_tolerations, tolerations};
use names::Names;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::problem::Problems;
use schema::{Path, Value, decode};

pub struct PodTolerationRestriction {
    default_annotation: String,
    allowed_annotation: String,
    /// For namespaces without annotations.
    default: Vec<Value>,
    allowed: Vec<Value>,
    memory_pressure: Value,
}

impl Admission for PodTolerationRestriction {
    fn interest(&self, resource: &Resource) -> Interest {
        let pods = is(resource, "", "pods");
        Interest::CREATE.and(Interest::UPDATE).when(pods)
    }

    fn mutate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Value>,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        object.map_or(Ok(()), |object| self.complete(write, object)).into()
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        self.check(&namespace(write), object).into()
    }
}

fn namespace(write: &AdmissionAttributes<'_>) -> Value {
    write.api.lookup("namespaces", "", write.namespace).unwrap_or_default()
}

impl PodTolerationRestriction {
    pub fn new(names: &Names, configuration: &Value) -> Result<Self, String> {
        let annotation = |name| names.well_known_under("scheduler.alpha", name);
        let memory_pressure = toleration([
            ("key", Value::from(names.well_known_under("node", "memory-pressure"))),
            ("operator", "Exists".into()),
            ("effect", "NoSchedule".into()),
        ]);
        let mut plugin = PodTolerationRestriction {
            default_annotation: annotation("defaultTolerations"),
            allowed_annotation: annotation("tolerationsWhitelist"),
            default: Vec::new(),
            allowed: Vec::new(),
            memory_pressure,
        };
        if configuration.is_null() {
            return Ok(plugin);
        }
        let mut problems = ConfigErrors::default();
        let group = names.group("podtolerationrestriction.admission");
        let kind = (group.as_str(), &["v1alpha1"][..], "Configuration");
        let root = whole(configuration, kind, &["default", "whitelist"], &mut problems);
        plugin.default = read_tolerations(&root, "default", &mut problems);
        plugin.allowed = read_tolerations(&root, "whitelist", &mut problems);
        problems.into_result(plugin)
    }

    fn complete(&self, write: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        let namespace = namespace(write);
        let mut next = pod.items(&["spec", "tolerations"]).to_vec();
        if write.operation == Operation::Create {
            let defaults = annotated_tolerations(&namespace, &self.default_annotation)?;
            let defaults = defaults.as_deref().unwrap_or(&self.default);
            if !defaults.is_empty() {
                next = merge_tolerations(&next, defaults);
            }
        }
        if qos_class(pod) != "BestEffort" {
            next = merge_tolerations(&next, std::slice::from_ref(&self.memory_pressure));
        }
        if !next.is_empty() {
            pod.set(&["spec", "tolerations"], next);
        }
        self.check(&namespace, pod)
    }

    fn check(&self, namespace: &Value, pod: &Value) -> Result<(), ApiError> {
        let had = pod.items(&["spec", "tolerations"]);
        if had.is_empty() {
            return Ok(());
        }
        let whitelist = annotated_tolerations(namespace, &self.allowed_annotation)?;
        let (allowed, owner) = match &whitelist {
            Some(whitelist) => (whitelist, "namespace"),
            None => (&self.allowed, "cluster"),
        };
        let fits = |one: &Value| allowed.iter().any(|other| covers(other, one));
        if allowed.is_empty() || had.iter().all(fits) {
            return Ok(());
        }
        Err(ApiError::internal(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {owner} whitelist"
        )))
    }
}

/// The string fields of a toleration.
const TEXTS: [&str; 4] = ["key", "operator", "value", "effect"];
const SECONDS: &str = "tolerationSeconds";

fn toleration<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    let mut toleration = Value::map();
    for (field, value) in fields {
        toleration.set(&[field], value);
    }
    toleration
}

fn read_tolerations(root: &Part<'_>, field: &str, errors: &mut ConfigErrors) -> Vec<Value> {
    let fields = [&TEXTS[..], &[SECONDS]].concat();
    let mut read = Vec::new();
    for part in root.parts(field, &fields, errors) {
        let mut one = Value::map();
        for field in TEXTS {
            if let Some(text) = part.text(field, errors).filter(|text| !text.is_empty()) {
                one.set(&[field], text);
            }
        }
        if let Some(seconds) = part.int(SECONDS, errors) {
            one.set(&[SECONDS], seconds);
        }
        read.push(one);
    }
    let mut problems = Problems::new();
    tolerations(&read, &Path::ROOT.field(field), &mut problems);
    problems.iter().for_each(|problem| errors.add(&problem.field, &problem.message));
    read
}

/// The tolerations in an annotation; `None` without one, which differs from an empty list.
fn annotated_tolerations(namespace: &Value, key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let Some(text) = namespace.at(&["metadata", "annotations", key]).and_then(Value::as_str) else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let unreadable = |why: &str| ApiError::internal(format!("the annotation {key} of the namespace: {why}"));
    let read = decode::json_untyped(text.as_bytes()).map_err(|why| unreadable(&why.to_string()))?.value;
    let list = match read {
        Value::Null => Vec::new(),
        Value::List(list) => list,
        _ => return Err(unreadable("must be a list of tolerations")),
    };
    list.iter()
        .map(|one| read_toleration(one).map_err(|why| unreadable(&why)))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Field names are matched case-insensitively; unknown ones are ignored.
fn read_toleration(value: &Value) -> Result<Value, String> {
    let mut one = Value::map();
    let fields = match value {
        Value::Null => return Ok(one),
        Value::Map(map) => map,
        _ => return Err("each toleration must be an object".to_owned()),
    };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        if let Some(field) = TEXTS.into_iter().find(|field| field.eq_ignore_ascii_case(name)) {
            let text = value.as_str().ok_or_else(|| format!("{field} must be a text"))?;
            if !text.is_empty() {
                one.set(&[field], text);
            }
        } else if SECONDS.eq_ignore_ascii_case(name) {
            one.set(&[SECONDS], value.as_int().ok_or_else(|| format!("{SECONDS} must be a whole number"))?);
        }
    }
    Ok(one)
}
