//! Moves the pods of a node to other nodes, by evictions that respect disruption budgets.

use crate::join::say;
use crate::options::Leave;
use anyhow::Context as _;
use api::Resource;
use api::core::v1::Pod;
use api::meta::v1::ObjectMeta;
use api::policy::v1::Eviction;
use client::{Api, Client, ListParams};
use env::World;
use names::node::CONFIG_MIRROR;
use std::time::Duration;

/// The wait before an eviction that a budget refused is repeated, and between looks at pods that stop.
const PAUSE: Duration = Duration::from_secs(2);

/// What happens to a pod of a node that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodFate {
    /// It is of this node, and stops with it.
    Stay,
    Evict,
    /// No controller would create it elsewhere.
    Lose,
}

fn fate(pod: &Pod) -> PodFate {
    let controller = pod.metadata.owner_references.iter().find(|it| it.controller == Some(true));
    let is_finished = matches!(&*pod.status.phase, "Succeeded" | "Failed");
    match controller.map(|it| &*it.kind) {
        _ if pod.metadata.annotations.contains_key(CONFIG_MIRROR) => PodFate::Stay,
        Some("DaemonSet") => PodFate::Stay,
        Some(_) => PodFate::Evict,
        None if is_finished => PodFate::Evict,
        None => PodFate::Lose,
    }
}

/// Evicts the pods of a node, and waits until they are gone.
pub async fn drain(client: &Client, node: &str, args: &Leave, world: &World) -> anyhow::Result<()> {
    let all: Api<Pod> = Api::all(client);
    let params = ListParams::default().fields(format!("spec.nodeName={node}"));
    let end = world.elapsed() + args.timeout;
    let mut refusal = String::new();
    loop {
        let pods = all.list(&params).await.context("cannot list the pods of this node")?.items;
        let lost: Vec<String> = pods.iter().filter(|pod| fate(pod) == PodFate::Lose).map(name).collect();
        anyhow::ensure!(
            args.force || lost.is_empty(),
            "no controller creates these pods elsewhere: {}; delete them, or lose them with --force",
            lost.join(", ")
        );
        let leaving: Vec<&Pod> = pods.iter().filter(|pod| fate(pod) != PodFate::Stay).collect();
        if leaving.is_empty() {
            say("no pod is left to move");
            return Ok(());
        }
        for pod in leaving.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            match evict(client, pod).await {
                Ok(()) => say(&format!("pod {} is evicted", name(pod))),
                Err(error) if error.is(429) => refusal = format!("{}: {}", name(pod), error.message()),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot evict the pod {}", name(pod)));
                }
            }
        }
        if world.elapsed() >= end {
            let names: Vec<String> = leaving.iter().map(|pod| name(pod)).collect();
            anyhow::bail!(
                "pods are left after {:?}: {} ({refusal}); wait longer with --timeout, or go on with --force",
                args.timeout,
                names.join(", ")
            );
        }
        env::sleep(world, PAUSE).await;
    }
}

async fn evict(client: &Client, pod: &Pod) -> Result<(), client::Error> {
    let pods: Api<Pod> = Api::beside(client, pod);
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            ..ObjectMeta::default()
        },
        ..Eviction::default()
    };
    let evicted: Result<api::meta::v1::Status, _> =
        pods.create_subresource(pod.name(), "eviction", &eviction).await;
    evicted.map(drop)
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_move_that_a_controller_creates_again() {
        let of = |metadata: &str, phase: &str| {
            let json = format!(r#"{{"metadata":{metadata},"status":{{"phase":"{phase}"}}}}"#);
            fate(&api::from_json::<Pod>(json.as_bytes()).unwrap())
        };
        let owned = |kind: &str| {
            format!(
                r#"{{"ownerReferences":[{{"apiVersion":"apps/v1","kind":"{kind}","name":"o","uid":"u","controller":true}}]}}"#
            )
        };
        assert_eq!(of(&owned("ReplicaSet"), "Running"), PodFate::Evict);
        assert_eq!(of(&owned("DaemonSet"), "Running"), PodFate::Stay);
        assert_eq!(of(r#"{"annotations":{"kubernetes.io/config.mirror":"x"}}"#, "Running"), PodFate::Stay);
        assert_eq!(of("{}", "Running"), PodFate::Lose);
        assert_eq!(of("{}", "Succeeded"), PodFate::Evict);
    }
}
