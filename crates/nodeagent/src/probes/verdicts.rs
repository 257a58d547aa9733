//! Results of probes, by container id.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// The word in events.
    pub fn name(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

/// The last result of each probe of a pod's running containers. A container that has no result yet is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeVerdicts {
    startup: BTreeMap<String, bool>,
    readiness: BTreeMap<String, bool>,
    failed_liveness: BTreeSet<String>,
    failed_startup: BTreeSet<String>,
}

impl ProbeVerdicts {
    /// Keeps a result; says whether it has changed.
    pub fn set(&mut self, id: &str, kind: ProbeKind, is_success: bool) -> bool {
        let update = |set: &mut BTreeSet<String>| match is_success {
            true => set.remove(id),
            false => set.insert(id.to_owned()),
        };
        match kind {
            ProbeKind::Liveness => update(&mut self.failed_liveness),
            ProbeKind::Startup => {
                update(&mut self.failed_startup);
                self.startup.insert(id.to_owned(), is_success) != Some(is_success)
            }
            ProbeKind::Readiness => self.readiness.insert(id.to_owned(), is_success) != Some(is_success),
        }
    }

    /// The startup probe has its first result only with its success or with its final failure.
    pub fn started(&self, id: &str) -> Option<bool> {
        self.startup.get(id).copied()
    }

    pub fn ready(&self, id: &str) -> Option<bool> {
        self.readiness.get(id).copied()
    }

    pub fn failed_liveness(&self) -> &BTreeSet<String> {
        &self.failed_liveness
    }

    pub fn failed_startup(&self) -> &BTreeSet<String> {
        &self.failed_startup
    }

    /// Drops the results of a container that has ended.
    pub fn remove(&mut self, id: &str) {
        self.startup.remove(id);
        self.readiness.remove(id);
        self.failed_liveness.remove(id);
        self.failed_startup.remove(id);
    }
}
