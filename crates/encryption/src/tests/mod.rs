//! Tests of the providers and of the encrypting store.

use crate::keyring::{Keyring, Parts};
use crate::{Configuration, EncryptedStore, Form, Rules, TransformError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use env::{Simulated, World};
use metrics::Registry;
use names::Names;
use parking_lot::Mutex;
use std::sync::Arc;
use store::{BuildId, Change, EncodedBy, Expect, RecoveredRecord, Revision, Store, StoreError, Write};

pub(crate) const RULES: Rules = Rules { reloads: true, second_version: true };
pub(crate) const KEY: &str = "/registry/secrets/default/golden";
const PLAIN: &[u8] = b"{\"kind\":\"Secret\"}";

/// A key of so many bytes, as in the configuration.
fn secret(size: u8) -> String {
    STANDARD.encode((0..size).collect::<Vec<u8>>())
}

fn key(name: &str, size: u8) -> String {
    format!("{{name: {name}, secret: {}}}", secret(size))
}

/// A configuration of `secrets` with these providers.
fn configuration(providers: &str) -> Configuration {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    let text = format!("{head}resources:\n- resources: [secrets]\n  providers: [{providers}]\n");
    Configuration::read(text.as_bytes(), &Names::kubernetes(), RULES).unwrap()
}

fn world() -> World {
    Simulated::new(1_700_000_000, 7)
}

pub(crate) fn keyring(providers: &str) -> Keyring {
    counted(providers, &Registry::default())
}

fn counted(providers: &str, registry: &Registry) -> Keyring {
    let locate: crate::Locate = Box::new(|resource, _| format!("/registry/{resource}/"));
    let names = &Names::kubernetes();
    Keyring::new(
        &configuration(providers),
        Parts { world: world(), registry, names, locate, rename: None, reloads: true },
    )
}

async fn encrypt(keyring: &Keyring, plain: &[u8]) -> (Bytes, Form) {
    let plan = keyring.current();
    let chain = plan.of(KEY).unwrap();
    chain.encrypt(KEY, &Bytes::copy_from_slice(plain), &keyring.metrics).await.unwrap()
}

async fn decrypt(keyring: &Keyring, key: &str, encrypted: &[u8]) -> Result<(Bytes, Form), TransformError> {
    let plan = keyring.current();
    plan.of(key).unwrap().decrypt(key, &Bytes::copy_from_slice(encrypted), &keyring.metrics).await
}

async fn why(keyring: &Keyring, key: &str, encrypted: &[u8]) -> String {
    decrypt(keyring, key, encrypted).await.unwrap_err().message
}

/// Every provider with configured keys, each with a valid key size.
fn families() -> [(&'static str, u8); 7] {
    [
        ("aescbc", 16),
        ("aescbc", 24),
        ("aescbc", 32),
        ("aesgcm", 16),
        ("aesgcm", 24),
        ("aesgcm", 32),
        ("secretbox", 32),
    ]
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

#[tokio::test]
async fn values_of_upstream_are_decrypted() {
    let golden = include_str!("golden.txt").lines().filter(|line| !line.starts_with('#'));
    let golden: Vec<Vec<&str>> = golden.map(|line| line.split(' ').collect()).collect();
    for (family, size) in families() {
        let line = golden.iter().find(|line| line[..2] == [family, &size.to_string()]).unwrap();
        let keyring = keyring(&format!("{family}: {{keys: [{}]}}", key("key1", size)));
        let (plain, form) = decrypt(&keyring, KEY, &hex(line[2])).await.unwrap();
        assert_eq!(plain, PLAIN, "{family} {size}");
        assert!(!keyring.current().of(KEY).unwrap().is_stale(form));
    }
}

#[tokio::test]
async fn values_of_any_length_round_trip() {
    for (family, size) in families() {
        let keyring = keyring(&format!("{family}: {{keys: [{}]}}", key("key1", size)));
        for length in (0..50).chain([4096, 100_000]) {
            let plain = vec![b'x'; length];
            let (encrypted, form) = encrypt(&keyring, &plain).await;
            assert!(encrypted.starts_with(format!("k8s:enc:{family}:v1:key1:").as_bytes()), "{encrypted:?}");
            assert!(length < 16 || !encrypted.windows(16).any(|part| part == [b'x'; 16]));
            assert_eq!(decrypt(&keyring, KEY, &encrypted).await.unwrap(), (Bytes::from(plain), form));
            assert_ne!(encrypt(&keyring, &vec![b'x'; length]).await.0, encrypted, "a nonce is used once");
        }
    }
}

#[tokio::test]
async fn modified_truncated_or_moved_values_are_rejected() {
    for (family, size) in families() {
        let keyring = keyring(&format!("{family}: {{keys: [{}]}}", key("key1", size)));
        let (encrypted, _) = encrypt(&keyring, PLAIN).await;
        let head = format!("k8s:enc:{family}:v1:key1:").len();
        for length in head..encrypted.len() {
            // without a tag, missing blocks at the end show only in the padding
            assert!(decrypt(&keyring, KEY, &encrypted[..length]).await.is_err(), "{family} {length}");
        }
        let mut changed = encrypted.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert!(decrypt(&keyring, KEY, &changed).await.is_err(), "{family}");
        let moved = decrypt(&keyring, "/registry/secrets/default/other", &encrypted).await;
        assert_eq!(moved.is_err(), family == "aesgcm", "{family}");
        let cut = why(&keyring, KEY, &encrypted[..head + 5]).await;
        assert_eq!(cut, "the stored data was shorter than the required size");
    }
}

#[tokio::test]
async fn decryption_needs_the_key_and_its_name() {
    for (family, size) in families() {
        let (encrypted, _) =
            encrypt(&keyring(&format!("{family}: {{keys: [{}]}}", key("key1", size))), PLAIN).await;
        let other = STANDARD.encode(vec![9; size.into()]);
        let wrong = keyring(&format!("{family}: {{keys: [{{name: key1, secret: {other}}}]}}"));
        assert!(decrypt(&wrong, KEY, &encrypted).await.is_err(), "{family}");
        let renamed = keyring(&format!("{family}: {{keys: [{}]}}", key("key2", size)));
        let message = why(&renamed, KEY, &encrypted).await;
        assert!(message.starts_with("no matching key was found for the provided "), "{message}");
        let message = why(&keyring("identity: {}"), KEY, &encrypted).await;
        assert!(message.starts_with("no matching prefix found"), "{message}");
        // of several keys with one name, the matching one is found
        let both = format!("{family}: {{keys: [{{name: key1, secret: {other}}}, {}]}}", key("key1", size));
        let both = keyring(&both);
        let (plain, form) = decrypt(&both, KEY, &encrypted).await.unwrap();
        assert_eq!(plain, PLAIN);
        assert!(both.current().of(KEY).unwrap().is_stale(form), "{family}");
    }
}

#[tokio::test]
async fn values_of_other_providers_are_stale() {
    let old = format!("aescbc: {{keys: [{}]}}", key("old", 32));
    let (encrypted, _) = encrypt(&keyring(&old), PLAIN).await;
    let stale = async |providers: &str, value: &[u8]| {
        let keyring = keyring(providers);
        let (plain, form) = decrypt(&keyring, KEY, value).await.unwrap();
        assert_eq!(plain, PLAIN);
        keyring.current().of(KEY).unwrap().is_stale(form)
    };
    assert!(!stale(&old, &encrypted).await);
    let new = key("new", 32);
    assert!(stale(&format!("aescbc: {{keys: [{new}, {}]}}", key("old", 32)), &encrypted).await);
    assert!(!stale(&format!("aescbc: {{keys: [{}, {new}]}}", key("old", 32)), &encrypted).await);
    let both = format!("secretbox: {{keys: [{new}]}}}}, {{{old}");
    assert!(stale(&format!("{{{both}}}"), &encrypted).await);
    assert!(stale(&format!("{{identity: {{}}}}, {{{old}}}"), &encrypted).await);
    assert!(stale(&format!("{{{old}}}, {{identity: {{}}}}"), PLAIN).await);
    assert!(!stale(&format!("{{identity: {{}}}}, {{{old}}}"), PLAIN).await);
}

#[tokio::test]
async fn transformations_are_counted() {
    let registry = Registry::default();
    let keyring = counted(&format!("aesgcm: {{keys: [{}]}}", key("key1", 32)), &registry);
    let (encrypted, _) = encrypt(&keyring, PLAIN).await;
    decrypt(&keyring, KEY, &encrypted).await.unwrap();
    decrypt(&keyring, KEY, &encrypted[..30]).await.unwrap_err();
    decrypt(&keyring, KEY, PLAIN).await.unwrap_err();
    let text = registry.text();
    let operations = |way: &str, prefix: &str, status: &str, count: u32| {
        let labels =
            format!("{{status=\"{status}\",transformation_type=\"{way}\",transformer_prefix=\"{prefix}\"}}");
        let line = format!("apiserver_storage_transformation_operations_total{labels} {count}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    };
    for prefix in ["k8s:enc:aesgcm:v1:", "key1:"] {
        operations("to_storage", prefix, "OK", 1);
        operations("from_storage", prefix, "OK", 1);
        operations("from_storage", prefix, "Unknown", 1);
    }
    operations("from_storage", "unknown", "Unknown", 1);
    let line =
        "apiserver_storage_transformation_duration_seconds_count{transformation_type=\"to_storage\"} 2\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("apiserver_envelope_encryption_dek_cache_fill_percent 0\n"), "{text}");
}

/// An encrypting store over one in memory, its subscriber's changes, and the underlying store.
struct TestStore {
    store: Arc<dyn Store>,
    seen: Arc<Mutex<Vec<Change>>>,
    keyring: Arc<Keyring>,
}

async fn test_store(providers: &str) -> TestStore {
    let inner = Arc::new(store::memory::open(&store::Options::default(), world()));
    let keyring = Arc::new(keyring(providers));
    let made = EncryptedStore::over(inner, Vec::new(), Some(keyring.clone()), || unreachable!()).await;
    let (store, _) = made.unwrap();
    let seen = Arc::<Mutex<Vec<Change>>>::default();
    let sees = seen.clone();
    store.start(Box::new(move |changes| sees.lock().extend_from_slice(changes))).unwrap();
    TestStore { store, seen, keyring }
}

#[tokio::test]
async fn a_subscriber_receives_plaintext() {
    let it = test_store(&format!("aescbc: {{keys: [{}]}}", key("key1", 32))).await;
    let note: store::Note = Arc::new(5u32);
    it.store.write(Write::put(KEY, Expect::Absent, PLAIN).with_note(note)).await.unwrap();
    it.store.write(Write::put(KEY, Expect::Present, &b"again"[..])).await.unwrap();
    it.store.write(Write::put("/registry/pods/a/b", Expect::Absent, &b"pod"[..])).await.unwrap();
    it.store.write(Write::delete(KEY, Expect::Present)).await.unwrap();
    let conflict = it.store.write(Write::put(KEY, Expect::Present, PLAIN)).await;
    assert!(matches!(conflict, Err(StoreError::Conflict { .. })));
    let seen = it.seen.lock();
    let values: Vec<_> = seen.iter().map(|change| change.value.as_deref()).collect();
    assert_eq!(values, [Some(PLAIN), Some(b"again"), Some(b"pod"), None]);
    let noted: Vec<_> =
        seen.iter().map(|it| it.note.as_ref().and_then(|it| it.downcast_ref::<u32>())).collect();
    assert_eq!(noted, [Some(&5), None, None, None]);
}

#[tokio::test]
async fn a_key_is_stale_until_it_is_written_with_the_new_key() {
    let (old, new) = (key("old", 32), key("new", 24));
    let it = test_store(&format!("aescbc: {{keys: [{old}]}}")).await;
    let (one, two) = ("/registry/secrets/a/one", "/registry/secrets/a/two");
    for key in [one, two] {
        it.store.write(Write::put(key, Expect::Absent, PLAIN)).await.unwrap();
    }
    let stale = || [one, two, "/registry/pods/a/b"].map(|key| it.store.is_stale(key));
    assert_eq!(stale(), [false; 3]);
    it.keyring.replace(it.keyring.plan(&configuration(&format!("aescbc: {{keys: [{new}, {old}]}}"))));
    assert_eq!(stale(), [true, true, false]);
    it.store.write(Write::put(one, Expect::Present, PLAIN)).await.unwrap();
    assert_eq!(stale(), [false, true, false]);
    it.store.write(Write::delete(two, Expect::Present)).await.unwrap();
    // a resource that is no longer configured is written as plaintext
    let nothing = Configuration::default();
    it.keyring.replace(it.keyring.plan(&nothing));
    assert_eq!(stale(), [true, false, false]);
    it.store.write(Write::put(one, Expect::Present, PLAIN)).await.unwrap();
    assert_eq!(stale(), [false; 3]);
    it.keyring.replace(it.keyring.plan(&configuration(&format!("aescbc: {{keys: [{new}]}}"))));
    assert_eq!(stale(), [true, true, false], "an absent key counts as plaintext");
}

#[tokio::test]
async fn encrypted_values_have_no_summary() {
    let directory = tempfile::tempdir().unwrap();
    let keyring = Arc::new(keyring(&format!("secretbox: {{keys: [{}]}}", key("key1", 32))));
    let options = store::Options { compress_from: 100, leave_packed: true, ..store::Options::default() };
    let opened = async |keyring: Option<Arc<Keyring>>| {
        let mut recovered = Vec::new();
        let inner = store::embedded::open(directory.path(), &options, world(), &mut |it| recovered.push(it));
        let recovered = (Arc::new(inner.unwrap()), recovered);
        EncryptedStore::over(recovered.0, recovered.1, keyring, || self::keyring("identity: {}"))
            .await
            .unwrap()
    };
    let value = Bytes::from("a text that compresses ".repeat(100));
    let write = async |store: &Arc<dyn Store>, key: &str| {
        let mut write = Write::put(key, Expect::Any, value.clone());
        write.encoded_by = std::num::NonZeroU64::new(7).map(BuildId);
        write.summary = "a secret label".into();
        store.write(write).await.unwrap();
    };
    let in_file = |text: &[u8]| {
        let file = std::fs::read(directory.path().join("store.redb")).unwrap();
        file.windows(text.len()).any(|it| it == text)
    };
    let (store, _) = opened(Some(keyring.clone())).await;
    store.start(Box::new(|_| ())).unwrap();
    write(&store, KEY).await;
    store.close().await;
    assert!(!in_file(b"a secret label") && !in_file(b"a text that compresses"));
    drop(store);
    // of a resource that is not encrypted, and of one that is only later
    let (store, recovered) = opened(Some(keyring.clone())).await;
    assert_eq!(recovered[0].value, Some(value.clone()));
    assert_eq!(recovered[0].encoded_by, std::num::NonZeroU64::new(7).map(|it| EncodedBy::new(BuildId(it))));
    keyring.replace(keyring.plan(&Configuration::default()));
    store.start(Box::new(|_| ())).unwrap();
    write(&store, "/registry/secrets/a/plain").await;
    write(&store, "/registry/pods/a/b").await;
    store.close().await;
    assert!(in_file(b"a secret label"));
    drop(store);
    let providers = format!("secretbox: {{keys: [{}]}}, identity: {{}}", key("key1", 32));
    let (_, recovered) = opened(Some(Arc::new(self::keyring(&providers)))).await;
    let is_packed = |at: usize| recovered[at].encoded_by.as_ref().unwrap().is_packed;
    assert_eq!([is_packed(0), is_packed(1), is_packed(2)], [false, false, true]);
    assert_eq!((&recovered[0].value, &recovered[1].value), (&Some(value.clone()), &Some(value.clone())));
    let mut last = recovered[2].clone();
    last.unpack().unwrap();
    assert_eq!(last.value, Some(value));
}

/// A store with other writers: values that it is given arrive as theirs.
struct Shared(Mutex<Option<store::Subscriber>>);

impl Shared {
    fn arrives(self: &Arc<Self>, revision: u64, key: &str, value: impl Into<Bytes>) {
        let change = Change {
            revision: Revision(revision),
            key: key.into(),
            value: Some(value.into()),
            previous: None,
            note: None,
            at: 0,
        };
        let shared = self.clone();
        let thread = std::thread::spawn(move || shared.0.lock().as_mut().unwrap()(&[change]));
        thread.join().unwrap();
    }
}

impl Store for Shared {
    fn start(&self, subscriber: store::Subscriber) -> Result<(), StoreError> {
        *self.0.lock() = Some(subscriber);
        Ok(())
    }
    fn write(&self, _: Write) -> store::BoxFuture<'_, Result<Revision, StoreError>> {
        unreachable!("this store is not written")
    }
    fn revision(&self) -> Revision {
        Revision(0)
    }
    fn oldest(&self) -> Revision {
        Revision(3)
    }
    fn stats(&self) -> store::Stats {
        store::Stats::default()
    }
    fn healthy(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn probe(&self) -> store::BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
    fn snapshot(&self) -> store::BoxFuture<'_, Result<store::Snapshot, StoreError>> {
        Box::pin(async { Err(StoreError::Unavailable("it has no snapshots".to_owned())) })
    }
    fn tick(&self) -> store::BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn close(&self) -> store::BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn writes_of_other_servers_are_decrypted() {
    let (old, new) = (key("old", 32), key("new", 16));
    let keyring = Arc::new(keyring(&format!("aesgcm: {{keys: [{new}, {old}]}}")));
    let shared = Arc::new(Shared(Mutex::new(None)));
    let made =
        EncryptedStore::over(shared.clone(), Vec::new(), Some(keyring.clone()), || unreachable!()).await;
    let (store, _) = made.unwrap();
    let seen = Arc::<Mutex<Vec<Change>>>::default();
    let sees = seen.clone();
    store.start(Box::new(move |changes| sees.lock().extend_from_slice(changes))).unwrap();
    let (by_old, _) = encrypt(&self::keyring(&format!("aesgcm: {{keys: [{old}]}}")), PLAIN).await;
    shared.arrives(1, KEY, by_old.clone());
    assert!(store.is_stale(KEY));
    let (by_new, _) = encrypt(&keyring, b"new").await;
    shared.arrives(2, KEY, by_new);
    assert!(!store.is_stale(KEY));
    shared.arrives(3, "/registry/pods/a/b", PLAIN);
    // a ciphertext of another key: passed on encrypted
    shared.arrives(4, "/registry/secrets/a/other", by_old.clone());
    let values: Vec<_> = seen.lock().iter().map(|change| change.value.clone().unwrap()).collect();
    assert_eq!(values, [Bytes::from(PLAIN), Bytes::from("new"), Bytes::from(PLAIN), by_old]);
}

/// A recovered record.
fn record(revision: u64, key: &str, value: Option<Bytes>, history: bool) -> RecoveredRecord {
    let revision = Revision(revision);
    RecoveredRecord {
        revision,
        key: key.into(),
        value,
        previous: None,
        at: 0,
        expires_at: None,
        encoded_by: None,
        history,
    }
}

#[tokio::test]
async fn recovered_values_are_decrypted_or_reported() {
    let (old, new) = (key("old", 32), key("new", 32));
    let (by_old, _) = encrypt(&keyring(&format!("aescbc: {{keys: [{old}]}}")), b"1").await;
    let after = Arc::new(keyring(&format!("aescbc: {{keys: [{new}]}}")));
    let (by_new, _) = encrypt(&after, b"2").await;
    let over = async |records: Vec<RecoveredRecord>, keyring: Option<Arc<Keyring>>| {
        let shared = Arc::new(Shared(Mutex::new(None)));
        EncryptedStore::over(shared, records, keyring, || self::keyring("identity: {}")).await
    };
    // an object that cannot be decrypted
    let records = vec![record(4, KEY, Some(by_old.clone()), false)];
    let message = over(records.clone(), Some(after.clone())).await.err().unwrap().to_string();
    assert_eq!(
        message,
        format!(
            "{KEY} in the store cannot be decrypted: no matching key was found for the provided AES transformer"
        )
    );
    let message = over(vec![record(4, "/registry/pods/a/b", Some(by_old.clone()), false)], None).await;
    let message = message.err().unwrap().to_string();
    assert!(
        message.contains("/registry/pods/a/b") && message.contains("no provider is configured"),
        "{message}"
    );
    // a value that was replaced: history begins later
    let pods = "/registry/pods/a/b";
    let gone = "/registry/pods/a/gone";
    let records = vec![
        record(1, pods, Some("p1".into()), false),
        record(2, gone, Some("g".into()), false),
        record(3, KEY, Some(by_old), false),
        record(4, gone, None, true),
        record(5, KEY, Some(by_new), true),
        record(6, pods, Some("p2".into()), true),
    ];
    let (store, left) = over(records, Some(after)).await.unwrap();
    assert_eq!(store.oldest(), Revision(5));
    assert!(!store.is_stale(KEY));
    let expected = vec![
        record(1, pods, Some("p1".into()), false),
        record(5, KEY, Some("2".into()), false),
        record(6, pods, Some("p2".into()), true),
    ];
    assert_eq!(left, expected);
    // without encrypted values the store is not wrapped
    let (store, left) = over(vec![record(1, pods, Some("p".into()), false)], None).await.unwrap();
    assert_eq!((store.oldest(), left.len()), (Revision(3), 1));
}

#[tokio::test]
async fn values_are_bound_to_their_etcd_keys() {
    let registry = Registry::default();
    let providers = format!("aesgcm: {{keys: [{}]}}", key("key1", 32));
    let renamed = |rename: Option<crate::Rename>| {
        let locate: crate::Locate = Box::new(|resource, _| format!("/registry/{resource}/"));
        let names = &Names::kubernetes();
        let parts = Parts { world: world(), registry: &registry, names, locate, rename, reloads: true };
        Arc::new(Keyring::new(&configuration(&providers), parts))
    };
    let (encrypted, _) = encrypt(&keyring(&providers), PLAIN).await;
    let elsewhere = "/registry/secrets/default/elsewhere";
    let recovered = async |keyring: Arc<Keyring>| {
        let shared = Arc::new(Shared(Mutex::new(None)));
        let records = vec![record(1, elsewhere, Some(encrypted.clone()), false)];
        EncryptedStore::over(shared, records, Some(keyring), || unreachable!())
            .await
            .map(|(_, records)| records)
    };
    assert!(recovered(renamed(None)).await.is_err());
    let rename: crate::Rename = Box::new(|key| key.replace("elsewhere", "golden"));
    assert_eq!(recovered(renamed(Some(rename))).await.unwrap()[0].value.as_deref(), Some(PLAIN));
}
