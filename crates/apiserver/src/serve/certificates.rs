//! Serving certificates, chosen by SNI name, else by local address, else the default. Certificates read from
//! files are reloaded when the files change.
//!
//! Invariants: a certificate matches its key, and there is a default certificate. An unusable pair never
//! replaces a usable one: while files are being replaced the old pair stays.
//!
//! Names beat wildcards; names configured by the operator beat those in a certificate; among equals the first
//! wins.

use super::error::ServeError;
use super::pem::{certificates, problem};
use arc_swap::ArcSwap;
use env::{Interval, Upkeep, World};
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often files are checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The local address of the connection while its certificate is chosen.
    pub(super) static LOCAL_IP: IpAddr;
}

/// A certificate with its key, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, followed by its intermediates.
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    /// The files of certificate and key, to be reloaded when they change.
    pub files: Option<(PathBuf, PathBuf)>,
    /// SNI names, `*.names` and addresses that it serves. Empty: those in the certificate.
    pub names: Vec<String>,
}

impl Pair {
    /// Whether certificate and key can be used together.
    pub fn check(&self) -> Result<(), String> {
        let provider = rustls::crypto::ring::default_provider();
        self.certified_key(&provider).map(drop).map_err(|why| why.to_string())
    }

    fn certified_key(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, ServeError> {
        let chain = certificates("server certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(problem("server key"))?;
        let certified_key =
            CertifiedKey::from_der(chain, key, provider).map_err(problem("server certificate"))?;
        Ok(Arc::new(certified_key))
    }
}

/// The certificates of a listener.
pub(super) struct Certificates {
    current: ArcSwap<CertificateIndex>,
    /// The first is the default.
    pairs: Mutex<Vec<Pair>>,
    provider: Arc<CryptoProvider>,
}

/// Certificates by name, and the default.
struct CertificateIndex {
    default: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    pub fn new(pairs: Vec<Pair>, provider: Arc<CryptoProvider>) -> Result<Self, ServeError> {
        let current = ArcSwap::from_pointee(CertificateIndex::new(&pairs, &provider)?);
        Ok(Certificates { current, pairs: Mutex::new(pairs), provider })
    }

    /// Reloads files when they change, without end.
    pub async fn follow(&self, world: &World) {
        if self.pairs.lock().iter().all(|pair| pair.files.is_none()) {
            return std::future::pending().await;
        }
        let mut every = Interval::upkeep(world, Upkeep::check(CHECK_INTERVAL));
        let mut refused = None;
        loop {
            every.tick().await;
            let mut pairs = self.pairs.lock().clone();
            if !reload(&mut pairs).await || refused.as_ref() == Some(&pairs) {
                continue;
            }
            match CertificateIndex::new(&pairs, &self.provider) {
                Ok(choice) => {
                    self.current.store(Arc::new(choice));
                    *self.pairs.lock() = pairs;
                    tracing::info!("reloaded the serving certificates");
                }
                Err(why) => {
                    tracing::warn!(%why, "reloading the serving certificates failed: the old ones stay in use");
                    refused = Some(pairs);
                }
            }
        }
    }
}

/// Reloads the pairs that have files; returns whether any changed.
async fn reload(pairs: &mut [Pair]) -> bool {
    let mut different = false;
    for pair in pairs {
        let Some((certificate, key)) = &pair.files else { continue };
        // a missing file is about to be replaced
        let (Ok(certificate), Ok(key)) = (tokio::fs::read(certificate).await, tokio::fs::read(key).await)
        else {
            continue;
        };
        if (&certificate, &key) != (&pair.certificate, &pair.key) {
            (pair.certificate, pair.key, different) = (certificate, key, true);
        }
    }
    different
}

impl CertificateIndex {
    fn new(pairs: &[Pair], provider: &CryptoProvider) -> Result<Self, ServeError> {
        let missing =
            || ServeError::Tls { subject: "server certificate", problem: "there is none".to_owned() };
        let (first, others) = pairs.split_first().ok_or_else(missing)?;
        let default = first.certified_key(provider)?;
        let mut by_name = HashMap::new();
        let mut certificates = Vec::new();
        for pair in others {
            let certified_key = pair.certified_key(provider)?;
            for name in &pair.names {
                by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| certified_key.clone());
            }
            if pair.names.is_empty() {
                let leaf = certified_key.cert.first().map(|leaf| auth::x509::names(leaf)).unwrap_or_default();
                certificates.extend(leaf.into_iter().map(|name| (name, certified_key.clone())));
            }
        }
        for (name, certified_key) in certificates {
            by_name.entry(name.to_ascii_lowercase()).or_insert(certified_key);
        }
        Ok(CertificateIndex { default, by_name })
    }

    fn of(&self, name: Option<&str>, local_ip: Option<IpAddr>) -> Arc<CertifiedKey> {
        let certificate = match name.map(str::to_ascii_lowercase) {
            Some(name) => self.by_name.get(&name).or_else(|| {
                let (_, rest) = name.split_once('.')?;
                self.by_name.get(&format!("*.{rest}"))
            }),
            None => local_ip.and_then(|ip| self.by_name.get(&ip.to_canonical().to_string())),
        };
        certificate.unwrap_or(&self.default).clone()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        if current.by_name.is_empty() {
            return Some(current.default.clone());
        }
        Some(current.of(hello.server_name(), LOCAL_IP.try_with(|ip| *ip).ok()))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}
