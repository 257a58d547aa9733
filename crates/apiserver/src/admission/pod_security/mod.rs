//! PodSecurity: enforces the Pod Security Standards of namespaces.
//!
//! Pods are denied, audited or warned of; workloads are only audited and warned of, since their pods are
//! evaluated anyway. A stricter enforce level of a namespace warns of its violating pods.
//!
//! `evaluate.rs` is the table of checks and `policy.rs` the policy of a namespace, both pure.

mod baseline;
mod evaluate;
mod metrics;
mod namespace;
mod pod;
mod policy;
mod restricted;
mod settings;
#[cfg(test)]
mod tests;
mod wording;

pub(crate) use metrics::Counters;

use env::MaybeReady;
use evaluate::{describe, evaluate};
use names::Names;
use pod::{AnnotationKeys, EPHEMERAL, Pod, Violation};
use policy::{Labels, Level, Policy, Standard};
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::Value;
use settings::Settings;

pub struct PodSecurity {
    settings: Settings,
    labels: Labels,
    annotation_keys: AnnotationKeys,
    audit_keys: AuditKeys,
    counters: Counters,
}

/// Keys of audit annotations.
struct AuditKeys {
    enforced: String,
    violations: String,
    exempt: String,
    error: String,
}

/// The role of a resource for this plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Namespace,
    Pod,
    /// Creates pods from the template at this path.
    Workload(&'static [&'static str]),
}

fn subject(resource: &Resource) -> Option<Subject> {
    const TEMPLATE: &[&str] = &["spec", "template"];
    match (&*resource.kind.group.stem, &*resource.kind.plural) {
        ("", "namespaces") => Some(Subject::Namespace),
        ("", "pods") => Some(Subject::Pod),
        ("", "podtemplates") => Some(Subject::Workload(&["template"])),
        ("", "replicationcontrollers") => Some(Subject::Workload(TEMPLATE)),
        ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets") => {
            Some(Subject::Workload(TEMPLATE))
        }
        ("batch", "jobs") => Some(Subject::Workload(TEMPLATE)),
        ("batch", "cronjobs") => Some(Subject::Workload(&["spec", "jobTemplate", "spec", "template"])),
        _ => None,
    }
}

impl Admission for PodSecurity {
    fn interest(&self, resource: &Resource) -> Interest {
        let writes = Interest::CREATE.and(Interest::UPDATE);
        match subject(resource) {
            None => Interest::NONE,
            Some(Subject::Pod) => writes.and(Interest::PARTS),
            Some(_) => writes,
        }
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        match subject(write.resource) {
            Some(Subject::Namespace) => self.namespace(write, object, old),
            Some(Subject::Pod) => self.pod(write, object, old).into(),
            Some(Subject::Workload(template)) => {
                self.workload(write, object.at(template));
                Ok(()).into()
            }
            None => Ok(()).into(),
        }
    }
}

impl PodSecurity {
    pub fn new(names: &Names, counters: Counters, describe: &Value) -> Result<Self, String> {
        let note = |name: &str| names.well_known_under("pod-security", name);
        Ok(PodSecurity {
            settings: Settings::read(describe, names)?,
            labels: Labels::new(names),
            annotation_keys: AnnotationKeys::new(names),
            audit_keys: AuditKeys {
                enforced: note("enforce-policy"),
                violations: note("audit-violations"),
                exempt: note("exempt"),
                error: note("error"),
            },
            counters,
        })
    }

    fn pod(
        &self,
        write: &AdmissionAttributes<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if !matches!(write.subresource, "" | EPHEMERAL) || self.is_exempt(write) {
            return Ok(());
        }
        let is_relevant =
            |old: &Value| write.operation != Operation::Update || self.is_relevant_update(object, old);
        if !old.is_none_or(is_relevant) {
            return Ok(());
        }
        let Some(pod) = Pod::of(object, &self.annotation_keys) else { return Ok(()) };
        let name = object.text(&["metadata", "name"]);
        let refused = self.evaluate_pod(write, &pod, true);
        refused.map_or(Ok(()), |why| Err(ApiError::object_forbidden(write.resource.subject(name), &why)))
    }

    fn workload(&self, write: &AdmissionAttributes<'_>, template: Option<&Value>) {
        let pod = template.and_then(|template| Pod::of(template, &self.annotation_keys));
        if let Some(pod) = pod.filter(|_| !self.is_exempt(write)) {
            self.evaluate_pod(write, &pod, false);
        }
    }

    /// Whether the namespace or the user is exempt.
    fn is_exempt(&self, write: &AdmissionAttributes<'_>) -> bool {
        let why = if self.settings.namespaces.contains(write.namespace) {
            "namespace"
        } else if self.settings.users.contains(&write.user.name) {
            "user"
        } else {
            return false;
        };
        self.exempt(write, why);
        true
    }

    fn exempt(&self, write: &AdmissionAttributes<'_>, why: &str) {
        write.user.record.annotate(&self.audit_keys.exempt, why);
        self.counters.record_exemption(write);
    }

    fn is_exempt_runtime(&self, spec: &Value) -> bool {
        self.settings.runtime_classes.contains(spec.text(&["runtimeClassName"]))
    }

    /// Whether an update changes fields that matter; most do not.
    fn is_relevant_update(&self, pod: &Value, old: &Value) -> bool {
        let annotation = |of: &Value, prefix: &str, name: &str| {
            let annotations = of.at(&["metadata", "annotations"])?.as_map()?;
            annotations.get(&[prefix, name].concat())?.as_str().map(str::to_owned)
        };
        let container_matters = |(new, was): (&Value, &Value)| {
            let name = new.text(&["name"]);
            let annotation_keys = [&self.annotation_keys.seccomp_container, &self.annotation_keys.app_armor];
            new.text(&["image"]) != was.text(&["image"])
                || annotation_keys
                    .into_iter()
                    .any(|key| annotation(pod, key, name) != annotation(old, key, name))
        };
        ["containers", "initContainers", "ephemeralContainers"].into_iter().any(|kind| {
            let (new, was) = (pod.items(&["spec", kind]), old.items(&["spec", kind]));
            new.len() != was.len() || new.iter().zip(was).any(container_matters)
        })
    }

    /// Evaluates a pod against its namespace's standards, adds annotations and warnings, and returns the
    /// reason of a denial.
    fn evaluate_pod(&self, write: &AdmissionAttributes<'_>, pod: &Pod<'_>, enforced: bool) -> Option<String> {
        let record = &write.user.record;
        if self.is_exempt_runtime(pod.spec) {
            self.exempt(write, "runtimeClass");
            return None;
        }
        let policy = self.policy(write);
        let mut evaluated = EvaluationCache::default();
        let mut refused = None;
        if enforced {
            record.annotate(&self.audit_keys.enforced, policy.enforce.to_string());
            let violations = evaluated.of(policy.enforce, pod);
            self.counters.record_evaluation(write, "enforce", policy.enforce, violations.is_empty());
            refused = (!violations.is_empty())
                .then(|| format!("violates PodSecurity \"{}\": {violations}", policy.enforce));
        }
        let would = |standard: Standard, violations: &str| {
            format!("would violate PodSecurity \"{standard}\": {violations}")
        };
        let violations = evaluated.of(policy.audit, pod);
        if !violations.is_empty() {
            self.counters.record_evaluation(write, "audit", policy.audit, false);
            record.annotate(&self.audit_keys.violations, would(policy.audit, violations));
        }
        // a denied request needs no warning
        if refused.is_none() {
            let violations = evaluated.of(policy.warn, pod);
            if !violations.is_empty() {
                self.counters.record_evaluation(write, "warn", policy.warn, false);
                record.warn(would(policy.warn, violations));
            }
        }
        refused
    }

    /// The policy of the namespace of a write.
    fn policy(&self, write: &AdmissionAttributes<'_>) -> Policy {
        let namespace = write.api.find("namespaces", "", write.namespace);
        let label = |key: &str| namespace.as_ref().and_then(|it| it.label(key));
        let (policy, problems) = self.labels.policy(label, self.settings.defaults);
        if !problems.is_empty() {
            let describe: Vec<_> =
                problems.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
            let describe =
                if describe.len() == 1 { describe.concat() } else { format!("[{}]", describe.join(", ")) };
            write.user.record.annotate(&self.audit_keys.error, format!("Failed to parse policy: {describe}"));
        }
        policy
    }
}

/// Cached evaluations of one pod: the modes of a namespace often have the same standard.
#[derive(Default)]
struct EvaluationCache(Vec<(Standard, String)>);

impl EvaluationCache {
    fn of(&mut self, standard: Standard, pod: &Pod<'_>) -> &str {
        if standard.level == Level::Privileged {
            return "";
        }
        let at =
            self.0.iter().position(|(evaluated_standard, _)| *evaluated_standard == standard).unwrap_or_else(
                || {
                    let violations: Vec<Violation> = evaluate(standard, pod);
                    self.0.push((standard, describe(&violations)));
                    self.0.len() - 1
                },
            );
        &self.0[at].1
    }
}
