//! Servers that keep their objects in an etcd, alone and several of them on the same one.

use super::encryption::{keys, sealing, secret, start_error, text};
use super::*;
use apiserver::authentication::jose::{PublicKey, Signer};
use apiserver::{Deployment, StartError, StoreChoice, authentication};
use std::sync::atomic::Ordering;
use store_etcd::testing::{FakeEtcd, IN_ORDER, OVERTAKING};
use tests::{Cluster, Options, soon};

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn sharing(etcd: &FakeEtcd, prefix: &str) -> Options {
    let store = store_etcd::Options {
        servers: etcd.targets(),
        prefix: prefix.to_owned(),
        compaction_interval: None,
        ..store_etcd::Options::default()
    };
    Options { store: StoreChoice::Etcd(Box::new(store)), ..Options::default() }
}

async fn server(etcd: &FakeEtcd, prefix: &str) -> Cluster {
    Cluster::with(sharing(etcd, prefix)).await
}

#[tokio::test]
async fn a_server_keeps_its_objects_in_an_etcd() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    let created = cluster.create(CONFIGMAPS, json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await;
    let (value, revision) = etcd.get("/registry/configmaps/default/a").unwrap();
    assert!(value.contains("\"k\":\"1\""), "{value}");
    assert_eq!(version(&created), revision.to_string(), "revisions are those of the etcd");
    let changed =
        cluster.patch(&format!("{CONFIGMAPS}/a"), json!({"data": {"k": "2"}})).await.code(200).json();
    cluster.put(&format!("{CONFIGMAPS}/a"), created.clone()).await.refused(409, "Conflict");
    cluster.post(CONFIGMAPS, json!({"metadata": {"name": "a"}})).await.refused(409, "AlreadyExists");
    assert_eq!(cluster.read(CONFIGMAPS).await["items"][0]["data"]["k"], "2");
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    assert_eq!(watch.expect("ADDED", "a").await, created);
    assert_eq!(watch.expect("MODIFIED", "a").await, changed);
    watch.expect("DELETED", "a").await;
    assert_eq!(etcd.get("/registry/configmaps/default/a"), None);
    cluster.named(CONFIGMAPS, "kept").await;
    let before = cluster.read(&format!("{CONFIGMAPS}/kept")).await;
    cluster.stop().await;
    let again = server(&etcd, "/registry").await;
    assert_eq!(again.read(&format!("{CONFIGMAPS}/kept")).await, before);
    // below another prefix lies another cluster
    let other = server(&etcd, "/other").await;
    other.get(&format!("{CONFIGMAPS}/kept")).await.refused(404, "NotFound");
    other.named(CONFIGMAPS, "mine").await;
    assert!(etcd.get("/other/configmaps/default/mine").is_some());
    again.get(&format!("{CONFIGMAPS}/mine")).await.refused(404, "NotFound");
}

#[tokio::test]
async fn an_etcd_without_space_fails_readiness_until_its_alarm_is_gone() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    cluster.named(CONFIGMAPS, "a").await;
    cluster.get("/readyz").await.code(200);
    etcd.faults().no_space.store(true, Ordering::SeqCst);
    let refused = cluster.post(CONFIGMAPS, json!({"metadata": {"name": "b"}})).await;
    let refused = refused.refused(503, "ServiceUnavailable");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("the etcd has reached its quota: compact"), "{message}");
    cluster.get("/livez").await.code(200);
    let text = cluster.get("/readyz").await.code(500).text();
    assert!(
        text.contains("[+]etcd ok\n") && text.contains("[-]disk-space failed: reason withheld\n"),
        "{text}"
    );
    let text = cluster.get("/readyz/disk-space").await.code(500).text();
    assert!(text.contains("the etcd has reached its quota"), "{text}");
    let metrics = cluster.get("/metrics").await.code(200).text();
    assert!(metrics.contains("\npintle_store_disk_full 1\n"), "{metrics}");
    // reads and deletions go on
    assert_eq!(names(&cluster.read(CONFIGMAPS).await), ["a"]);
    cluster.delete(&format!("{CONFIGMAPS}/a")).await.code(200);
    cluster.get("/readyz").await.code(500);
    etcd.faults().no_space.store(false, Ordering::SeqCst);
    soon("the end of the alarm", async {
        while cluster.get("/readyz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster.named(CONFIGMAPS, "b").await;
}

/// An acknowledged write of one server is visible on the other, also to watches.
async fn two_servers(etcd_version: &str) {
    let etcd = FakeEtcd::start(2).await.unwrap();
    etcd.set_version(etcd_version);
    let (one, two) = (server(&etcd, "/registry").await, server(&etcd, "/registry").await);
    let mut watch = two.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    for n in 0..20 {
        let name = format!("c{n}");
        let created = one.named(CONFIGMAPS, &name).await;
        assert_eq!(two.read(&format!("{CONFIGMAPS}/{name}")).await, created, "read at once");
        let changed = two.patch(&format!("{CONFIGMAPS}/{name}"), json!({"data": {"n": "1"}})).await;
        let changed = changed.code(200).json();
        assert_eq!(one.read(&format!("{CONFIGMAPS}/{name}")).await, changed);
        assert_eq!(one.read(CONFIGMAPS).await["items"].as_array().unwrap().len(), n + 1);
        assert_eq!(watch.expect("ADDED", &name).await, created);
        assert_eq!(watch.expect("MODIFIED", &name).await, changed);
        if n % 5 == 0 {
            etcd.put("/elsewhere", "x");
        }
    }
    one.delete(&format!("{CONFIGMAPS}/c0")).await.code(200);
    two.get(&format!("{CONFIGMAPS}/c0")).await.refused(404, "NotFound");
    watch.expect("DELETED", "c0").await;
}

#[tokio::test]
async fn two_servers_see_each_others_writes_at_once() {
    two_servers(IN_ORDER).await;
    two_servers(OVERTAKING).await;
}

#[tokio::test]
async fn watches_outlive_the_connection_to_the_etcd() {
    let etcd = FakeEtcd::start(2).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    let mut watch = cluster.get(&format!("{CONFIGMAPS}?watch=1")).watch().await;
    for n in 0..5 {
        let name = format!("c{n}");
        etcd.cut();
        etcd.set_open(n % 2, false);
        // a write in flight at the disconnect may have been applied; the watch shows it
        let tried = cluster.post(CONFIGMAPS, json!({"metadata": {"name": name}})).await;
        if tried.status != 201 {
            let again = cluster.post(CONFIGMAPS, json!({"metadata": {"name": name}})).await;
            assert!([201, 409].contains(&again.status), "{}", again.text());
        }
        watch.expect("ADDED", &name).await;
        etcd.set_open(n % 2, true);
    }
}

#[tokio::test]
async fn events_end_with_their_lease() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let cluster = server(&etcd, "/registry").await;
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Tested",
    });
    let mut watch = cluster.get(&format!("{EVENTS}?watch=1")).watch().await;
    cluster.create(EVENTS, event).await;
    watch.expect("ADDED", "e").await;
    etcd.pass(3599);
    cluster.get(&format!("{EVENTS}/e")).await.code(200);
    etcd.pass(62);
    cluster.get(&format!("{EVENTS}/e")).await.refused(404, "NotFound");
    watch.expect("DELETED", "e").await;
}

fn signed_by(key: &str) -> authentication::Options {
    let mut options = authentication::Options::default();
    options.service_accounts.signer = Some(Signer::from_pem(key.as_bytes()).unwrap());
    options
}

async fn attempt(etcd: &FakeEtcd, authentication: authentication::Options) -> Result<Cluster, StartError> {
    Cluster::attempt(Options { authentication, ..sharing(etcd, "/registry") }).await
}

#[tokio::test]
async fn a_server_with_other_keys_than_the_cluster_does_not_start() {
    let etcd = FakeEtcd::start(1).await.unwrap();
    let key = || rcgen::KeyPair::generate().unwrap();
    let (old, new) = (key(), key());
    let (old, new) = (old.serialize_pem(), new.serialize_pem());
    let first = attempt(&etcd, signed_by(&old)).await.unwrap();
    let published = first.read("/api/v1/namespaces/kube-system/configmaps/cluster-keys").await;
    assert!(published["data"]["service-account-keys"].is_string(), "{published}");
    assert!(published["data"]["client-authorities"].is_string(), "{published}");
    let refused = attempt(&etcd, signed_by(&new)).await.err().unwrap().to_string();
    for part in ["keys of service-account tokens", "--service-account-key-file", "kube-system/cluster-keys"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    // one that knows both keys can be started beside the first; then the first key can go
    let mut both = signed_by(&new);
    both.service_accounts.keys = PublicKey::all_from_pem(old.as_bytes()).unwrap();
    attempt(&etcd, both).await.unwrap().stop().await;
    attempt(&etcd, signed_by(&new)).await.unwrap().stop().await;
    assert!(attempt(&etcd, signed_by(&old)).await.is_err());
    // a server that was running goes on
    first.get("/readyz").await.code(200);
    // keys that end with the process are not published
    let other = Options {
        authentication: signed_by(&old),
        deployment: Deployment {
            ephemeral_signer: true,
            ephemeral_authorities: true,
            ..Deployment::default()
        },
        ..sharing(&etcd, "/other")
    };
    let other = Cluster::with(other).await;
    other.get("/api/v1/namespaces/kube-system/configmaps/cluster-keys").await.code(404);
}

#[tokio::test]
async fn servers_that_start_at_once_create_objects_once() {
    for _ in 0..3 {
        let etcd = FakeEtcd::start(2).await.unwrap();
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let options = || Options {
            authentication: signed_by(&key),
            advertise_address: Some([10, 9, 8, 7].into()),
            ..sharing(&etcd, "/registry")
        };
        let (one, two) = tokio::join!(Cluster::attempt(options()), Cluster::attempt(options()));
        for cluster in [one.unwrap(), two.unwrap()] {
            cluster.get("/readyz").await.code(200);
            cluster.stop().await;
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_decrypt_reports_it() {
    let etcd = FakeEtcd::start(2).await.unwrap();
    let with = |names: Option<&[&str]>| {
        let sealing = names.map(|names| sealing(&text("secrets", &keys("aesgcm", names))));
        Options { encryption: sealing, ..sharing(&etcd, "/registry") }
    };
    let (first, none) = (Cluster::with(with(Some(&["one"]))).await, Cluster::with(with(None)).await);
    first.get("/readyz").await.code(200);
    none.get("/readyz").await.code(200);
    first.create(SECRETS, secret("a")).await;
    // a server without the key does not start, and says for which object it wants it
    for names in [Some(&["two"][..]), None] {
        let why = start_error(with(names)).await;
        assert!(why.contains("/registry/secrets/default/a in the store cannot be decrypted"), "{why}");
    }
    // one that runs already is not ready, as long as there is such an object
    let is_not_ready = async |cluster: &Cluster, name: &str| {
        let failed = async {
            while cluster.get("/readyz").await.status == 200 {
                tokio::task::yield_now().await;
            }
        };
        tests::soon("a server that is not ready", failed).await;
        let checks = cluster.get("/readyz").await.code(500).text();
        assert!(checks.contains("[-]encryption-keys failed: reason withheld\n"), "{checks}");
        let why = cluster.get("/readyz/encryption-keys").await.code(500).text();
        assert!(why.contains(&format!("/registry/secrets/default/{name} in the store")), "{why}");
        cluster.get("/livez").await.code(200);
    };
    is_not_ready(&none, "a").await;
    let both = Cluster::with(with(Some(&["two", "one"]))).await;
    let created = first.read(&format!("{SECRETS}/a")).await;
    both.patch(&format!("{SECRETS}/a"), json!({"data": {"k": "bmV3"}})).await.code(200);
    is_not_ready(&first, "a").await;
    assert_eq!(first.read(&format!("{SECRETS}/a")).await, created, "what it could read last");
    both.delete(&format!("{SECRETS}/a")).await.code(200);
    for cluster in [&first, &none] {
        let ready = async {
            while cluster.get("/readyz").await.status != 200 {
                tokio::task::yield_now().await;
            }
        };
        tests::soon("a server that is ready", ready).await;
        cluster.get("/readyz/encryption-keys").await.code(404);
        cluster.get(&format!("{SECRETS}/a")).await.refused(404, "NotFound");
    }
}
