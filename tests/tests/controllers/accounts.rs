//! Service accounts of control loops that call over a network, and the renewal of their tokens.

use api::core::v1::Node;
use apiserver::authentication;
use apiserver::authentication::jose::Signer;
use client::metrics::Metrics;
use client::{Api, Client, ListParams};
use client::{Rate, transport};
use controllers::accounts::Accounts;
use outbound::Target;
use std::time::Duration;
use tests::{ManagedCluster, Options, authority};

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

/// The response to a user that may not list nodes.
async fn refusal(client: &Client) -> (i32, String) {
    match Api::<Node>::all(client).list(&ListParams::default()).await {
        Err(client::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_account_is_created_and_its_token_renewed() {
    let signer = Signer::from_pem(authority().client("signer", "").key.as_bytes()).unwrap();
    let service_accounts = authentication::ServiceAccounts { signer: Some(signer), ..Default::default() };
    let authentication = authentication::Options { service_accounts, ..Default::default() };
    let managed = ManagedCluster::with(
        Options { authentication, ..Options::default() },
        controllers::registry::Options { controllers: Vec::new(), ..Default::default() },
    )
    .await;
    // the test's certificates are good in the test's time only
    let url = format!("https://{}", managed.cluster.address);
    let target = Target { url, insecure: true, ..Target::default() };
    let metrics = Metrics::default();
    let accounts = Accounts {
        own: managed.loop_client(),
        transport: transport::transport(&target, "test", &metrics).unwrap(),
        namespace: "kube-system".to_owned(),
        rate: Rate { per_second: -1.0, burst: 0 },
        world: managed.cluster.world.clone(),
    };
    let robot = accounts.client("robot");
    let known =
        |error: (i32, String)| error.0 == 403 && error.1.contains("system:serviceaccount:kube-system:robot");
    assert!(known(refusal(&robot).await));
    managed.cluster.get(&format!("{ACCOUNTS}/robot")).await.code(200);
    // long after the first token has expired
    for _ in 0..4 {
        managed.cluster.advance(Duration::from_secs(3000));
        assert!(known(refusal(&robot).await));
    }
    // the token of a replaced account is invalid, and another one is requested
    managed.cluster.delete(&format!("{ACCOUNTS}/robot")).await.code(200);
    managed.cluster.named(ACCOUNTS, "robot").await;
    managed.cluster.advance(Duration::from_secs(120));
    assert_eq!(refusal(&robot).await.0, 401);
    assert!(known(refusal(&robot).await));
    let counted = format!(
        "rest_client_requests_total{{code=\"401\",host={:?},method=\"GET\"}} 1",
        managed.cluster.address.to_string()
    );
    assert!(metrics.text().contains(&counted), "{}", metrics.text());
}
