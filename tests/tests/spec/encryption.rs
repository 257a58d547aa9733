//! Encryption at rest with keys that the configuration holds.

use super::custom_resources::{GROUP, THINGS, define, definition, thing, version as served};
use super::*;
use ::encryption::{ConfigReloader, Configuration, Rules};
use apiserver::{StoreChoice, encryption_at_rest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use names::Names;
use std::path::Path;
use std::time::Duration;
use tests::{Cluster, NOW, Options, soon};

/// A configuration of these resources with these providers.
pub(super) fn text(resources: &str, providers: &str) -> String {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    format!("{head}resources:\n- resources: [{resources}]\n  providers: [{providers}]\n")
}

/// The same, as a server takes it.
pub(super) fn sealing(text: &str) -> encryption_at_rest::Options {
    let rules = Rules { reloads: false, second_version: true };
    let configuration = Configuration::read(text.as_bytes(), &Names::default(), rules).unwrap();
    encryption_at_rest::Options { configuration, reload: None }
}

/// Keys of these names, each of bytes of its own.
pub(super) fn keys(family: &str, names: &[&str]) -> String {
    let key = |name: &&str| {
        let byte = name.bytes().fold(0, u8::wrapping_add);
        format!("{{name: {name}, secret: {}}}", STANDARD.encode([byte; 32]))
    };
    format!("{{{family}: {{keys: [{}]}}}}", names.iter().map(key).collect::<Vec<_>>().join(", "))
}

/// A server with its objects below a directory, some seconds later.
pub(super) fn on(directory: &Path, sealing: Option<encryption_at_rest::Options>, seconds: u64) -> Options {
    let store = StoreChoice::Directory(directory.to_owned());
    Options { store, encryption: sealing, now: NOW + seconds, ..Options::default() }
}

pub(super) async fn start_error(options: Options) -> String {
    Cluster::attempt(options).await.err().expect("a server that cannot read its objects").to_string()
}

/// Whether a text stands in any file below a directory.
pub(super) fn is_on_disk(directory: &Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_on_disk(&path, text);
        }
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

pub(super) fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": STANDARD.encode("a marker of some length")}})
}

/// How the marker stands in an object.
pub(super) fn marker() -> String {
    STANDARD.encode("a marker of some length")
}

/// Writes an object as it is; gives its version before and after.
pub(super) async fn written_again(cluster: &Cluster, path: &str) -> (String, String) {
    let before = cluster.read(path).await;
    let after = cluster.put(path, &before).await.code(200).json();
    (version(&before), version(&after))
}

#[tokio::test]
async fn stored_values_are_encrypted_and_read_after_a_restart() {
    for family in ["aescbc", "aesgcm", "secretbox"] {
        let directory = tempfile::tempdir().unwrap();
        let text = text("secrets", &format!("{}, {{identity: {{}}}}", keys(family, &["key1"])));
        let cluster = Cluster::with(on(directory.path(), Some(sealing(&text)), 0)).await;
        let created = cluster.create(SECRETS, secret("s")).await;
        let mut watch =
            cluster.get(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&created))).watch().await;
        let path = format!("{SECRETS}/s");
        let patched = cluster.patch(&path, json!({"data": {"j": marker()}})).await.code(200).json();
        assert_eq!(watch.expect("MODIFIED", "s").await["data"], patched["data"]);
        drop(watch);
        cluster.create(CONFIGMAPS, json!({"metadata": {"name": "c"}, "data": {"k": "in the clear"}})).await;
        cluster.stop().await;
        assert!(!is_on_disk(directory.path(), &marker()), "{family}");
        assert!(is_on_disk(directory.path(), &format!("k8s:enc:{family}:v1:key1:")), "{family}");
        assert!(is_on_disk(directory.path(), "in the clear"));
        let cluster = Cluster::with(on(directory.path(), Some(sealing(&text)), 5)).await;
        assert_eq!(cluster.read(&path).await, patched, "{family}");
        // history is there as well
        let mut watch =
            cluster.get(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&created))).watch().await;
        assert_eq!(watch.expect("MODIFIED", "s").await, patched);
        assert_eq!(written_again(&cluster, &path).await.0, version(&patched), "it is as it should be");
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_key_is_rotated_by_rewriting_all_objects() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let of = |keys: String, seconds| on(at, Some(sealing(&text("secrets", &keys))), seconds);
    let cluster = Cluster::with(of(keys("aescbc", &["old"]), 0)).await;
    for name in ["a", "b"] {
        cluster.create(SECRETS, secret(name)).await;
    }
    cluster.stop().await;
    let without = || start_error(of(keys("aescbc", &["new"]), 1));
    let why = "cannot be decrypted: no matching key was found for the provided AES transformer";
    assert_eq!(without().await, format!("/registry/secrets/default/a in the store {why}"));
    let none = start_error(on(at, None, 1)).await;
    assert!(none.contains("/registry/secrets/default/a") && none.contains("no provider"), "{none}");
    let clear = start_error(of("{identity: {}}".to_owned(), 1)).await;
    assert!(clear.contains("/registry/secrets/default/a"), "{clear}");

    let cluster = Cluster::with(of(keys("aescbc", &["new", "old"]), 2)).await;
    let (before, after) = written_again(&cluster, &format!("{SECRETS}/a")).await;
    assert_ne!(before, after, "it is kept in another form now");
    let (before, after) = written_again(&cluster, &format!("{SECRETS}/a")).await;
    assert_eq!(before, after, "and there is nothing more to do");
    cluster.stop().await;
    assert!(without().await.starts_with("/registry/secrets/default/b "));

    let cluster = Cluster::with(of(keys("aescbc", &["new", "old"]), 3)).await;
    let listed = version(&cluster.read(SECRETS).await);
    // a patch that changes nothing does it as well
    let patched = cluster.patch(&format!("{SECRETS}/b"), json!({})).await.code(200).json();
    assert!(version(&patched).parse::<u64>().unwrap() > listed.parse().unwrap());
    cluster.stop().await;
    let cluster = Cluster::with(of(keys("aescbc", &["new"]), 4)).await;
    assert_eq!(cluster.read(&format!("{SECRETS}/b")).await, patched);
    // history with the old key cannot be decrypted
    let too_old = cluster.get(&format!("{SECRETS}?watch=1&resourceVersion={listed}")).await;
    let event = too_old.code(200).text();
    assert!(event.contains("\"code\":410"), "{event}");
    cluster.stop().await;
}

#[tokio::test]
async fn encryption_can_be_enabled_and_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let clear = "{identity: {}}";
    let cluster = Cluster::with(on(at, None, 0)).await;
    cluster.create(SECRETS, secret("s")).await;
    cluster.stop().await;
    let path = format!("{SECRETS}/s");
    let key = keys("secretbox", &["k"]);
    let there = format!("{key}, {clear}");
    let back = format!("{clear}, {key}");
    let mut seconds = 0;
    for providers in [&there, &key, &back, clear] {
        seconds += 1;
        let of = on(at, Some(sealing(&text("secrets", providers))), seconds);
        let cluster = Cluster::with(of).await;
        let (before, after) = written_again(&cluster, &path).await;
        assert_eq!(before != after, *providers == there || *providers == back, "{providers}");
        assert_eq!(cluster.read(&path).await["data"]["k"], marker());
        cluster.stop().await;
    }
}

#[tokio::test]
async fn custom_resources_are_encrypted_like_others() {
    let directory = tempfile::tempdir().unwrap();
    let resources = format!("things.{GROUP}, events.events.k8s.io, leases.coordination.k8s.io");
    let text = text(&resources, &keys("aesgcm", &["k"]));
    let options = |seconds| on(directory.path(), Some(sealing(&text)), seconds);
    let cluster = Cluster::with(options(0)).await;
    let spec = json!({"type": "object", "properties": {"word": {"type": "string"}}});
    define(&cluster, definition(&[served("v1", spec)])).await;
    cluster.create(THINGS, thing("t", json!({"word": "open sesame"}))).await;
    cluster.create(LEASES, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a holder"}})).await;
    cluster.stop().await;
    assert!(!is_on_disk(directory.path(), "open sesame"));
    assert!(!is_on_disk(directory.path(), "a holder"));
    let cluster = Cluster::with(options(5)).await;
    assert_eq!(cluster.read(&format!("{THINGS}/t")).await["spec"]["word"], "open sesame");
    cluster.stop().await;
}

/// A server that follows a file.
fn following(directory: &Path, file: &Path) -> Options {
    let text = std::fs::read(file).unwrap();
    let rules = Rules { reloads: true, second_version: true };
    let configuration = Configuration::read(&text, &Names::default(), rules).unwrap();
    let (names, last) = (Names::default(), ::encryption::content(&text));
    let reload = Some(ConfigReloader { file: file.to_owned(), names, rules, last });
    on(directory, Some(encryption_at_rest::Options { configuration, reload }), 0)
}

/// Writes an object until that makes a difference.
async fn until_written(cluster: &Cluster, path: &str) {
    let turns = async {
        loop {
            let (before, after) = written_again(cluster, path).await;
            if before != after {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("a new configuration", turns).await;
}

#[tokio::test]
async fn a_new_configuration_is_reloaded() {
    let (directory, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("encryption.yaml");
    let write = |text: String| {
        // as tools do: at once
        let beside = folder.path().join("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, &file).unwrap();
    };
    write(text("configmaps", "{identity: {}}"));
    let cluster = Cluster::with(following(directory.path(), &file)).await;
    let verbose = cluster.get("/readyz?verbose").await.code(200).text();
    assert!(verbose.contains("[+]kms-providers ok\n"), "{verbose}");
    assert!(verbose.contains("poststarthook/start-encryption-provider-config-automatic-reload ok\n"));
    let path = format!("{SECRETS}/s");
    cluster.create(SECRETS, secret("s")).await;
    let (before, after) = written_again(&cluster, &path).await;
    assert_eq!(before, after);
    write(text("secrets", &keys("aescbc", &["one"])));
    until_written(&cluster, &path).await;
    // an invalid configuration changes nothing
    write(text("secrets", "{aescbc: {keys: [{name: two, secret: short}]}}"));
    write("kind: Other".to_owned());
    write(text("secrets", &keys("aescbc", &["two", "one"])));
    until_written(&cluster, &path).await;
    cluster.create(SECRETS, secret("t")).await;
    cluster.stop().await;
    assert!(is_on_disk(directory.path(), "k8s:enc:aescbc:v1:two:"));
    let of = on(directory.path(), Some(sealing(&text("secrets", &keys("aescbc", &["two"])))), 5);
    let cluster = Cluster::with(of).await;
    assert_eq!(cluster.read(&path).await["data"]["k"], marker());
    cluster.stop().await;
}

#[tokio::test]
async fn transformations_are_counted() {
    const COUNTED: &str = "apiserver_storage_transformation_operations_total";
    let options =
        Options { encryption: Some(sealing(&text("secrets", "{identity: {}}"))), ..Options::default() };
    let cluster = Cluster::with(options).await;
    cluster.create(SECRETS, secret("s")).await;
    assert!(!cluster.get("/metrics").await.code(200).text().contains(COUNTED), "nothing stands between");
    cluster.stop().await;
    let sealing = sealing(&text("secrets", &keys("aescbc", &["k"])));
    let cluster = Cluster::with(Options { encryption: Some(sealing), ..Options::default() }).await;
    cluster.create(SECRETS, secret("s")).await;
    cluster.post(SECRETS, secret("s")).await.refused(409, "AlreadyExists");
    let metrics = cluster.get("/metrics").await.code(200).text();
    let line = "{status=\"OK\",transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:aescbc:v1:\"}";
    assert!(metrics.contains(&format!("{COUNTED}{line}")), "{metrics}");
    cluster.stop().await;
}
