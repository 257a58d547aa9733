//! Pods are held to the Pod Security Standards that their namespace asks for.
//!
//! Pods are refused, recorded or warned of; what makes pods is only recorded and warned of, since its pods will be
//! looked at anyway. Who asks more of a namespace than before is told which of its pods fall short.
//!
//! `evaluate.rs` is the table of checks and `policy.rs` what a namespace asks for, both pure.

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
use evaluate::{evaluate, told};
use names::Names;
use pod::{EPHEMERAL, Marks, Pod, Violation};
use policy::{Labels, Level, Policy, Standard};
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Operation, Resource};
use schema::Value;
use settings::Settings;

pub struct PodSecurity {
    settings: Settings,
    labels: Labels,
    marks: Marks,
    notes: NoteKeys,
    counters: Counters,
}

/// The keys of what the record of a request is told.
struct NoteKeys {
    enforced: String,
    violations: String,
    exempt: String,
    error: String,
}

/// What a resource is to this plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Namespace,
    Pod,
    /// Makes pods from a template, which is here.
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
    pub fn new(names: &Names, counters: Counters, told: &Value) -> Result<Self, String> {
        let note = |name: &str| names.well_known_under("pod-security", name);
        Ok(PodSecurity {
            settings: Settings::read(told, names)?,
            labels: Labels::new(names),
            marks: Marks::new(names),
            notes: NoteKeys {
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
        let matters = |old: &Value| write.operation != Operation::Update || self.matters(object, old);
        if !old.is_none_or(matters) {
            return Ok(());
        }
        let Some(pod) = Pod::of(object, &self.marks) else { return Ok(()) };
        let name = object.text(&["metadata", "name"]);
        let refused = self.judge(write, &pod, true);
        refused.map_or(Ok(()), |why| Err(ApiError::object_forbidden(write.resource.subject(name), &why)))
    }

    fn workload(&self, write: &AdmissionAttributes<'_>, template: Option<&Value>) {
        let pod = template.and_then(|template| Pod::of(template, &self.marks));
        if let Some(pod) = pod.filter(|_| !self.is_exempt(write)) {
            self.judge(write, &pod, false);
        }
    }

    /// Whether the namespace or the user is none of the plugin's business.
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
        write.user.notes.annotate(&self.notes.exempt, why);
        self.counters.exempted(write);
    }

    fn is_exempt_runtime(&self, spec: &Value) -> bool {
        self.settings.runtime_classes.contains(spec.text(&["runtimeClassName"]))
    }

    /// Whether an update changes what a pod runs or how; most change nothing of that.
    fn matters(&self, pod: &Value, old: &Value) -> bool {
        let annotation = |of: &Value, prefix: &str, name: &str| {
            let annotations = of.at(&["metadata", "annotations"])?.as_map()?;
            annotations.get(&[prefix, name].concat())?.as_str().map(str::to_owned)
        };
        let container_matters = |(new, was): (&Value, &Value)| {
            let name = new.text(&["name"]);
            let marks = [&self.marks.seccomp_container, &self.marks.app_armor];
            new.text(&["image"]) != was.text(&["image"])
                || marks.into_iter().any(|mark| annotation(pod, mark, name) != annotation(old, mark, name))
        };
        ["containers", "initContainers", "ephemeralContainers"].into_iter().any(|kind| {
            let (new, was) = (pod.items(&["spec", kind]), old.items(&["spec", kind]));
            new.len() != was.len() || new.iter().zip(was).any(container_matters)
        })
    }

    /// Holds a pod against its namespace's standards, notes what there is to note, and says why it is refused.
    fn judge(&self, write: &AdmissionAttributes<'_>, pod: &Pod<'_>, enforced: bool) -> Option<String> {
        let notes = &write.user.notes;
        if self.is_exempt_runtime(pod.spec) {
            self.exempt(write, "runtimeClass");
            return None;
        }
        let policy = self.policy(write);
        let mut evaluated = Evaluated::default();
        let mut refused = None;
        if enforced {
            notes.annotate(&self.notes.enforced, policy.enforce.to_string());
            let said = evaluated.of(policy.enforce, pod);
            self.counters.evaluated(write, "enforce", policy.enforce, said.is_empty());
            refused =
                (!said.is_empty()).then(|| format!("violates PodSecurity \"{}\": {said}", policy.enforce));
        }
        let would =
            |standard: Standard, said: &str| format!("would violate PodSecurity \"{standard}\": {said}");
        let said = evaluated.of(policy.audit, pod);
        if !said.is_empty() {
            self.counters.evaluated(write, "audit", policy.audit, false);
            notes.annotate(&self.notes.violations, would(policy.audit, said));
        }
        // who is refused knows better already
        if refused.is_none() {
            let said = evaluated.of(policy.warn, pod);
            if !said.is_empty() {
                self.counters.evaluated(write, "warn", policy.warn, false);
                notes.warn(would(policy.warn, said));
            }
        }
        refused
    }

    /// What the namespace of a write asks for.
    fn policy(&self, write: &AdmissionAttributes<'_>) -> Policy {
        let namespace = write.api.find("namespaces", "", write.namespace);
        let label = |key: &str| namespace.as_ref().and_then(|it| it.label(key));
        let (policy, problems) = self.labels.policy(label, self.settings.defaults);
        if !problems.is_empty() {
            let told: Vec<_> = problems.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
            let told = if told.len() == 1 { told.concat() } else { format!("[{}]", told.join(", ")) };
            write.user.notes.annotate(&self.notes.error, format!("Failed to parse policy: {told}"));
        }
        policy
    }
}

/// What standards say against one pod. The modes of a namespace most often ask for the same.
#[derive(Default)]
struct Evaluated(Vec<(Standard, String)>);

impl Evaluated {
    fn of(&mut self, standard: Standard, pod: &Pod<'_>) -> &str {
        if standard.level == Level::Privileged {
            return "";
        }
        let at = self.0.iter().position(|(known, _)| *known == standard).unwrap_or_else(|| {
            let violations: Vec<Violation> = evaluate(standard, pod);
            self.0.push((standard, told(&violations)));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}
