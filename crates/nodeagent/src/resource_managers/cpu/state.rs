//! The assignment of CPUs, and its file.

use crate::configuration::cpuset::{self, CpuSet};
use crate::resource_managers::checkpoint::{CORRUPT, checksum, map_text, struct_text};
use crate::resource_managers::policy_state::State;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// CPUs by pod and container.
pub type Assignments = BTreeMap<String, BTreeMap<String, CpuSet>>;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuState {
    /// CPUs that are not assigned.
    pub shared: CpuSet,
    pub assignments: Assignments,
}

impl CpuState {
    pub fn get(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        self.assignments.get(uid)?.get(container)
    }

    pub fn set(&mut self, uid: &str, container: &str, cpus: CpuSet) {
        self.assignments.entry(uid.to_owned()).or_default().insert(container.to_owned(), cpus);
    }

    pub fn remove(&mut self, uid: &str, container: &str) -> Option<CpuSet> {
        let containers = self.assignments.get_mut(uid)?;
        let removed = containers.remove(container);
        if containers.is_empty() {
            self.assignments.remove(uid);
        }
        removed
    }

    /// Pods, containers and their CPUs.
    pub fn all(&self) -> impl Iterator<Item = (&String, &String, &CpuSet)> {
        let pods = self.assignments.iter();
        pods.flat_map(|(pod, containers)| containers.iter().map(move |(name, cpus)| (pod, name, cpus)))
    }

    fn checksum(&self, policy: &str) -> u64 {
        let containers = |containers: &BTreeMap<String, CpuSet>| {
            map_text(containers.iter().map(|(name, cpus)| (name, cpuset::format(cpus))))
        };
        let entries = self.assignments.iter().map(|(uid, all)| (uid, containers(all)));
        let fields = struct_text(&[
            ("PolicyName", "string", policy.to_owned()),
            ("DefaultCPUSet", "string", cpuset::format(&self.shared)),
            ("Entries", "map[string]map[string]string", map_text(entries)),
            ("Checksum", "checksum.Checksum", "0".to_owned()),
        ]);
        checksum(&format!("(*state.CPUManagerCheckpoint){fields}"))
    }
}

impl State for CpuState {
    const FILE: &'static str = "cpu_manager_state";
    const MANAGER: &'static str = "CPU manager";

    fn text(&self, policy: &str) -> String {
        let containers = |containers: &BTreeMap<String, CpuSet>| -> BTreeMap<String, String> {
            containers.iter().map(|(name, cpus)| (name.clone(), cpuset::format(cpus))).collect()
        };
        let entries: BTreeMap<&String, _> =
            self.assignments.iter().map(|(uid, all)| (uid, containers(all))).collect();
        let entries = match entries.is_empty() {
            true => String::new(),
            false => format!("\"entries\":{},", json!(entries)),
        };
        format!(
            "{{\"policyName\":{},\"defaultCpuSet\":{},{entries}\"checksum\":{}}}",
            json!(policy),
            json!(cpuset::format(&self.shared)),
            self.checksum(policy)
        )
    }

    fn parse(text: &str, policy: &str) -> Result<Self, String> {
        let corrupt = || CORRUPT.to_owned();
        let value: Value = serde_json::from_str(text).map_err(|_| corrupt())?;
        let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut state = CpuState::default();
        let shared = member("defaultCpuSet");
        state.shared = cpuset::parse(shared)
            .map_err(|why| format!("could not parse default cpu set {shared:?}: {why}"))?;
        for (uid, containers) in value.get("entries").and_then(Value::as_object).into_iter().flatten() {
            let entry = state.assignments.entry(uid.clone()).or_default();
            for (name, cpus) in containers.as_object().ok_or_else(corrupt)? {
                let cpus = cpus.as_str().ok_or_else(corrupt)?;
                let parsed = cpuset::parse(cpus).map_err(|why| {
                    format!("could not parse cpuset {cpus:?} for container {name:?} in pod {uid:?}: {why}")
                })?;
                entry.insert(name.clone(), parsed);
            }
        }
        let written = member("policyName");
        let sum = value.get("checksum").and_then(Value::as_u64).unwrap_or(0);
        // files of old agents have none
        if sum != 0 && sum != state.checksum(written) {
            return Err(corrupt());
        }
        if written != policy {
            return Err(format!(
                "configured policy {policy:?} differs from state checkpoint policy {written:?}"
            ));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_managers::policy_state::load;

    #[test]
    fn files_are_those_of_upstream() {
        let none = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
        assert_eq!(CpuState::default().text("none"), none);
        for text in include_str!("checkpoints.txt").lines() {
            let policy = if text.contains("\"static\"") { "static" } else { "none" };
            let state = CpuState::parse(text, policy).unwrap();
            assert_eq!(state.text(policy), text);
        }
    }

    #[test]
    fn files_of_another_policy_and_damaged_ones_are_refused() {
        let text = r#"{"policyName":"static","defaultCpuSet":"0-3","checksum":611748604}"#;
        let error = |text: &str, policy: &str| CpuState::parse(text, policy).unwrap_err();
        assert_eq!(
            error(text, "none"),
            "configured policy \"none\" differs from state checkpoint policy \"static\""
        );
        assert_eq!(error(&text.replace("0-3", "0-2"), "static"), CORRUPT);
        assert_eq!(error("{", "static"), CORRUPT);
        assert_eq!(error(r#"{"entries":{"a":"b"}}"#, "static"), CORRUPT);
        assert!(CpuState::parse(r#"{"policyName":"static","defaultCpuSet":"0"}"#, "static").is_ok());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CpuState::FILE), text).unwrap();
        let why = load::<CpuState>(dir.path(), "none").unwrap_err();
        assert!(why.starts_with("could not restore state from checkpoint: configured policy"), "{why}");
        assert!(why.contains("delete the CPU manager checkpoint file \""), "{why}");
    }
}
