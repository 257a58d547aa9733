//! Of several managers one leads.

use client::leader::{Candidate, Options};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use std::time::Duration;
use tests::{ManagedCluster, soon, until};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/m";

fn candidate(managed: &ManagedCluster, name: &str) -> Candidate {
    // tries are milliseconds apart; the test moves the clock by seconds
    let options =
        Options { retry_period: Duration::from_millis(10), ..Options::new("kube-system", "m", name) };
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
    let managed = ManagedCluster::start(&[]).await;
    let (mut first, mut second) = (candidate(&managed, "first"), candidate(&managed, "second"));
    soon("the first leads", first.lead()).await;
    let waiting = tokio::spawn(async move {
        second.lead().await;
        second
    });
    let keeping = tokio::spawn(async move { first.keep().await });
    // while it is renewed no other candidate leads
    for _ in 0..9 {
        let before = renewed(&leases(&managed).get("m").await.unwrap());
        managed.cluster.advance(Duration::from_secs(5));
        until("a renewal", &leases(&managed), |all| renewed(&all["m"]) > before).await;
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
    let passing = async {
        loop {
            managed.cluster.advance(Duration::from_secs(16));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let second = tokio::select! {
        second = soon("the second leads", waiting) => second.unwrap(),
        () = passing => unreachable!("time does not end"),
    };
    assert_eq!(second.identity(), "second");
    let spec = leases(&managed).get("m").await.unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("second"), Some(1)));
    // the one that was gone finds out that it does not lead any more
    let mut late = candidate(&managed, "first");
    soon("the end of the first", late.keep()).await;
}

#[tokio::test]
async fn a_leader_that_cannot_renew_in_time_stops_leading() {
    let managed = ManagedCluster::start(&[]).await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "candidate"}]});
    managed.cluster.create(bindings, binding).await;
    let options =
        Options { retry_period: Duration::from_millis(10), ..Options::new("kube-system", "m", "first") };
    let client = managed.loop_client_of("candidate");
    let mut first = Candidate::new(client, options, managed.cluster.world.clone());
    soon("it leads", first.lead()).await;
    let keeping = tokio::spawn(async move { first.keep().await });
    // a deleted lease is created again
    managed.cluster.delete(PATH).await.code(200);
    until("the lease is made anew", &leases(&managed), |all| all.contains_key("m")).await;
    // one that may not be written to is not renewed
    managed.cluster.delete(&format!("{bindings}/b")).await.code(200);
    let passing = async {
        loop {
            managed.cluster.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = soon("the end", keeping) => ended.unwrap(),
        () = passing => unreachable!("time does not end"),
    }
}

#[tokio::test]
async fn a_released_lease_is_free_at_once() {
    let managed = ManagedCluster::start(&[]).await;
    let (mut first, mut second) = (candidate(&managed, "first"), candidate(&managed, "second"));
    soon("the first leads", first.lead()).await;
    first.release().await.unwrap();
    soon("the second leads", second.lead()).await;
    // a foreign lease is not released
    first.release().await.unwrap();
    let spec = leases(&managed).get("m").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("second"));
}
