//! The disk of the embedded store: full disks, and the priority of writes.

use super::*;
use apiserver::StoreChoice;
use env::Seeded;
use http::Method;
use serde_json::{Value, json};
use tests::{Cluster, Disk, NOW, Options, soon};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const NODES: &str = "/api/v1/nodes";

async fn cluster_on(disk: &Disk) -> Cluster {
    let world = Seeded::new(NOW, 7);
    let (store, recovered) = disk.open(world.clone());
    assert!(recovered.is_empty());
    let options = Options { store: StoreChoice::Opened(store), ..Options::default() };
    Cluster::attempt_in(options, world).await.unwrap()
}

fn config_map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x".repeat(bytes)}})
}

/// The value of a metric without labels.
async fn metric(cluster: &Cluster, name: &str) -> u64 {
    let text = cluster.get("/metrics").await.code(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Makes config maps until the disk is full; their names, and the refusal.
async fn fill(cluster: &Cluster) -> (Vec<String>, Value) {
    for n in 0..100 {
        let answer = cluster.post(CONFIGMAPS, config_map(&format!("big-{n}"), 500_000)).await;
        if answer.status != 201 {
            return ((0..n).map(|n| format!("big-{n}")).collect(), answer.refused(503, "ServiceUnavailable"));
        }
    }
    panic!("the disk never fills");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_accepts_writes_that_free_space() {
    let disk = Disk::default();
    let cluster = cluster_on(&disk).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    cluster.create(CONFIGMAPS, held).await;
    let lease = json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n",
        "renewTime": "2023-11-14T22:13:20.000000Z"}});
    cluster.create(LEASES, lease).await;
    assert_eq!(metric(&cluster, "pintle_store_disk_full").await, 0);

    disk.leave_space(4 << 20);
    let (created, refusal) = fill(&cluster).await;
    assert!(created.len() > 2, "{created:?}");
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("the data directory /data is full"), "{message}");
    // nothing restarts because of it, but it takes no part
    cluster.get("/livez").await.code(200);
    cluster.get("/healthz").await.code(200);
    let text = cluster.get("/readyz").await.code(500).text();
    assert!(
        text.contains("[+]etcd ok\n") && text.contains("[-]disk-space failed: reason withheld\n"),
        "{text}"
    );
    let text = cluster.get("/readyz/disk-space").await.code(500).text();
    assert!(text.contains("the data directory /data is full"), "{text}");
    assert_eq!(metric(&cluster, "pintle_store_disk_full").await, 1);

    // reads go on, and writes that hardly grow: a lease that is renewed, a deletion that waits for a finalizer
    assert!(names(&cluster.read(CONFIGMAPS).await).len() > created.len());
    for second in 21..40 {
        let renewed = json!({"spec": {"renewTime": format!("2023-11-14T22:13:{second}.000000Z")}});
        cluster.patch(&format!("{LEASES}/n"), renewed).await.code(200);
    }
    let held = format!("{CONFIGMAPS}/held");
    cluster.delete(&held).await.code(200);
    assert!(cluster.read(&held).await["metadata"]["deletionTimestamp"].is_string());
    cluster.patch(&held, json!({"metadata": {"finalizers": null}})).await.code(200);
    cluster.get(&held).await.code(404);
    let grown = json!({"data": {"more": "y".repeat(5_000)}});
    cluster.patch(&format!("{CONFIGMAPS}/big-0"), grown).await.refused(503, "ServiceUnavailable");

    for name in &created[1..] {
        cluster.delete(&format!("{CONFIGMAPS}/{name}")).await.code(200);
    }
    cluster.create(CONFIGMAPS, config_map("again", 500_000)).await;
    cluster.get("/readyz").await.code(200);
    assert_eq!(metric(&cluster, "pintle_store_disk_full").await, 0);
    let list = cluster.read(CONFIGMAPS).await;
    let served = names(&list);
    assert!(served.contains(&"again") && served.contains(&"big-0"), "{served:?}");
    assert!(!served.contains(&"big-1"), "{served:?}");

    // exactly the acknowledged writes are on the disk
    cluster.stop().await;
    let (_store, recovered) = disk.open(Seeded::new(NOW, 8));
    let mut kept: Vec<String> = Vec::new();
    for record in recovered {
        let Some(name) = record.key.strip_prefix("/registry/configmaps/default/") else { continue };
        kept.retain(|known| known != name);
        kept.extend(record.value.is_some().then(|| name.to_owned()));
    }
    kept.sort();
    assert_eq!(kept, served);
}

#[tokio::test]
async fn heartbeats_of_nodes_are_committed_before_other_writes() {
    let disk = Disk::default();
    let cluster = cluster_on(&disk).await;
    cluster.create(LEASES, json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n"}})).await;
    cluster.create(NODES, json!({"metadata": {"name": "n"}})).await;
    disk.hold();
    let version =
        |object: Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let waiting = |count: u64| {
        let cluster = &cluster;
        soon("writes wait", async move {
            while metric(cluster, "pintle_store_waiting_writes").await < count {
                tokio::task::yield_now().await;
            }
        })
    };
    let first = async { version(cluster.create(CONFIGMAPS, config_map("first", 10)).await) };
    let held = async {
        while !disk.is_waited_for() {
            tokio::task::yield_now().await;
        }
        let others = (0..20).map(|n| cluster.create(CONFIGMAPS, config_map(&format!("other-{n}"), 10)));
        let others = futures_util::future::join_all(others);
        let heartbeats = async {
            waiting(20).await;
            let renewed = json!({"spec": {"renewTime": "2023-11-14T22:13:21.000000Z"}});
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let released = async {
                waiting(22).await;
                disk.release();
            };
            let lease = cluster.patch(&format!("{LEASES}/n"), renewed);
            let node = cluster.request(Method::PATCH, &format!("{NODES}/n/status")).body(status);
            let node = node.header("content-type", "application/strategic-merge-patch+json");
            let (lease, node, ()) = tokio::join!(lease.into_future(), node.into_future(), released);
            [lease.code(200).json(), node.code(200).json()].map(version)
        };
        let (others, heartbeats) = tokio::join!(others, heartbeats);
        (others.into_iter().map(version).collect::<Vec<_>>(), heartbeats)
    };
    let (first, (others, heartbeats)) = tokio::join!(first, held);
    let (latest, earliest) = (heartbeats.into_iter().max(), others.into_iter().min());
    assert!(first < heartbeats[0] && latest < earliest, "{first} {heartbeats:?} before {earliest:?}");
}
