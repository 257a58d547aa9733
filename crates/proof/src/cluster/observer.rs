//! The observer of a cluster: applies each change to a copy of all objects, and passes each event to the invariants.

use super::fields::text;
use super::history::{Event, Note, ObjectKey, Objects};
use super::invariants::{self, Breach, Invariant};
use pintle_test::{Observation, ObservedChange};
use serde_json::Value;
use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// The limit of lines in the trace.
const TRACE_LINES: usize = 4000;

/// See the module.
pub struct Observer {
    incoming: UnboundedReceiver<Observation>,
    pub objects: Objects,
    invariants: Vec<Box<dyn Invariant>>,
    pub breaches: Vec<Breach>,
    pub trace: VecDeque<String>,
    pub changes: u64,
    /// The time of the cluster at the last change.
    pub at: Duration,
    newest: u64,
    /// Of the order of changes: the same for runs that went the same way.
    digest: DefaultHasher,
}

impl Observer {
    pub fn new(incoming: UnboundedReceiver<Observation>) -> Self {
        Observer {
            incoming,
            objects: Objects::default(),
            invariants: invariants::all(),
            breaches: Vec::new(),
            trace: VecDeque::new(),
            changes: 0,
            at: Duration::ZERO,
            newest: 0,
            digest: DefaultHasher::new(),
        }
    }

    /// Takes everything that has happened. The cluster must be at rest, so that no collection is behind another.
    pub fn take(&mut self) -> anyhow::Result<()> {
        let (mut changes, mut leaderships) = (Vec::new(), Vec::new());
        while let Ok(observation) = self.incoming.try_recv() {
            match observation {
                Observation::Change(change) => changes.push(change),
                Observation::Leadership { component, lease, at, begins } => {
                    leaderships.push(Event::Leadership { component, lease, at, begins });
                }
                Observation::Lagged => anyhow::bail!("the observer was too slow for the changes of one step"),
            }
        }
        changes.sort_by_key(|it| it.revision);
        for change in changes {
            self.see_change(&change)?;
        }
        for event in leaderships {
            if let Event::Leadership { component, lease, at, begins } = &event {
                let verb = if *begins { "leads" } else { "stops" };
                self.write(format!("{:>9.3} {component} {verb} ({lease})", at.as_secs_f64() % 100_000.0));
            }
            self.see(&event);
        }
        Ok(())
    }

    /// Records the next action of the simulation's client.
    pub fn note(&mut self, note: Note) {
        self.see(&Event::Note(note));
    }

    /// Adds a line to the trace.
    pub fn write(&mut self, line: String) {
        if self.trace.len() >= TRACE_LINES {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    fn see_change(&mut self, change: &ObservedChange) -> anyhow::Result<()> {
        let object: Value = serde_json::from_slice(&change.json)?;
        let key = ObjectKey::new(&change.resource, &change.namespace, &change.name);
        self.at = self.at.max(change.at);
        let is_heartbeat = change.namespace == "kube-node-lease";
        if !is_heartbeat {
            anyhow::ensure!(change.revision >= self.newest || self.changes == 0, "{key} came late");
            self.newest = change.revision;
            self.changes += 1;
        }
        let before = self.objects.get(&key.resource, &key.namespace, &key.name);
        let kind = match (change.is_deleted, before) {
            (true, _) => "deleted",
            (false, None) => "added",
            (false, Some(_)) => "changed",
        };
        (change.revision, change.at, &key, kind).hash(&mut self.digest);
        if !is_heartbeat {
            let time = change.at.as_secs_f64() % 100_000.0;
            self.write(format!(
                "{time:>9.3} {} {kind} {key} {}",
                change.revision,
                summary(&key.resource, &object)
            ));
        }
        let change = self.objects.apply((change.revision, change.at), key, object, change.is_deleted);
        self.see(&Event::Change(change));
        Ok(())
    }

    fn see(&mut self, event: &Event) {
        for invariant in &mut self.invariants {
            invariant.see(event, &self.objects, &mut self.breaches);
        }
    }
}

/// The text of an object in the trace.
fn summary(resource: &str, object: &Value) -> String {
    let end = if text(object, "/metadata/deletionTimestamp").is_empty() { "" } else { " terminating" };
    let of = |fields: &[&str]| {
        let values = fields.iter().map(|it| object.pointer(it).unwrap_or(&Value::Null).to_string());
        values.collect::<Vec<_>>().join(" ")
    };
    let detail = match resource {
        "pods" => {
            let ready = super::fields::is_true(object, "Ready");
            format!("{} {} ready={ready}", text(object, "/spec/nodeName"), text(object, "/status/phase"))
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" => of(&[
            "/metadata/generation",
            "/status/observedGeneration",
            "/spec/replicas",
            "/status/replicas",
            "/status/readyReplicas",
            "/status/availableReplicas",
        ]),
        "jobs.batch" => of(&[
            "/spec/suspend",
            "/status/active",
            "/status/succeeded",
            "/status/failed",
            "/status/uncountedTerminatedPods",
        ]),
        "resourcequotas" => of(&["/status"]),
        "poddisruptionbudgets.policy" => of(&["/status"]),
        "leases.coordination.k8s.io" => of(&["/spec/holderIdentity", "/spec/renewTime"]),
        _ => of(&["/metadata/finalizers"]),
    };
    format!("{detail}{end}")
}
