//! A pod as the checks of the Pod Security Standards read it.

use names::Names;
use schema::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The one subresource through which a pod gets something that can violate a standard.
pub const EPHEMERAL: &str = "ephemeralcontainers";

/// What one check says against a pod.
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

/// The annotations in which pods once kept what fields hold today.
pub struct Marks {
    /// Before a container's name.
    pub app_armor: String,
    pub seccomp_pod: String,
    /// Before a container's name.
    pub seccomp_container: String,
}

impl Marks {
    pub fn new(names: &Names) -> Self {
        Marks {
            app_armor: names.well_known_under("container.apparmor.security.beta", ""),
            seccomp_pod: names.well_known_under("seccomp.security.alpha", "pod"),
            seccomp_container: names.well_known_under("container.seccomp.security.alpha", ""),
        }
    }
}

/// What checks look at: a pod, or what a workload makes pods from.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub annotations: &'a Map,
    pub spec: &'a Value,
    pub marks: &'a Marks,
}

static NO_ANNOTATIONS: LazyLock<Map> = LazyLock::new(Map::new);

impl<'a> Pod<'a> {
    /// From an object with `metadata` and `spec`.
    pub fn of(object: &'a Value, marks: &'a Marks) -> Option<Self> {
        let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_map);
        Some(Pod { annotations: annotations.unwrap_or(&NO_ANNOTATIONS), spec: object.at(&["spec"])?, marks })
    }

    /// In the order in which messages name them.
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

    /// The names of the containers of which something is true.
    pub fn named(&self, is: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|one| is(one)).map(|one| one.text(&["name"])).collect()
    }
}

/// A field of the security context of a pod's spec or of a container; nothing where it is null.
pub fn context<'v>(of: &'v Value, path: &[&str]) -> Option<&'v Value> {
    of.at(&["securityContext"])?.at(path).filter(|it| !it.is_null())
}
