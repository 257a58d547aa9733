//! Certificates: the agent's own, and those of clients.
//!
//! A client certificate is verified after the handshake, so that a client with an invalid one gets a response.

use super::user::{CertificateUser, ReviewedUser};
use crate::identity::RotationState;
use env::World;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The certificates of the server.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// The certificate that the API server signs, instead of the others.
    pub signed: Option<watch::Receiver<RotationState>>,
    /// Certificate chain and key.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Where a certificate that the agent signs itself is kept.
    pub directory: PathBuf,
    /// Names and addresses in that certificate.
    pub hosts: Vec<String>,
    /// Authorities of client certificates.
    pub client_authorities: Option<PathBuf>,
    /// The oldest version, `VersionTLS13`; another text permits TLS 1.2.
    pub min_version: String,
    /// The permitted suites of TLS 1.2 by name; empty permits all. Those of TLS 1.3 are fixed.
    pub cipher_suites: Vec<String>,
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The cryptography of handshakes, and the versions.
fn handshakes(options: &TlsOptions) -> (Arc<CryptoProvider>, Vec<&'static SupportedProtocolVersion>) {
    let mut provider = rustls::crypto::ring::default_provider();
    if !options.cipher_suites.is_empty() {
        // a name of old leaves the hash out
        let is_named = |suite: &str| {
            options.cipher_suites.iter().any(|it| it == suite || format!("{it}_SHA256") == suite)
        };
        provider
            .cipher_suites
            .retain(|one| one.version() == &TLS13 || is_named(one.suite().as_str().unwrap_or_default()));
    }
    // without a suite of TLS 1.2 that version is refused
    let has_older = provider.cipher_suites.iter().any(|one| one.version() == &TLS12);
    let versions = match options.min_version == "VersionTLS13" || !has_older {
        true => vec![&TLS13],
        false => vec![&TLS13, &TLS12],
    };
    (Arc::new(provider), versions)
}

/// A value that is read from files, and again when they change.
struct Followed<T> {
    paths: Vec<PathBuf>,
    current: Mutex<(Vec<Option<SystemTime>>, Arc<T>)>,
    read: fn(&[PathBuf]) -> io::Result<T>,
}

impl<T> Followed<T> {
    fn new(paths: Vec<PathBuf>, read: fn(&[PathBuf]) -> io::Result<T>) -> io::Result<Self> {
        let current = Mutex::new((times(&paths), Arc::new(read(&paths)?)));
        Ok(Followed { paths, current, read })
    }

    /// The current value; files that cannot be read leave it as it is.
    fn get(&self) -> Arc<T> {
        let now = times(&self.paths);
        let mut current = self.current.lock();
        if current.0 != now {
            current.0 = now;
            match (self.read)(&self.paths) {
                Ok(value) => current.1 = Arc::new(value),
                Err(why) => tracing::warn!(%why, "certificates cannot be read again"),
            }
        }
        current.1.clone()
    }
}

fn times(paths: &[PathBuf]) -> Vec<Option<SystemTime>> {
    paths.iter().map(|path| std::fs::metadata(path).and_then(|it| it.modified()).ok()).collect()
}

/// The server's side of TLS.
pub struct Tls {
    pub config: Arc<ServerConfig>,
    clients: Option<Arc<Followed<RootCertStore>>>,
    world: World,
}

impl Tls {
    pub fn new(options: &TlsOptions, world: &World) -> io::Result<Self> {
        let own = match (&options.signed, &options.files) {
            (Some(signed), _) => OwnCertificate::Signed(signed.clone()),
            (None, Some((certificate, key))) => {
                let files = vec![certificate.clone(), key.clone()];
                OwnCertificate::Files(Followed::new(files, read_pair)?)
            }
            (None, None) => {
                let (certificate, key) = self_signed(&options.directory, &options.hosts)?;
                OwnCertificate::Files(Followed::new(vec![certificate, key], read_pair)?)
            }
        };
        let clients = options.client_authorities.clone();
        let clients = clients.map(|file| Followed::new(vec![file], read_roots)).transpose()?.map(Arc::new);
        let (crypto, versions) = handshakes(options);
        let builder = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&versions)
            .map_err(invalid)?
            .with_client_cert_verifier(Arc::new(AnyClient(provider())));
        let mut config = builder.with_cert_resolver(Arc::new(own));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), clients, world: world.clone() })
    }

    /// The user of the certificates that a client has presented.
    pub fn user(&self, chain: &[CertificateDer<'_>]) -> CertificateUser {
        let (Some((leaf, rest)), Some(clients)) = (chain.split_first(), &self.clients) else {
            return CertificateUser::Absent;
        };
        let since = self.world.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let verifier = WebPkiClientVerifier::builder_with_provider(clients.get(), provider()).build();
        let is_valid = verifier.is_ok_and(|verifier| {
            verifier.verify_client_cert(leaf, rest, UnixTime::since_unix_epoch(since)).is_ok()
        });
        match subject(leaf).filter(|_| is_valid) {
            Some(user) => CertificateUser::Valid(user),
            None => CertificateUser::Invalid,
        }
    }
}

/// The user that a certificate names.
fn subject(certificate: &CertificateDer<'_>) -> Option<ReviewedUser> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().last()?.as_str().ok()?.to_owned();
    let groups = parsed.subject().iter_organization().filter_map(|it| it.as_str().ok());
    let groups = groups.map(str::to_owned).chain(["system:authenticated".to_owned()]).collect();
    Some(ReviewedUser { name, groups, ..ReviewedUser::default() })
}

fn read_roots(paths: &[PathBuf]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for path in paths {
        for certificate in CertificateDer::pem_file_iter(path).map_err(invalid)? {
            roots.add(certificate.map_err(invalid)?).map_err(invalid)?;
        }
    }
    Ok(roots)
}

fn read_pair(paths: &[PathBuf]) -> io::Result<CertifiedKey> {
    let [certificate, key] = paths else { return Err(invalid("a certificate and a key are needed")) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).map_err(invalid)?.collect();
    let key = PrivateKeyDer::from_pem_file(key).map_err(invalid)?;
    let key = provider().key_provider.load_private_key(key).map_err(invalid)?;
    Ok(CertifiedKey::new(chain.map_err(invalid)?, key))
}

/// The certificate that the agent signed itself, made if it is absent.
fn self_signed(directory: &Path, hosts: &[String]) -> io::Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (directory.join("kubelet.crt"), directory.join("kubelet.key"));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let made = rcgen::generate_simple_self_signed(hosts.to_vec()).map_err(invalid)?;
    durable_file::replace(&certificate, made.cert.pem(), durable_file::READABLE)?;
    durable_file::replace(&key, made.signing_key.serialize_pem(), durable_file::PRIVATE)?;
    Ok((certificate, key))
}

/// The certificate of the server.
enum OwnCertificate {
    Files(Followed<CertifiedKey>),
    /// One that the API server signs; handshakes fail until there is one.
    Signed(watch::Receiver<RotationState>),
}

impl std::fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnCertificate")
    }
}

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self {
            OwnCertificate::Files(files) => Some(files.get()),
            OwnCertificate::Signed(state) => state.borrow().current.as_ref().map(|it| it.certified.clone()),
        }
    }
}

/// Requests a client certificate, and accepts any whose key the client holds.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_suites_are_limited() {
        let check = |min_version: &str, suites: &[&str], expected: (usize, usize)| {
            let options = TlsOptions {
                min_version: min_version.to_owned(),
                cipher_suites: suites.iter().map(|&it| it.to_owned()).collect(),
                ..TlsOptions::default()
            };
            let (crypto, versions) = handshakes(&options);
            let older = crypto.cipher_suites.iter().filter(|one| one.version() == &TLS12).count();
            assert_eq!((versions.len(), older), expected, "{min_version} {suites:?}");
        };
        check("", &[], (2, 6));
        check("VersionTLS10", &[], (2, 6));
        check("VersionTLS13", &[], (1, 6));
        check("VersionTLS12", &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], (2, 1));
        check("VersionTLS12", &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], (2, 1));
        check("VersionTLS12", &["TLS_RSA_WITH_AES_128_CBC_SHA"], (1, 0));
    }
}
