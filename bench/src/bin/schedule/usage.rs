//! CPU time and memory of this process, by the names of its threads.

use anyhow::Context;
use bench::process::{cpu_of, cpu_of_thread, memory_of};
use std::collections::BTreeMap;

/// CPU time so far, in microseconds.
pub struct CpuTime {
    total: u64,
    by_thread: BTreeMap<String, u64>,
}

impl CpuTime {
    pub fn now() -> anyhow::Result<Self> {
        let pid = std::process::id();
        let total = cpu_of(&[pid])?.context("CPU time is measured on Linux only")?;
        let mut by_thread = BTreeMap::new();
        for entry in std::fs::read_dir("/proc/self/task")? {
            let folder = entry?.path();
            // a thread may have ended since
            let Ok(name) = std::fs::read_to_string(folder.join("comm")) else { continue };
            let Some(id) = folder.file_name().and_then(|id| id.to_str()?.parse().ok()) else { continue };
            let Some(own) = cpu_of_thread(id) else { continue };
            let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
            *by_thread.entry(name).or_default() += own;
        }
        Ok(CpuTime { total, by_thread })
    }

    /// Milliseconds per pod since an earlier moment: all threads together, then by name.
    pub fn per_pod(&self, before: &CpuTime, pods: usize) -> (f64, Vec<(String, f64)>) {
        let each = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1000.0 / pods.max(1) as f64;
        let of = |(name, now): (&String, &u64)| {
            let before = before.by_thread.get(name).copied().unwrap_or(0);
            (name.clone(), each(*now, before))
        };
        let by_thread = self.by_thread.iter().map(of).filter(|(_, time)| *time > 0.0005).collect();
        (each(self.total, before.total), by_thread)
    }
}

/// Memory in use, in megabytes.
pub fn memory() -> anyhow::Result<f64> {
    let bytes = memory_of(&[std::process::id()])?.context("memory is measured on Linux only")?;
    Ok(bytes as f64 / 1e6)
}
