//! A pod as the checks read it.

use names::Names;
use schema::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The only subresource of pods that is evaluated.
pub const EPHEMERAL: &str = "ephemeralcontainers";

/// The violation of one check.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: Cow<'static, str>,
    pub detail: String,
}

impl Violation {
    pub fn new(reason: impl Into<Cow<'static, str>>, detail: String) -> Self {
        Violation { reason: reason.into(), detail }
    }
}

/// Annotations that preceded today's fields.
pub struct AnnotationKeys {
    /// Prefix of a container's name.
    pub app_armor: String,
    pub seccomp_pod: String,
    /// Prefix of a container's name.
    pub seccomp_container: String,
}

impl AnnotationKeys {
    pub fn new(names: &Names) -> Self {
        AnnotationKeys {
            app_armor: names.well_known_under("container.apparmor.security.beta", ""),
            seccomp_pod: names.well_known_under("seccomp.security.alpha", "pod"),
            seccomp_container: names.well_known_under("container.seccomp.security.alpha", ""),
        }
    }
}

/// A pod or a pod template.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub annotations: &'a Map,
    pub spec: &'a Value,
    pub keys: &'a AnnotationKeys,
}

static NO_ANNOTATIONS: LazyLock<Map> = LazyLock::new(Map::new);

impl<'a> Pod<'a> {
    /// From an object with `metadata` and `spec`.
    pub fn of(object: &'a Value, keys: &'a AnnotationKeys) -> Option<Self> {
        let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_map);
        Some(Pod { annotations: annotations.unwrap_or(&NO_ANNOTATIONS), spec: object.at(&["spec"])?, keys })
    }

    /// In the order of messages.
    pub fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(|kind| spec.items(&[kind]))
    }

    /// A field of the pod's security context.
    pub fn context(&self, path: &[&str]) -> Option<&'a Value> {
        context(self.spec, path)
    }

    pub fn runs_windows(&self) -> bool {
        self.spec.text(&["os", "name"]) == "windows"
    }

    /// The names of the containers that fulfil a predicate.
    pub fn named(&self, is: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|one| is(one)).map(|one| one.text(&["name"])).collect()
    }
}

/// A field of the security context of a pod spec or a container; `None` for null.
pub fn context<'v>(of: &'v Value, path: &[&str]) -> Option<&'v Value> {
    of.at(&["securityContext"])?.at(path).filter(|it| !it.is_null())
}
