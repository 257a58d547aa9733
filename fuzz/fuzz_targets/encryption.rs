//! Encryption at rest: a changed value is never taken for another one; any configuration is read or refused.

#![no_main]

use bytes::Bytes;
use encryption::{Configuration, EncryptedStore, Keyring, Parts, Rules};
use env::{Simulated, World};
use fuzz::duplex::run;
use fuzz::objects::NAMES;
use libfuzzer_sys::fuzz_target;
use metrics::Registry;
use std::sync::{Arc, LazyLock};
use store::{RecoveredRecord, Revision, Store, memory};

const KEY: &str = "/registry/secrets/default/golden";
const PLAIN: &[u8] = br#"{"kind":"Secret"}"#;
const RULES: Rules = Rules { reloads: true, second_version: true };

/// A provider, its keyring, and a value of upstream.
struct Provider {
    keyring: Arc<Keyring>,
    golden: Vec<u8>,
    /// Whether a changed value is refused: CBC has no tag.
    has_tag: bool,
}

static WORLD: LazyLock<World> = LazyLock::new(|| Simulated::new(1_700_000_000, 7));
static STORE: LazyLock<Arc<dyn Store>> =
    LazyLock::new(|| Arc::new(memory::open(&store::Options::default(), WORLD.clone())));
static PROVIDERS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let lines = include_str!("../../crates/encryption/src/tests/golden.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.starts_with("kms"));
    lines.map(|line| provider(&line.split(' ').collect::<Vec<_>>())).collect()
});

fuzz_target!(
    init: fuzz::forgive_panics_in("saphyr-parser"),
    |data: &[u8]| {
        let Some((choice, rest)) = fuzz::choice(data) else { return };
        let Some(provider) = PROVIDERS.get(choice % (PROVIDERS.len() + 1)) else {
            return drop(Configuration::read(rest, &NAMES, RULES));
        };
        let value = if choice & 0x80 == 0 { fuzz::mutated(&provider.golden, rest) } else { rest.to_vec() };
        let is_golden = value == provider.golden;
        let decrypted = run(decrypt(&provider.keyring, value));
        match decrypted {
            Some(plain) if is_golden => assert_eq!(plain, PLAIN),
            Some(plain) => assert!(!provider.has_tag, "{plain:?}"),
            None => assert!(!is_golden),
        }
    }
);

async fn decrypt(keyring: &Arc<Keyring>, value: Vec<u8>) -> Option<Bytes> {
    let record = RecoveredRecord {
        revision: Revision(1),
        key: KEY.into(),
        value: Some(value.into()),
        previous: None,
        at: 0,
        expires_at: None,
        encoded_by: None,
        history: false,
    };
    let none = || -> Keyring { unreachable!("there is a keyring") };
    let opened = EncryptedStore::over(STORE.clone(), vec![record], Some(keyring.clone()), none).await;
    opened.ok()?.1.pop()?.value
}

fn provider(line: &[&str]) -> Provider {
    let [family, size, golden] = line else { panic!("a line of the golden values") };
    let secret: Vec<u8> = (0..size.parse().expect("a size")).collect();
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{{resources: [secrets], \
         providers: [{{{family}: {{keys: [{{name: key1, secret: {}}}]}}}}]}}]}}",
        base64(&secret)
    );
    let configuration = Configuration::read(text.as_bytes(), &NAMES, RULES).expect("a configuration");
    let locate: encryption::Locate = Box::new(|resource, _| format!("/registry/{resource}/"));
    let registry = &Registry::default();
    let parts = Parts { world: WORLD.clone(), registry, names: &NAMES, locate, rename: None, reloads: true };
    let byte = |at| u8::from_str_radix(&golden[at..at + 2], 16).expect("hexadecimal");
    Provider {
        keyring: Arc::new(Keyring::new(&configuration, parts)),
        golden: (0..golden.len() / 2).map(|at| byte(at * 2)).collect(),
        has_tag: *family != "aescbc",
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
