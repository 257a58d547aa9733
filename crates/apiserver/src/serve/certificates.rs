//! Which certificate a client is shown: by the name it asks for, else by the address it came to, else the one for
//! all. Certificates that were read from files are read again when these change.
//!
//! What always holds: a certificate and its key fit together, and there is one for everybody. What cannot be used
//! never takes the place of what can: while files are being replaced the old ones stay.
//!
//! Names beat wildcards; names that the operator gave beat those that stand in a certificate; of two that are equal
//! in this the first counts.

use super::error::ServeError;
use super::pem::{certificates, problem};
use arc_swap::ArcSwap;
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

/// How often files are looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The address that a client came to, while the certificate for it is chosen.
    pub(super) static CAME_TO: IpAddr;
}

/// A certificate with its key, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, followed by those between it and its root.
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    /// Where the two were read from, to be read again when they change.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Whom it is for: names, `*.names` and addresses. Those in the certificate if there are none.
    pub names: Vec<String>,
}

impl Pair {
    /// Whether certificate and key can be used together.
    pub fn check(&self) -> Result<(), String> {
        let provider = rustls::crypto::ring::default_provider();
        self.certified(&provider).map(drop).map_err(|why| why.to_string())
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, ServeError> {
        let chain = certificates("server certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(problem("server key"))?;
        let certified =
            CertifiedKey::from_der(chain, key, provider).map_err(problem("server certificate"))?;
        Ok(Arc::new(certified))
    }
}

/// The certificates of a listener.
pub(super) struct Certificates {
    current: ArcSwap<Choice>,
    /// The first is for everybody.
    pairs: Mutex<Vec<Pair>>,
    provider: Arc<CryptoProvider>,
}

/// Who is shown what.
struct Choice {
    everybody: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    pub fn new(pairs: Vec<Pair>, provider: Arc<CryptoProvider>) -> Result<Self, ServeError> {
        let current = ArcSwap::from_pointee(Choice::new(&pairs, &provider)?);
        Ok(Certificates { current, pairs: Mutex::new(pairs), provider })
    }

    /// Reads files again when they change, without end.
    pub async fn follow(&self) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        let mut refused = None;
        loop {
            every.tick().await;
            let mut pairs = self.pairs.lock().clone();
            if !read_again(&mut pairs).await || refused.as_ref() == Some(&pairs) {
                continue;
            }
            match Choice::new(&pairs, &self.provider) {
                Ok(choice) => {
                    self.current.store(Arc::new(choice));
                    *self.pairs.lock() = pairs;
                    tracing::info!("certificates were read anew");
                }
                Err(why) => {
                    tracing::warn!(%why, "changed certificates cannot be used: the old ones stay");
                    refused = Some(pairs);
                }
            }
        }
    }
}

/// Reads the files of the pairs that have some; says whether anything is different.
async fn read_again(pairs: &mut [Pair]) -> bool {
    let mut different = false;
    for pair in pairs {
        let Some((certificate, key)) = &pair.files else { continue };
        // a file that is gone for the moment is about to be replaced
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

impl Choice {
    fn new(pairs: &[Pair], provider: &CryptoProvider) -> Result<Self, ServeError> {
        let missing = || ServeError::Tls { what: "server certificate", problem: "there is none".to_owned() };
        let (first, others) = pairs.split_first().ok_or_else(missing)?;
        let everybody = first.certified(provider)?;
        let mut by_name = HashMap::new();
        let mut found = Vec::new();
        for pair in others {
            let certified = pair.certified(provider)?;
            for name in &pair.names {
                by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| certified.clone());
            }
            if pair.names.is_empty() {
                let leaf = certified.cert.first().map(|leaf| auth::x509::names(leaf)).unwrap_or_default();
                found.extend(leaf.into_iter().map(|name| (name, certified.clone())));
            }
        }
        for (name, certified) in found {
            by_name.entry(name.to_ascii_lowercase()).or_insert(certified);
        }
        Ok(Choice { everybody, by_name })
    }

    fn of(&self, name: Option<&str>, came_to: Option<IpAddr>) -> Arc<CertifiedKey> {
        let found = match name.map(str::to_ascii_lowercase) {
            Some(name) => self.by_name.get(&name).or_else(|| {
                let (_, rest) = name.split_once('.')?;
                self.by_name.get(&format!("*.{rest}"))
            }),
            None => came_to.and_then(|ip| self.by_name.get(&ip.to_canonical().to_string())),
        };
        found.unwrap_or(&self.everybody).clone()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        if current.by_name.is_empty() {
            return Some(current.everybody.clone());
        }
        Some(current.of(hello.server_name(), CAME_TO.try_with(|ip| *ip).ok()))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}
