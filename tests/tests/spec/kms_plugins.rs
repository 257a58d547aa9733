//! Encryption at rest with keys that a key server holds.

use super::encryption::{is_on_disk, marker, on, sealing, secret, start_error, text, written_again};
use super::*;
use ::encryption::{EncryptedStore, Keyring, Parts};
use ::metrics::Registry;
use bytes::Bytes;
use env::Seeded;
use names::Names;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{RecoveredRecord, Revision};
use tests::{Cluster, KmsPlugin, Options};

/// A provider that asks the server at a path.
fn kms(path: &Path, version: &str) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let end = format!("endpoint: 'unix://{}', timeout: 1s", path.display());
    format!("{{kms: {{apiVersion: {version}, name: {name}, {end}}}}}")
}

fn with(directory: &Path, providers: &str, seconds: u64) -> Options {
    on(directory, Some(sealing(&text("secrets", providers))), seconds)
}

#[tokio::test]
async fn every_value_has_a_key_encrypted_by_the_plugin() {
    for (version, prefix) in [("v1", "v1beta1"), ("v2", "v2alpha1")] {
        let directory = tempfile::tempdir().unwrap();
        let (at, socket) = (directory.path().join("data"), directory.path().join("server"));
        let server = KmsPlugin::at(&socket);
        let cluster = Cluster::with(with(&at, &kms(&socket, version), 0)).await;
        for name in ["a", "b", "c"] {
            cluster.create(SECRETS, secret(name)).await;
        }
        cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}})).await;
        assert_eq!(server.calls(&format!("{prefix}/Encrypt")), 3, "{version}");
        assert_eq!(server.calls(&format!("{prefix}/Decrypt")), 0, "what was written is known");
        assert_eq!(server.calls("v1beta1/Version"), usize::from(version == "v1"));
        cluster.stop().await;
        assert!(!is_on_disk(&at, &marker()));
        assert!(is_on_disk(&at, &format!("k8s:enc:kms:{version}:server:")));
        let cluster = Cluster::with(with(&at, &kms(&socket, version), 5)).await;
        assert_eq!(server.calls(&format!("{prefix}/Decrypt")), 3);
        assert_eq!(cluster.read(SECRETS).await["items"][2]["data"]["k"], marker());
        let (before, after) = written_again(&cluster, &format!("{SECRETS}/a")).await;
        assert_eq!(before, after);
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_failing_plugin_stops_writes_only() {
    let directory = tempfile::tempdir().unwrap();
    let (at, socket) = (directory.path().join("data"), directory.path().join("server"));
    let server = KmsPlugin::at(&socket);
    let cluster = Cluster::with(with(&at, &kms(&socket, "v1"), 0)).await;
    cluster.create(SECRETS, secret("a")).await;
    let fine = cluster.get("/readyz?verbose").await.code(200).text();
    assert!(fine.contains("[+]etcd-readiness ok\n[+]kms-provider-0 ok\n[+]informer-sync ok\n"), "{fine}");
    server.behave(|it| it.refuses = Some((7, "not for you")));
    let refused = cluster.post(SECRETS, secret("b")).await.code(503).json();
    let why = "rpc error: code = PermissionDenied desc = not for you";
    assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    cluster.read(&format!("{SECRETS}/a")).await;
    cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}})).await;
    cluster.delete(&format!("{SECRETS}/a")).await.code(200);
    // a good answer is believed for a while
    cluster.get("/livez/kms-provider-0").await.code(200);
    cluster.advance(Duration::from_secs(21));
    let message = cluster.get("/livez/kms-provider-0").await.code(500).text();
    let expected = "failed to perform encrypt section of the healthz check for KMS Provider server, error";
    assert_eq!(message, format!("internal server error: {expected}: {why}\n"));
    assert!(cluster.get("/healthz").await.code(500).text().contains("[-]kms-provider-0 failed"));
    cluster.get("/readyz?exclude=kms-provider-0").await.code(200);
    server.behave(|it| it.refuses = None);
    cluster.advance(Duration::from_secs(4));
    cluster.get("/healthz").await.code(200);
    cluster.create(SECRETS, secret("b")).await;
    // one that does not answer is given up
    server.behave(|it| it.hangs = true);
    let late = cluster.post(SECRETS, secret("c")).await.code(503).json();
    assert!(late["message"].as_str().unwrap().contains("no response within 1s"), "{late}");
    server.behave(|it| it.hangs = false);
    cluster.create(SECRETS, secret("c")).await;
    // one that is replaced is found again
    drop(server);
    let server = KmsPlugin::at(&socket);
    cluster.create(SECRETS, secret("d")).await;
    assert_eq!(server.calls("v1beta1/Encrypt"), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn a_start_waits_for_the_plugin_and_fails_if_it_cannot_decrypt() {
    let directory = tempfile::tempdir().unwrap();
    let (at, socket) = (directory.path().join("data"), directory.path().join("server"));
    for (version, name) in [("v1", "a"), ("v2", "b")] {
        let server = KmsPlugin::at(&socket);
        let cluster = Cluster::with(on(&at, Some(sealing(&both(&socket, version))), 0)).await;
        cluster.create(SECRETS, secret(name)).await;
        cluster.stop().await;
        server.behave(|it| it.mark = "another:");
        let why = start_error(on(&at, Some(sealing(&both(&socket, version))), 0)).await;
        assert!(why.contains("code = InvalidArgument desc = that is not mine"), "{why}");
        assert!(why.starts_with("/registry/secrets/default/"), "{why}");
        server.behave(|it| (it.mark, it.cuts) = ("sealed:", Some(7)));
        let why = start_error(on(&at, Some(sealing(&both(&socket, version))), 0)).await;
        assert!(why.contains("the DEK has 7 bytes"), "{why}");
        drop(server);
        let starting = Cluster::with(on(&at, Some(sealing(&both(&socket, version))), 0));
        let (cluster, _server) = tokio::join!(starting, KmsPlugin::late(&socket));
        assert_eq!(cluster.read(&format!("{SECRETS}/{name}")).await["data"]["k"], marker());
        cluster.stop().await;
    }
}

/// A KMS v1 provider, after a KMS v2 one if requested; one socket serves both.
fn both(socket: &Path, first: &str) -> String {
    let one = kms(socket, "v1");
    let providers = if first == "v1" {
        one
    } else {
        format!("{}, {one}", kms(socket, "v2").replace("name: ", "name: second-"))
    };
    text("secrets", &providers)
}

#[tokio::test]
async fn a_v2_plugin_reports_key_and_health() {
    let directory = tempfile::tempdir().unwrap();
    let (at, socket) = (directory.path().join("data"), directory.path().join("server"));
    let server = KmsPlugin::at(&socket);
    let cluster = Cluster::with(with(&at, &kms(&socket, "v2"), 0)).await;
    let path = format!("{SECRETS}/a");
    cluster.create(SECRETS, secret("a")).await;
    let (before, after) = written_again(&cluster, &path).await;
    assert_eq!(before, after);
    server.behave(|it| it.key_id = "k2");
    cluster.get("/readyz/kms-providers").await.code(200);
    let (before, after) = written_again(&cluster, &path).await;
    assert_ne!(before, after, "it would be sealed with the new key");
    let (before, after) = written_again(&cluster, &path).await;
    assert_eq!(before, after);
    cluster.stop().await;
    let cluster = Cluster::with(with(&at, &kms(&socket, "v2"), 5)).await;
    cluster.get("/readyz/kms-providers").await.code(200);
    let (before, after) = written_again(&cluster, &path).await;
    assert_eq!(before, after, "which key it was is remembered beside the value");
    server.behave(|it| (it.health, it.key_id) = ("tired", ""));
    cluster.advance(Duration::from_secs(21));
    let message = cluster.get("/readyz/kms-providers").await.code(500).text();
    assert_eq!(
        message,
        "internal server error: kms-provider-0: kmsv2 Provider server is not healthy, error: \
         [got unexpected healthz status: tired, expected KMSv2 KeyID to be set, got ]\n"
    );
    let refused = cluster.post(SECRETS, secret("b")).await.code(503).json();
    assert!(refused["message"].as_str().unwrap().contains("keyID is empty"), "{refused}");
    cluster.get("/readyz/kms-provider-0").await.code(404);
    cluster.stop().await;
}

#[tokio::test]
async fn a_plugin_of_another_version_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let (at, socket) = (directory.path().join("data"), directory.path().join("server"));
    let server = KmsPlugin::at(&socket);
    server.behave(|it| it.version = "v9");
    let cluster = Cluster::with(with(&at, &kms(&socket, "v1"), 0)).await;
    let refused = cluster.post(SECRETS, secret("a")).await.code(503).json();
    let why = "KMS provider api version v9 is not supported, only v1beta1 is supported now";
    assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    assert_eq!(server.calls("v1beta1/Encrypt"), 0);
    server.behave(|it| it.version = "v1beta1");
    cluster.create(SECRETS, secret("a")).await;
    cluster.stop().await;
}

#[tokio::test]
async fn values_of_upstream_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("server");
    let server = KmsPlugin::at(&socket);
    let golden = include_str!("../../../crates/encryption/src/tests/golden.txt").lines();
    let golden = golden.filter_map(|line| line.strip_prefix("kms "));
    for (name, stale) in [("v1", false), ("v1-cbc", true), ("v2", false)] {
        let line = golden.clone().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        let hex = |at: usize| u8::from_str_radix(&line[at * 2..at * 2 + 2], 16).unwrap();
        let value: Bytes = (0..line.len() / 2).map(hex).collect();
        let key = "/registry/secrets/default/golden";
        let world = Seeded::new(0, 7);
        let record = RecoveredRecord {
            revision: Revision(1),
            key: key.into(),
            value: Some(value),
            previous: None,
            at: 0,
            expires_at: None,
            encoded_by: None,
            history: false,
        };
        let registry = Registry::default();
        let parts = Parts {
            world: world.clone(),
            registry: &registry,
            names: &Names::default(),
            locate: Box::new(|resource, _| format!("/registry/{resource}/")),
            rename: None,
            reloads: false,
        };
        let configuration = sealing(&text("secrets", &kms(&socket, &name[..2]))).configuration;
        let keyring = Arc::new(Keyring::new(&configuration, parts));
        let inner = Arc::new(store::memory::open(&store::Options::default(), world));
        let opened =
            EncryptedStore::over(inner, vec![record.clone(), record], Some(keyring), || unreachable!());
        let (store, records) = opened.await.unwrap();
        assert_eq!(records[0].value.as_deref(), Some(&b"{\"kind\":\"Secret\"}"[..]), "{name}");
        assert_eq!(store.is_stale(key), stale, "{name}");
        let fill = "apiserver_envelope_encryption_dek_cache_fill_percent 0.001\n";
        assert!(registry.text().contains(fill), "{}", registry.text());
    }
    assert_eq!(server.calls("v2alpha1/Status"), 0);
}
