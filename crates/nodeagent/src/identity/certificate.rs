//! A certificate with its key, and what it says.

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate chain and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// Keeps keys out of logs.
impl std::fmt::Debug for PemPair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("PemPair(..)")
    }
}

pub(crate) fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl PemPair {
    /// The pair for TLS. An error if the key is not that of the certificate.
    pub fn certified(&self) -> io::Result<CertifiedKey> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(invalid)?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain.map_err(invalid)?, key, &provider).map_err(invalid)
    }

    /// What the first certificate says.
    pub fn facts(&self) -> io::Result<CertificateFacts> {
        CertificateFacts::read(&self.certificate)
    }
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateFacts {
    pub common_name: String,
    pub organizations: BTreeSet<String>,
    pub names: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
    /// The time of its validity, since the epoch.
    pub not_before: Duration,
    pub not_after: Duration,
}

impl CertificateFacts {
    /// Reads the first certificate of a text in PEM.
    pub fn read(pem: &[u8]) -> io::Result<Self> {
        let der = CertificateDer::from_pem_slice(pem).map_err(invalid)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(invalid)?;
        let subject = parsed.subject();
        let since_epoch = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let mut facts = CertificateFacts {
            common_name: subject
                .iter_common_name()
                .last()
                .and_then(|it| it.as_str().ok())
                .unwrap_or_default()
                .to_owned(),
            organizations: subject
                .iter_organization()
                .filter_map(|it| it.as_str().ok())
                .map(str::to_owned)
                .collect(),
            not_before: since_epoch(parsed.validity().not_before.timestamp()),
            not_after: since_epoch(parsed.validity().not_after.timestamp()),
            ..CertificateFacts::default()
        };
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        for name in alternatives.iter().flat_map(|it| &it.value.general_names) {
            match name {
                GeneralName::DNSName(name) => drop(facts.names.insert((*name).to_owned())),
                GeneralName::IPAddress(octets) => facts.addresses.extend(address(octets)),
                _ => {}
            }
        }
        Ok(facts)
    }

    pub fn is_expired(&self, now: SystemTime) -> bool {
        now >= UNIX_EPOCH + self.not_after
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}
