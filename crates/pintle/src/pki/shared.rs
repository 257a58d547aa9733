//! The keys that all servers on one etcd share, kept there under the cluster's token.
//!
//! The first server makes the authorities and the keys of tokens, seals them with a key derived from the token, and
//! creates one value in the etcd. A further server that has the token takes them from there. A reader of the etcd
//! without the token learns nothing but that there is a cluster.
//!
//! Invariants: of servers that start at once, one creates the value and the others use it. Files that a server has are
//! never replaced by those of the etcd.

use super::issue;
use super::store::CertificateStore;
use super::{Hosts, Pki};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use env::World;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use std::collections::BTreeMap;
use std::path::Path;

/// The key of the value in the store.
const KEY: &str = "/registry/pintle/cluster-pki";
/// The files that are shared.
const SHARED: [&str; 7] =
    ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub", "admin.token"];
/// The name of the cluster's token among the files.
pub const TOKEN: &str = "cluster";
/// What is authenticated beside the files.
const CONTEXT: &[u8] = b"pintle cluster pki 1";
const SALT_BYTES: usize = 16;
/// The hexadecimal digits of a token: 256 bits cannot be guessed, so that nothing need slow down who tries.
const TOKEN_DIGITS: usize = 64;

type Files = BTreeMap<String, String>;

/// The PKI of a server on an etcd. Without a directory it is in memory; then a token must be given.
pub async fn shared(
    directory: Option<&Path>,
    hosts: &Hosts,
    token: Option<&str>,
    etcd: &store_etcd::Options,
    world: &World,
) -> anyhow::Result<Pki> {
    let mut published = store_etcd::single_value::read(etcd, KEY, world).await?;
    loop {
        let mut store = match directory {
            Some(directory) => CertificateStore::in_directory(directory)?,
            None => CertificateStore::in_memory(Vec::new()),
        };
        if let Some(token) = token {
            check_token(token)?;
            store.put(format!("{TOKEN}.token"), token);
        }
        let has_files = store.get("ca.crt").is_some();
        if let Some(sealed) = published.as_ref().filter(|_| !has_files) {
            let token = store.text(&format!("{TOKEN}.token")).context(
                "there is a cluster in this etcd: its servers share keys. Give the token by --cluster-token-file; it \
                 is cluster.token in the folder pki of a server's data directory",
            )?;
            for (name, content) in open(sealed, token.trim())? {
                store.adopt(name, content);
            }
        }
        let pki = Pki::assemble(&mut store, hosts, world)?;
        if published.is_none() {
            let token = match store.text(&format!("{TOKEN}.token")) {
                Some(token) => token.trim().to_owned(),
                None => issue::token(&mut store, TOKEN, world)?,
            };
            let files = SHARED.iter().filter_map(|name| Some(((*name).to_owned(), store.text(name)?)));
            let sealed = seal(&files.collect(), &token, world)?;
            let found = store_etcd::single_value::create(etcd, KEY, sealed.clone().into(), world).await?;
            if found != sealed && !has_files {
                // another server was first
                published = Some(found);
                continue;
            }
        }
        store.commit()?;
        return Ok(pki);
    }
}

fn check_token(token: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        token.len() == TOKEN_DIGITS && token.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "the cluster token must be {TOKEN_DIGITS} hexadecimal digits, as the first server makes it, or: openssl rand -hex 32"
    );
    Ok(())
}

fn key(token: &str, salt: &[u8]) -> anyhow::Result<LessSafeKey> {
    let derived = Salt::new(HKDF_SHA256, salt).extract(token.as_bytes());
    let derived = derived.expand(&[CONTEXT], &AES_256_GCM).map(UnboundKey::from);
    Ok(LessSafeKey::new(derived.ok().context("no key can be derived from the cluster token")?))
}

/// Encrypts the files under the token.
fn seal(files: &Files, token: &str, world: &World) -> anyhow::Result<Vec<u8>> {
    let (mut salt, mut nonce) = ([0; SALT_BYTES], [0; NONCE_LEN]);
    world.fill(&mut salt);
    world.fill(&mut nonce);
    let mut data = serde_json::to_vec(files)?;
    key(token, &salt)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(CONTEXT), &mut data)
        .ok()
        .context("the keys of the cluster cannot be encrypted")?;
    let sealed = [&salt[..], &nonce, &data].concat();
    Ok(STANDARD.encode(sealed).into_bytes())
}

/// Decrypts the files.
fn open(sealed: &[u8], token: &str) -> anyhow::Result<Files> {
    let damaged = "the keys of the cluster in the etcd are damaged";
    let sealed = STANDARD.decode(sealed).context(damaged)?;
    let (salt, rest) = sealed.split_at_checked(SALT_BYTES).context(damaged)?;
    let (nonce, data) = rest.split_first_chunk::<NONCE_LEN>().context(damaged)?;
    let (nonce, mut data) = (Nonce::assume_unique_for_key(*nonce), data.to_vec());
    let opened = key(token, salt)?.open_in_place(nonce, Aad::from(CONTEXT), &mut data);
    let opened = opened.ok().context("the cluster token is not that of the cluster in this etcd")?;
    let files: Files = serde_json::from_slice(opened).context(damaged)?;
    let is_whole = SHARED.iter().all(|name| files.contains_key(*name)) && files.len() == SHARED.len();
    anyhow::ensure!(is_whole, damaged);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Simulated;
    use store_etcd::testing::FakeEtcd;

    const CHOSEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn world(seed: u64) -> World {
        Simulated::new(1_700_000_000, seed)
    }

    fn options(etcd: &FakeEtcd) -> store_etcd::Options {
        store_etcd::Options { servers: etcd.targets(), ..store_etcd::Options::default() }
    }

    fn hosts() -> Hosts {
        Hosts::new([127, 0, 0, 1].into(), None, &[], &names::Names::kubernetes()).unwrap()
    }

    #[tokio::test]
    async fn servers_with_the_token_share_keys() {
        let etcd = FakeEtcd::start(1).await.unwrap();
        let options = options(&etcd);
        let folder = tempfile::tempdir().unwrap();
        let [one, two, three] = ["1", "2", "3"].map(|name| folder.path().join(name));
        let first = shared(Some(&one), &hosts(), None, &options, &world(1)).await.unwrap();
        let token = std::fs::read_to_string(one.join("cluster.token")).unwrap();

        let refused = shared(Some(&two), &hosts(), None, &options, &world(2)).await.err().unwrap();
        assert!(refused.to_string().contains("--cluster-token-file"), "{refused}");
        let wrong = "0".repeat(64);
        let refused = shared(Some(&two), &hosts(), Some(&wrong), &options, &world(2)).await.err().unwrap();
        assert!(refused.to_string().contains("is not that of the cluster"), "{refused}");
        assert!(!two.exists());
        let short = shared(Some(&two), &hosts(), Some("short"), &options, &world(2)).await.err().unwrap();
        assert!(short.to_string().contains("64 hexadecimal digits"), "{short}");

        let second = shared(Some(&two), &hosts(), Some(&token), &options, &world(3)).await.unwrap();
        let memory = shared(None, &hosts(), Some(&token), &options, &world(4)).await.unwrap();
        for other in [&second, &memory] {
            assert_eq!(other.ca.certificate, first.ca.certificate);
            assert_eq!(other.service_account_key, first.service_account_key);
            assert_eq!(other.front_proxy_ca.key, first.front_proxy_ca.key);
            assert_eq!(other.admin_token, first.admin_token);
            assert_ne!(other.apiserver.key, first.apiserver.key);
        }
        // later starts need no token, and keep what they have
        let again = shared(Some(&two), &hosts(), None, &options, &world(5)).await.unwrap();
        assert_eq!(again.apiserver.certificate, second.apiserver.certificate);
        // a server with files of its own keeps them: whether they fit is checked when it serves
        Pki::in_directory(&three, &hosts(), &world(6)).unwrap();
        let own = shared(Some(&three), &hosts(), None, &options, &world(6)).await.unwrap();
        assert_ne!(own.ca.certificate, first.ca.certificate);
    }

    #[tokio::test]
    async fn of_servers_that_start_at_once_one_makes_the_keys() {
        let etcd = FakeEtcd::start(1).await.unwrap();
        let (options, token, hosts) = (options(&etcd), Some(CHOSEN), hosts());
        let worlds = [world(1), world(2)];
        let start = |at: usize| shared(None, &hosts, token, &options, &worlds[at]);
        let (one, two) = tokio::join!(start(0), start(1));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.ca.certificate, two.ca.certificate);
        assert_eq!(one.service_account_key, two.service_account_key);
    }

    #[test]
    fn sealed_keys_open_with_the_token_alone() {
        let files: Files = SHARED.iter().map(|name| ((*name).to_owned(), format!("of {name}"))).collect();
        let sealed = seal(&files, CHOSEN, &world(1)).unwrap();
        assert_eq!(open(&sealed, CHOSEN).unwrap(), files);
        assert!(open(&sealed, "another").is_err());
        let mut changed = STANDARD.decode(&sealed).unwrap();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        assert!(open(STANDARD.encode(changed).as_bytes(), CHOSEN).is_err());
        for end in [0, 10, 40] {
            assert!(open(&sealed[..end], CHOSEN).is_err(), "cut at {end}");
        }
    }
}
