//! Pod CIDRs and the TTL annotation of nodes.

use apimachinery::net::Network;
use controllers::nodeipam::{self, Pool};
use controllers::registry;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use tests::{ManagedCluster, Options, until};

const NODES: &str = "/api/v1/nodes";
const TTL: &str = "node.alpha.kubernetes.io/ttl";

fn nodes(managed: &ManagedCluster) -> Api<Node> {
    Api::all(managed.client())
}

async fn allocating(pools: &[(&str, u8)], services: &[&str]) -> ManagedCluster {
    let network = |text: &str| Network::parse(text).unwrap();
    let node_ipam = nodeipam::Options {
        pools: pools.iter().map(|(text, prefix)| Pool::new(network(text), *prefix).unwrap()).collect(),
        services: services.iter().map(|it| network(it)).collect(),
    };
    let controllers = vec!["nodeipam".to_owned()];
    let options = registry::Options { controllers, node_ipam, ..registry::Options::default() };
    ManagedCluster::with(Options::default(), options).await
}

fn ranges(node: &Node) -> Vec<String> {
    let spec = node.spec.clone().unwrap_or_default();
    let all = spec.pod_cidrs.unwrap_or_default();
    assert_eq!(spec.pod_cidr, all.first().cloned());
    all
}

#[tokio::test]
async fn every_node_has_its_own_range() {
    let mut managed = allocating(&[("10.0.0.0/22", 24)], &["10.0.1.0/24"]).await;
    // one that had its range before
    let old =
        json!({"metadata": {"name": "old"}, "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}});
    managed.pause_loops().await;
    managed.cluster.create(NODES, old).await;
    managed.cluster.named(NODES, "a").await;
    managed.restart_loops().await;
    let all = until("a range", &nodes(&managed), |all| !ranges(&all["a"]).is_empty()).await;
    assert_eq!(
        (ranges(&all["a"]), ranges(&all["old"])),
        (vec!["10.0.2.0/24".to_owned()], vec!["10.0.0.0/24".to_owned()])
    );
    managed.cluster.named(NODES, "b").await;
    until("the last range", &nodes(&managed), |all| {
        all.get("b").is_some_and(|it| ranges(it) == ["10.0.3.0/24"])
    })
    .await;
    // no range is left, which an event reports
    managed.cluster.named(NODES, "c").await;
    let events: Api<Event> = Api::namespaced(managed.client(), "default");
    let is_reported = |all: &BTreeMap<String, Event>| {
        all.values().any(|it| {
            it.reason.as_deref() == Some("CIDRNotAvailable")
                && it.message.as_deref() == Some("Node c status is now: CIDRNotAvailable")
        })
    };
    until("the event", &events, is_reported).await;
    assert_eq!(ranges(&nodes(&managed).get("c").await.unwrap()), [""; 0]);
    // a restart keeps allocated ranges, and released ranges are allocated again
    managed.restart_loops().await;
    managed.cluster.delete(&format!("{NODES}/a")).await.code(200);
    until("what was let go", &nodes(&managed), |all| {
        all.get("c").is_some_and(|it| ranges(it) == ["10.0.2.0/24"])
    })
    .await;
}

#[tokio::test]
async fn dual_stack_ranges_are_unique() {
    let mut managed = allocating(&[("10.8.0.0/16", 24), ("fd00:8::/56", 64)], &[]).await;
    for turn in 0..40 {
        managed.cluster.named(NODES, &format!("n{turn}")).await;
        if turn == 20 {
            managed.restart_loops().await;
        }
    }
    let all = until("all ranges", &nodes(&managed), |all| all.values().all(|it| ranges(it).len() == 2)).await;
    let given: Vec<String> = all.values().flat_map(ranges).collect();
    assert_eq!((given.len(), given.iter().collect::<BTreeSet<_>>().len()), (80, 80), "{given:?}");
    assert!(
        all.values().all(|it| ranges(it)[0].starts_with("10.8.") && ranges(it)[1].starts_with("fd00:8:"))
    );
}

#[tokio::test]
async fn the_ttl_annotation_follows_the_cluster_size() {
    let mut managed = ManagedCluster::start(&["ttl"]).await;
    let said = |node: &Node| node.annotations().get(TTL).cloned().unwrap_or_default();
    for turn in 0..100 {
        managed.cluster.named(NODES, &format!("n{turn}")).await;
    }
    until("none", &nodes(&managed), |all| all.values().all(|it| said(it) == "0")).await;
    managed.restart_loops().await;
    managed.cluster.named(NODES, "one-more").await;
    until("a while", &nodes(&managed), |all| all.values().all(|it| said(it) == "15")).await;
    // changes by others are corrected
    let patch = json!({"metadata": {"annotations": {TTL: "7"}}});
    managed.cluster.patch(&format!("{NODES}/n3"), patch).await.code(200);
    until("the right one", &nodes(&managed), |all| said(&all["n3"]) == "15").await;
    // a few less are no reason to write all of them again
    for turn in 0..11 {
        managed.cluster.delete(&format!("{NODES}/n{turn}")).await.code(200);
    }
    managed.cluster.named(NODES, "new").await;
    let all =
        until("the new one", &nodes(&managed), |all| all.get("new").is_some_and(|it| !said(it).is_empty()))
            .await;
    assert_eq!((all.len(), said(&all["new"])), (91, "15".to_owned()));
    for name in ["n11", "n12"] {
        managed.cluster.delete(&format!("{NODES}/{name}")).await.code(200);
    }
    until("none again", &nodes(&managed), |all| all.values().all(|it| said(it) == "0")).await;
}
