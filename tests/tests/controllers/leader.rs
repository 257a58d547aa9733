//! Leader election among controller managers.

use client::leader::{Candidate, Options};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::{ManagedCluster, soon, until};

/// A quarter of the pause between two renewals.
const STEP: Duration = Duration::from_millis(500);
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/m";

/// A cluster without loops on a simulated clock.
async fn managed() -> ManagedCluster {
    let cluster = tests::Options { simulated_clock: true, ..tests::Options::default() };
    let options = controllers::registry::Options { controllers: Vec::new(), ..Default::default() };
    ManagedCluster::with(cluster, options).await
}

/// The clock moves by steps until a future is ready. A request precedes each step, so that the clock is no faster than
/// the server.
async fn passing<T>(managed: &ManagedCluster, future: impl Future<Output = T>) -> T {
    let steps = async {
        loop {
            managed.cluster.get("/livez/ping").await.code(200);
            managed.cluster.advance(STEP);
        }
    };
    tokio::select! {
        output = future => output,
        () = steps => unreachable!("time does not end"),
    }
}

fn candidate(managed: &ManagedCluster, name: &str) -> Candidate {
    let options = Options::new("kube-system", "m", name);
    assert_eq!(options.problem(), None);
    Candidate::new(managed.loop_client(), options, managed.cluster.world.clone())
}

fn leases(managed: &ManagedCluster) -> Api<Lease> {
    Api::namespaced(managed.client(), "kube-system")
}

fn renewed(lease: &Lease) -> i64 {
    lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap().0.as_second()
}

#[tokio::test]
async fn another_candidate_takes_over_an_expired_lease() {
    let managed = managed().await;
    let (mut first, mut second) = (candidate(&managed, "first"), candidate(&managed, "second"));
    soon("the first leads", first.lead()).await;
    let waiting = tokio::spawn(async move {
        second.lead().await;
        second
    });
    let keeping = tokio::spawn(async move { first.keep().await });
    // while it is renewed, for longer than it lasts, no other candidate leads
    for _ in 0..9 {
        let before = renewed(&leases(&managed).get("m").await.unwrap());
        let is_renewed = |all: &BTreeMap<String, Lease>| renewed(&all["m"]) > before;
        passing(&managed, until("a renewal", &leases(&managed), is_renewed)).await;
        // others may write to it, too
        managed
            .cluster
            .patch(PATH, json!({"metadata": {"annotations": {"a": before.to_string()}}}))
            .await
            .code(200);
    }
    assert!(!waiting.is_finished() && !keeping.is_finished());
    let spec = leases(&managed).get("m").await.unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("first"), Some(0)));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    keeping.abort();
    let _ = keeping.await;
    let second = passing(&managed, soon("the second leads", waiting)).await.unwrap();
    assert_eq!(second.identity(), "second");
    let spec = leases(&managed).get("m").await.unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("second"), Some(1)));
    // the one that was gone finds out that it does not lead any more
    let mut late = candidate(&managed, "first");
    passing(&managed, soon("the end of the first", late.keep())).await;
}

#[tokio::test]
async fn a_leader_that_cannot_renew_in_time_stops_leading() {
    let managed = managed().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "candidate"}]});
    managed.cluster.create(bindings, binding).await;
    let client = managed.loop_client_of("candidate");
    let options = Options::new("kube-system", "m", "first");
    let mut first = Candidate::new(client, options, managed.cluster.world.clone());
    soon("it leads", first.lead()).await;
    let keeping = tokio::spawn(async move { first.keep().await });
    // a deleted lease is created again
    managed.cluster.delete(PATH).await.code(200);
    let exists = |all: &BTreeMap<String, Lease>| all.contains_key("m");
    passing(&managed, until("the lease is created again", &leases(&managed), exists)).await;
    // one that may not be written to is not renewed
    managed.cluster.delete(&format!("{bindings}/b")).await.code(200);
    passing(&managed, soon("the end", keeping)).await.unwrap();
}

#[tokio::test]
async fn a_released_lease_is_free_at_once() {
    let managed = managed().await;
    let (mut first, mut second) = (candidate(&managed, "first"), candidate(&managed, "second"));
    soon("the first leads", first.lead()).await;
    first.release().await.unwrap();
    soon("the second leads", second.lead()).await;
    // a foreign lease is not released
    first.release().await.unwrap();
    let spec = leases(&managed).get("m").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("second"));
}
