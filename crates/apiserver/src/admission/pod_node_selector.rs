//! PodNodeSelector: node selectors of namespaces.
//!
//! A namespace has a node selector in an annotation, or the cluster's default; its pods get it and must not
//! conflict with it. The operator can limit the selectors that the pods of a namespace may use.

use super::configuration::{ConfigErrors, Part};
use super::sync_plugin::is;
use env::MaybeReady;
use names::Names;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::problem::quoted;
use schema::{Map, Value, format};
use std::collections::BTreeMap;

/// The entry of the configuration that is not a namespace.
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Selector = BTreeMap<String, String>;

pub struct PodNodeSelector {
    annotation: String,
    default: Selector,
    /// Permitted selectors, by namespace.
    allowed: BTreeMap<String, Selector>,
}

impl Admission for PodNodeSelector {
    fn interest(&self, resource: &Resource) -> Interest {
        Interest::CREATE.when(is(resource, "", "pods"))
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
        if write.operation != Operation::Create {
            return Ok(()).into();
        }
        self.of_namespace(write).and_then(|selector| self.check(write, object, &selector)).into()
    }
}

impl PodNodeSelector {
    pub fn new(names: &Names, configuration: &Value) -> Result<Self, String> {
        let mut plugin = PodNodeSelector {
            annotation: names.well_known_under("scheduler.alpha", "node-selector"),
            default: Selector::new(),
            allowed: BTreeMap::new(),
        };
        if configuration.is_null() {
            return Ok(plugin);
        }
        const FIELD: &str = "podNodeSelectorPluginConfig";
        let (mut problems, root) = (ConfigErrors::default(), Part::root(configuration));
        root.only(&[FIELD], &mut problems);
        for (namespace, text) in root.any(FIELD).map(|part| part.entries(&mut problems)).unwrap_or_default() {
            match parse(text) {
                Ok(selector) if namespace == DEFAULT => plugin.default = selector,
                Ok(selector) => {
                    plugin.allowed.insert(namespace.to_owned(), selector);
                }
                Err(why) => problems.add(&format!("{FIELD}.{namespace}"), why),
            }
        }
        problems.into_result(plugin)
    }

    fn complete(&self, write: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        let selector = self.of_namespace(write)?;
        if conflicts(pod, &selector) {
            return Err(write.forbidden(Some(pod), CONFLICT));
        }
        for (label, value) in selector {
            let spec = pod.make_map().entry("spec").make_map();
            spec.entry("nodeSelector").make_map().insert(label, value);
        }
        self.check(write, pod, &Selector::new())
    }

    fn check(
        &self,
        write: &AdmissionAttributes<'_>,
        pod: &Value,
        selector: &Selector,
    ) -> Result<(), ApiError> {
        if conflicts(pod, selector) {
            return Err(write.forbidden(Some(pod), CONFLICT));
        }
        let allowed = self.allowed.get(write.namespace).filter(|allowed| !allowed.is_empty());
        let fits = |allowed: &Selector| {
            node_selector(pod).all(|(label, value)| allowed.get(label).is_some_and(|it| it == value))
        };
        if allowed.is_some_and(|allowed| !fits(allowed)) {
            const WHY: &str = "pod node label selector labels conflict with its namespace whitelist";
            return Err(write.forbidden(Some(pod), WHY));
        }
        Ok(())
    }

    fn of_namespace(&self, write: &AdmissionAttributes<'_>) -> Result<Selector, ApiError> {
        let namespace = write.api.lookup("namespaces", "", write.namespace).unwrap_or_default();
        match namespace.at(&["metadata", "annotations", &self.annotation]).and_then(Value::as_str) {
            Some(text) => parse(text).map_err(ApiError::internal),
            None => Ok(self.default.clone()),
        }
    }
}

const CONFLICT: &str = "pod node label selector conflicts with its namespace node label selector";

fn node_selector(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let selector = pod.at(&["spec", "nodeSelector"]).and_then(Value::as_map);
    selector.into_iter().flat_map(Map::iter).map(|(label, value)| (label, value.as_str().unwrap_or_default()))
}

fn conflicts(pod: &Value, selector: &Selector) -> bool {
    node_selector(pod).any(|(label, value)| selector.get(label).is_some_and(|it| it != value))
}

/// Parses `a=b,c=d`.
fn parse(text: &str) -> Result<Selector, String> {
    let mut selector = Selector::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let pieces: Vec<&str> = part.split('=').collect();
        let [label, value] = pieces[..] else {
            return Err(format!("invalid selector: [{}]", pieces.join(" ")));
        };
        let (label, value) = (label.trim(), value.trim());
        let problems = |at: &str, text: &str, format_errors: Vec<String>| {
            (!format_errors.is_empty())
                .then(|| format!("{at}: Invalid value: {}: {}", quoted(text), format_errors.join("; ")))
        };
        let of_label = problems("<nil>", label, format::qualified_name(label));
        let of_value = || problems(&format!("[{label}]"), value, format::label_value(value));
        if let Some(why) = of_label.or_else(of_value) {
            return Err(why);
        }
        selector.insert(label.to_owned(), value.to_owned());
    }
    Ok(selector)
}
