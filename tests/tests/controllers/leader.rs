//! Of several managers one leads.

use client::leader::{Candidate, Options};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use std::time::Duration;
use tests::{Managed, soon, until};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/m";

fn candidate(managed: &Managed, name: &str) -> Candidate {
    // the clock is the test's; only the pauses between tries are real
    let options = Options { retry: Duration::from_millis(10), ..Options::new("kube-system", "m", name) };
    assert_eq!(options.problem(), None);
    Candidate::new(managed.loop_client(), options, managed.cluster.world.clone())
}

fn leases(managed: &Managed) -> Api<Lease> {
    Api::namespaced(managed.client(), "kube-system")
}

fn renewed(lease: &Lease) -> i64 {
    lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap().0.timestamp()
}

#[tokio::test]
async fn one_leads_and_another_takes_over_when_it_is_gone() {
    let managed = Managed::start(&[]).await;
    let (mut first, mut second) = (candidate(&managed, "first"), candidate(&managed, "second"));
    soon("the first leads", first.lead()).await;
    let waiting = tokio::spawn(async move {
        second.lead().await;
        second
    });
    let keeping = tokio::spawn(async move { first.keep().await });
    // while it is renewed nobody else leads, however long
    for _ in 0..5 {
        let before = renewed(&leases(&managed).get("m").await.unwrap());
        managed.cluster.advance(Duration::from_secs(9));
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
async fn who_cannot_renew_in_time_stops_leading() {
    let managed = Managed::start(&[]).await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}]});
    managed.cluster.create(bindings, binding).await;
    let options = Options { retry: Duration::from_millis(10), ..Options::new("kube-system", "m", "first") };
    let client = managed.loop_client_of("somebody");
    let mut first = Candidate::new(client, options, managed.cluster.world.clone());
    soon("it leads", first.lead()).await;
    let keeping = tokio::spawn(async move { first.keep().await });
    // a lease that is gone is made anew
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
async fn a_lease_that_is_given_back_is_free_at_once() {
    let managed = Managed::start(&[]).await;
    let (mut first, mut second) = (candidate(&managed, "first"), candidate(&managed, "second"));
    soon("the first leads", first.lead()).await;
    first.release().await.unwrap();
    soon("the second leads", second.lead()).await;
    // what is another's is not given back
    first.release().await.unwrap();
    let spec = leases(&managed).get("m").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("second"));
}
