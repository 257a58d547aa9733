//! Token secrets of service accounts.

use apiserver::authentication::jose::Signer;
use apiserver::authentication::{self};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controllers::gates::Gates;
use controllers::registry;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use serde_json::{Value, json};
use std::sync::Arc;
use tests::{ManagedCluster, Options, TestUser, authority, until};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn managed() -> ManagedCluster {
    managed_by(Gates::default()).await
}

async fn managed_by(gates: Gates) -> ManagedCluster {
    let signer = Signer::from_pem(authority().client("signer", "").key.as_bytes()).unwrap();
    let mut options = registry::Options {
        controllers: vec!["serviceaccount-token".to_owned()],
        ..registry::Options::default()
    };
    options.gates = gates;
    let signs = signer.clone();
    options.service_account_tokens.authority = Some("PEM".to_owned());
    options.service_account_tokens.sign = Some(Arc::new(move |claims| {
        signs.sign(&schema::decode::json_untyped(claims.to_string().as_bytes()).unwrap().value)
    }));
    let service_accounts = authentication::ServiceAccounts { signer: Some(signer), ..Default::default() };
    let authentication = authentication::Options { service_accounts, ..Default::default() };
    ManagedCluster::with(Options { authentication, ..Options::default() }, options).await
}

fn asking(name: &str, account: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token"})
}

fn is_full(secret: &Secret) -> bool {
    secret.data.as_ref().is_some_and(|it| it.contains_key("token"))
}

#[tokio::test]
async fn a_token_secret_gets_a_valid_token() {
    let mut managed = managed().await;
    managed.cluster.named(ACCOUNTS, "robot").await;
    managed.cluster.create(SECRETS, asking("robot-token", "robot")).await;
    let secrets: Api<Secret> = Api::namespaced(managed.client(), "default");
    let all = until("the token", &secrets, |all| all.get("robot-token").is_some_and(is_full)).await;
    let data = all["robot-token"].data.clone().unwrap();
    assert_eq!((&data["ca.crt"].0[..], &data["namespace"].0[..]), (&b"PEM"[..], &b"default"[..]));
    let token = String::from_utf8(data["token"].0.clone()).unwrap();
    let response = managed.cluster.get("/api/v1/nodes").user(&TestUser::Anonymous);
    let response =
        response.header("authorization", &format!("Bearer {token}")).await.refused(403, "Forbidden");
    assert!(
        response["message"].as_str().unwrap().contains("system:serviceaccount:default:robot"),
        "{response}"
    );
    // removed data is restored, and the token stays the same
    let path = format!("{SECRETS}/robot-token");
    managed
        .cluster
        .patch(&path, json!({"data": {"namespace": null, "ca.crt": STANDARD.encode("x")}}))
        .await
        .code(200);
    let all = until("what was taken away", &secrets, |all| {
        let data = all["robot-token"].data.as_ref().unwrap();
        data.contains_key("namespace") && data["ca.crt"].0 == b"PEM"
    })
    .await;
    assert_eq!(all["robot-token"].data.as_ref().unwrap()["token"].0, token.as_bytes());
    managed.restart_loops().await;
    // a token of an account that is gone is gone, too, and so is the right to use it
    managed.cluster.delete(&format!("{ACCOUNTS}/robot")).await.code(200);
    until("the token's end", &secrets, |all| !all.contains_key("robot-token")).await;
}

#[tokio::test]
async fn token_secrets_without_an_account_are_deleted() {
    let mut managed = managed().await;
    managed.cluster.named(ACCOUNTS, "kept").await;
    managed.cluster.named(ACCOUNTS, "gone").await;
    for account in ["kept", "gone"] {
        managed.cluster.create(SECRETS, asking(account, account)).await;
    }
    let secrets: Api<Secret> = Api::namespaced(managed.client(), "default");
    until("the tokens", &secrets, |all| all.values().filter(|it| is_full(it)).count() == 2).await;
    managed.pause_loops().await;
    managed.cluster.delete(&format!("{ACCOUNTS}/gone")).await.code(200);
    // another one of the same name does not inherit the token
    managed.cluster.named(ACCOUNTS, "gone").await;
    managed.cluster.create(SECRETS, asking("orphan", "absent")).await;
    managed.restart_loops().await;
    let left = until("the end of orphans", &secrets, |all| all.len() == 1).await;
    assert!(left.contains_key("kept"));
}

#[tokio::test]
async fn deleted_secrets_are_removed_from_accounts() {
    let managed = managed().await;
    let account =
        json!({"metadata": {"name": "robot"}, "secrets": [{"name": "robot-token"}, {"name": "other"}]});
    managed.cluster.create(ACCOUNTS, account).await;
    managed.cluster.create(SECRETS, asking("robot-token", "robot")).await;
    let secrets: Api<Secret> = Api::namespaced(managed.client(), "default");
    until("the token", &secrets, |all| all.get("robot-token").is_some_and(is_full)).await;
    managed.cluster.delete(&format!("{SECRETS}/robot-token")).await.code(200);
    let accounts: Api<ServiceAccount> = Api::namespaced(managed.client(), "default");
    let names = |it: &ServiceAccount| -> Vec<String> {
        it.secrets.iter().flatten().filter_map(|one| one.name.clone()).collect()
    };
    until("the reference's end", &accounts, |all| names(&all["robot"]) == ["other"]).await;
}

#[tokio::test]
async fn accounts_get_token_secrets_if_auto_generation_is_enabled() {
    let managed = managed_by(Gates { no_token_auto_generation: false, ..Gates::default() }).await;
    managed.cluster.named(ACCOUNTS, "robot").await;
    let secrets: Api<Secret> = Api::namespaced(managed.client(), "default");
    let accounts: Api<ServiceAccount> = Api::namespaced(managed.client(), "default");
    let named = |account: &ServiceAccount| -> Vec<String> {
        account.secrets.iter().flatten().filter_map(|it| it.name.clone()).collect()
    };
    let first = until("a token", &accounts, |all| named(&all["robot"]).len() == 1).await;
    let first = named(&first["robot"]).remove(0);
    assert!(first.starts_with("robot-token-"), "{first}");
    until("it is filled", &secrets, |all| all.get(&first).is_some_and(is_full)).await;
    // a removed secret is created again, once
    managed.cluster.delete(&format!("{SECRETS}/{first}")).await.code(200);
    let next = until("another", &accounts, |all| {
        let named = named(&all["robot"]);
        named.len() == 1 && named[0] != first
    })
    .await;
    let next = named(&next["robot"]).remove(0);
    let all = until("it is filled, too", &secrets, |all| all.get(&next).is_some_and(is_full)).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), [&next]);
}
