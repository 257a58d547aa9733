//! The scheduling cycle alone: no server, no queue, no requests.

use anyhow::Context;

use super::templates::{Mode, node, pod};
use scheduler::cycle::{Cycle, Outcome};
use scheduler::evaluation::CompiledProfile;
use scheduler::pod_info::PodInfo;
use scheduler::snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;

/// The result of a run.
pub struct EngineRun {
    pub placed: usize,
    /// CPU time per pod.
    pub each: Duration,
}

/// Places pods of a mode on empty nodes.
pub fn run(mode: Mode, nodes: usize, pods: usize) -> anyhow::Result<EngineRun> {
    let mut snapshot = Snapshot::new();
    for nth in 0..nodes {
        snapshot.set_node(Arc::new(api::from_json(&serde_json::to_vec(&node(nth, 0))?)?));
    }
    let replica_set: api::apps::v1::ReplicaSet =
        api::from_json(&serde_json::to_vec(&super::templates::replica_set())?)?;
    let name = format!("{}/{}", replica_set.metadata.namespace, replica_set.metadata.name);
    snapshot.workloads.replica_sets.insert(name, Arc::new(replica_set));
    let profile = CompiledProfile::default();
    let mut cycle = Cycle::new(env::Simulated::new(1, 1), 0);
    let mut infos = Vec::with_capacity(pods);
    for nth in 0..pods {
        let mut object = pod(mode, nth);
        object["metadata"]["uid"] = format!("uid-{nth}").into();
        infos.push(Arc::new(PodInfo::new(Arc::new(api::from_json(&serde_json::to_vec(&object)?)?))));
    }
    let (before, mut placed) = (cpu_time()?, 0);
    for info in &infos {
        if let Outcome::Placed(placement) = cycle.schedule(&profile, &mut snapshot, &(), info) {
            snapshot.assume(info, &placement.node);
            placed += 1;
        }
    }
    let each = (cpu_time()?.saturating_sub(before)) / pods.max(1) as u32;
    Ok(EngineRun { placed, each })
}

/// CPU time of this thread. The ticks of the process are too coarse for microseconds per pod.
fn cpu_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .context("CPU time is measured on Linux only")?;
    let nanos = text.split(' ').next().context("no time in schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}
