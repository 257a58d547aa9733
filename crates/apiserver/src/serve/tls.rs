//! TLS configuration of a listener: versions, cipher suites, client certificates.
//! Serving certificates are chosen in [`certificates`](super::certificates).
//!
//! Invariants: only TLS 1.2 and 1.3; a client certificate is requested whenever there is an authority to
//! verify it, never required; the client has proved possession of the key of the certificate that it
//! presents. The chain is verified after the handshake, also on resumed sessions
//! ([`client_certificate`](super::client_certificate)), by the clock of the [`World`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use auth::x509::{Handshake, HandshakeDigest};
use env::World;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor};
use webpki::RawPublicKeyEntity;

use super::authorities::{Authorities, AuthorityFile};
use super::certificates::{CHECK_INTERVAL, Certificates, Pair};
use super::client_certificate::Clients;
use super::error::ServeError;
use super::pem::problem;

/// Certificates and keys as PEM text.
#[derive(Clone, Default)]
pub struct TlsMaterial {
    /// The server's certificate, followed by its intermediates.
    pub certificate_chain: Vec<u8>,
    /// The key of the first of them.
    pub private_key: Vec<u8>,
    /// The authorities for clients; without them client certificates are ignored.
    pub client_authorities: Option<Vec<u8>>,
    /// The authorities for front proxies; without them no front proxy is trusted.
    pub proxy_authorities: Option<Vec<u8>>,
    /// The file of client authorities, to be reloaded when it changes.
    pub client_authority_file: Option<AuthorityFile>,
    /// The file of proxy authorities, to be reloaded when it changes.
    pub proxy_authority_file: Option<AuthorityFile>,
    /// The files of certificate and key, to be reloaded when they change.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Further certificates, for certain SNI names.
    pub by_name: Vec<Pair>,
    /// Whether TLS 1.3 is the minimum version.
    pub newest_only: bool,
    /// The permitted cipher suites; all of a version of which none is named. Empty permits all.
    pub suites: Vec<CipherSuite>,
}

/// The TLS state of one listener.
pub(super) struct Tls {
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) clients: Arc<Clients>,
    certificates: Arc<Certificates>,
    world: World,
}

impl Tls {
    pub(super) fn new(material: &TlsMaterial, world: World) -> Result<Self, ServeError> {
        let provider = Arc::new(provider(material));
        let authorities = Arc::new(Authorities::new(
            (&material.client_authorities, &material.client_authority_file),
            (&material.proxy_authorities, &material.proxy_authority_file),
        )?);
        let default = Pair {
            certificate: material.certificate_chain.clone(),
            key: material.private_key.clone(),
            files: material.files.clone(),
            names: Vec::new(),
        };
        let pairs = std::iter::once(default).chain(material.by_name.iter().cloned()).collect();
        let certificates = Arc::new(Certificates::new(pairs, provider.clone())?);
        let handshakes = Handshakes {
            provider,
            newest_only: material.newest_only,
            world: world.clone(),
            certificates: certificates.clone(),
            ticketer: rustls::crypto::ring::Ticketer::new().map_err(problem("session tickets"))?,
        };
        let acceptor = Arc::new(Acceptor::new(handshakes, authorities.clone())?);
        let clients = Arc::new(Clients::new(authorities, world.clone()));
        Ok(Self { acceptor, clients, certificates, world })
    }

    /// The current authorities.
    pub(super) fn authorities(&self) -> Arc<Authorities> {
        self.clients.authorities().clone()
    }

    /// Reloads certificates and authorities when their files change, without end.
    pub(super) fn follow_files(&self) -> impl Future<Output = ()> + Send + use<> {
        let (certificates, authorities) = (self.certificates.clone(), self.authorities());
        let (acceptor, world) = (self.acceptor.clone(), self.world.clone());
        async move {
            let renew = || acceptor.renew();
            tokio::join!(certificates.follow(&world), authorities.follow(&world, CHECK_INTERVAL, renew));
        }
    }
}

/// The configuration that all handshakes of a listener share.
struct Handshakes {
    provider: Arc<CryptoProvider>,
    newest_only: bool,
    world: World,
    certificates: Arc<Certificates>,
    ticketer: Arc<dyn ProducesTickets>,
}

impl Handshakes {
    fn config(&self, authorities: &Authorities) -> Result<ServerConfig, ServeError> {
        let versions: &[_] = if self.newest_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let clock = Arc::new(Clock(self.world.clone()));
        let builder = ServerConfig::builder_with_details(self.provider.clone(), clock)
            .with_protocol_versions(versions)
            .map_err(problem("TLS versions and cipher suites"))?;
        let builder = match AnyChain::new(authorities, &self.provider) {
            Some(verifier) => builder.with_client_cert_verifier(Arc::new(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(self.certificates.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = self.ticketer.clone();
        config.send_tls13_tickets = 1;
        Ok(config)
    }
}

/// Accepts connections by the current configuration.
pub(super) struct Acceptor {
    handshakes: Handshakes,
    authorities: Arc<Authorities>,
    current: ArcSwap<ServerConfig>,
}

impl Acceptor {
    fn new(handshakes: Handshakes, authorities: Arc<Authorities>) -> Result<Self, ServeError> {
        let current = ArcSwap::from_pointee(handshakes.config(&authorities)?);
        Ok(Acceptor { handshakes, authorities, current })
    }

    pub(super) fn accept(&self, tcp: TcpStream) -> Accept<TcpStream> {
        TlsAcceptor::from(self.current.load_full()).accept(tcp)
    }

    /// Rebuilds the configuration: it names the accepted authorities, by which clients choose a certificate.
    fn renew(&self) {
        match self.handshakes.config(&self.authorities) {
            Ok(config) => self.current.store(Arc::new(config)),
            Err(why) => tracing::warn!(%why, "cannot announce changed authorities to clients"),
        }
    }
}

/// All supported cipher suites.
pub fn suites() -> Vec<CipherSuite> {
    rustls::crypto::ring::default_provider().cipher_suites.iter().map(|one| one.suite()).collect()
}

/// The cryptography of handshakes.
fn provider(material: &TlsMaterial) -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_permitted = |one: &SupportedCipherSuite| material.suites.contains(&one.suite());
    let all = provider.cipher_suites.clone();
    let named = |version| all.iter().any(|one| one.version() == version && is_permitted(one));
    // naming only TLS 1.2 suites does not disable TLS 1.3
    let (older, newer) = (named(&TLS12), named(&TLS13));
    if older || newer {
        provider.cipher_suites.retain(|one| is_permitted(one) || one.version() == &TLS13 && !newer);
    }
    provider
}

struct Clock(World);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        self.0.now().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Accepts every chain in the handshake, so that a bad one can be answered with a 401. Possession of the
/// leaf's key is still verified, by the signature over the handshake; a leaf whose key is not supported
/// passes without it, and [`Clients`] refuses it in every case.
#[derive(Debug)]
struct AnyChain {
    algorithms: WebPkiSupportedAlgorithms,
    /// The authorities that clients choose a certificate by.
    hints: Vec<DistinguishedName>,
}

impl AnyChain {
    /// `None` without any authority.
    fn new(authorities: &Authorities, provider: &CryptoProvider) -> Option<Self> {
        let bundles: Vec<_> = authorities.bundles().collect();
        let hints = bundles.iter().flat_map(|it| it.authorities.subjects());
        let hints = hints.map(|subject| DistinguishedName::from(subject.clone())).collect();
        let algorithms = provider.signature_verification_algorithms;
        (!bundles.is_empty()).then_some(AnyChain { algorithms, hints })
    }
}

/// Verifies signatures that the TLS library does not verify itself.
fn verify_otherwise(
    leaf: &[u8],
    message: &[u8],
    signed: &DigitallySignedStruct,
) -> Option<Result<HandshakeSignatureValid, rustls::Error>> {
    // up to TLS 1.2 a scheme names no curve
    let digest = match signed.scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 => Some(HandshakeDigest::Sha256),
        SignatureScheme::ECDSA_NISTP384_SHA384 => Some(HandshakeDigest::Sha384),
        SignatureScheme::ECDSA_NISTP521_SHA512 => Some(HandshakeDigest::Sha512),
        _ => None,
    };
    match auth::x509::verify_handshake(leaf, message, signed.signature(), digest) {
        Handshake::Usual => None,
        Handshake::Unsupported | Handshake::Valid => Some(Ok(HandshakeSignatureValid::assertion())),
        Handshake::Invalid => Some(Err(CertificateError::BadSignature.into())),
    }
}

impl ClientCertVerifier for AnyChain {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if let Some(verified) = verify_otherwise(leaf, message, signed) {
            return verified;
        }
        let bad = || rustls::Error::from(CertificateError::BadSignature);
        let key = auth::x509::public_key(leaf).ok_or_else(bad)?;
        let key = SubjectPublicKeyInfoDer::from(key);
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| bad())?;
        let matching = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        // a TLS 1.2 scheme names no curve, so several algorithms may match
        let mut algorithms = matching.map_or(&[][..], |(_, algorithms)| *algorithms).iter();
        let verified = algorithms.any(|it| key.verify_signature(*it, message, signed.signature()).is_ok());
        verified.then(HandshakeSignatureValid::assertion).ok_or_else(bad)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if let Some(verified) = verify_otherwise(leaf, message, signed) {
            return verified;
        }
        let key = auth::x509::public_key(leaf).ok_or(CertificateError::BadEncoding)?;
        let key = SubjectPublicKeyInfoDer::from(key);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}
