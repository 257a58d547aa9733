//! TLS: what is spoken, and what is made of the client's certificate. Which one the server shows is in
//! [`certificates`](super::certificates).
//!
//! What always holds: only TLS 1.2 and 1.3; a client certificate is asked for whenever there is an authority
//! to check it against, never demanded; the client has proved that it holds the key of whatever certificate
//! it shows. The chain is verified after the handshake, also on resumed sessions, by the clock of the
//! [`World`] handed in.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use ambient::World;
use auth::AuthError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::TlsAcceptor;

use super::certificates::{Certificates, Pair};
use super::{Certificate, ServeError};

/// Certificates and keys as PEM text.
#[derive(Clone, Default)]
pub struct TlsMaterial {
    /// The server's certificate, followed by those between it and its root.
    pub certificate_chain: Vec<u8>,
    /// The key of the first of them.
    pub private_key: Vec<u8>,
    /// The authorities for clients; without any no certificate names anybody.
    pub client_authorities: Option<Vec<u8>>,
    /// The authorities for proxies that say who is calling; without any there are no such proxies.
    pub proxy_authorities: Option<Vec<u8>>,
    /// Where certificate and key were read from, to be read again when they change.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Further certificates, for clients that ask for certain names.
    pub by_name: Vec<Pair>,
    /// TLS 1.3 is the least that is spoken.
    pub newest_only: bool,
    /// The cipher suites to choose from; of a version of which none is named, all that are good. Empty is all.
    pub suites: Vec<CipherSuite>,
}

/// What the handshakes of one listener need.
pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    pub(super) clients: Clients,
    pub(super) certificates: Arc<Certificates>,
}

impl Tls {
    pub(super) fn new(material: &TlsMaterial, world: World) -> Result<Self, ServeError> {
        let provider = Arc::new(provider(material));
        let clients = Clients::new(material, &provider, world.clone())?;
        let everybody = Pair {
            certificate: material.certificate_chain.clone(),
            key: material.private_key.clone(),
            files: material.files.clone(),
            names: Vec::new(),
        };
        let pairs = std::iter::once(everybody).chain(material.by_name.iter().cloned()).collect();
        let certificates = Arc::new(Certificates::new(pairs, provider.clone())?);
        let versions: &[_] = if material.newest_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let builder = ServerConfig::builder_with_details(provider, Arc::new(Clock(world)))
            .with_protocol_versions(versions)
            .map_err(problem("TLS versions and cipher suites"))?;
        let builder = match clients.asking() {
            Some(asking) => builder.with_client_cert_verifier(Arc::new(asking)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(certificates.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(problem("session tickets"))?;
        config.send_tls13_tickets = 1;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), clients, certificates })
    }
}

/// The cipher suites that there are.
pub fn suites() -> Vec<CipherSuite> {
    rustls::crypto::ring::default_provider().cipher_suites.iter().map(|one| one.suite()).collect()
}

/// What handshakes are made with.
fn provider(material: &TlsMaterial) -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let wanted = |one: &SupportedCipherSuite| material.suites.contains(&one.suite());
    let all = provider.cipher_suites.clone();
    let named = |version| all.iter().any(|one| one.version() == version && wanted(one));
    // who names suites of the older version only does not mean to do without the newer one
    let (older, newer) = (named(&TLS12), named(&TLS13));
    if older || newer {
        provider.cipher_suites.retain(|one| wanted(one) || one.version() == &TLS13 && !newer);
    }
    provider
}

/// Checks and reads the certificates of clients.
pub(super) struct Clients {
    /// For those who speak for themselves.
    users: Option<Arc<dyn ClientCertVerifier>>,
    /// For proxies that speak for others.
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    clock: Clock,
}

impl Clients {
    fn new(material: &TlsMaterial, provider: &Arc<CryptoProvider>, world: World) -> Result<Self, ServeError> {
        let verifier =
            |what, pem: &Option<Vec<u8>>| -> Result<Option<Arc<dyn ClientCertVerifier>>, ServeError> {
                let Some(pem) = pem else { return Ok(None) };
                let mut roots = RootCertStore::empty();
                for authority in certificates(what, pem)? {
                    roots.add(authority).map_err(problem(what))?;
                }
                let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .allow_unauthenticated()
                    .build();
                Ok(Some(built.map_err(problem(what))?))
            };
        Ok(Self {
            users: verifier("client authority", &material.client_authorities)?,
            proxies: verifier("proxy authority", &material.proxy_authorities)?,
            clock: Clock(world),
        })
    }

    /// What asks for certificates, if there is anybody who could vouch for one.
    fn asking(&self) -> Option<AnyChain> {
        let verifier = self.users.as_ref().or(self.proxies.as_ref())?.clone();
        let both = [&self.users, &self.proxies];
        let hints = both.into_iter().flatten().flat_map(|it| it.root_hint_subjects().to_vec()).collect();
        Some(AnyChain { verifier, hints })
    }

    /// What a chain is worth.
    pub(super) fn identify(&self, chain: &[CertificateDer<'_>]) -> Option<Certificate> {
        let (leaf, intermediates) = chain.split_first()?;
        let verify = |verifier: &Arc<dyn ClientCertVerifier>| match self.clock.current_time() {
            None => Err("the clock stands before 1970".to_owned()),
            Some(now) => match verifier.verify_client_cert(leaf, intermediates, now) {
                Ok(_) => Ok(()),
                Err(reason) => Err(reason.to_string()),
            },
        };
        let user = self.users.as_ref().and_then(|verifier| match verify(verifier) {
            Ok(()) => match auth::x509::identify(leaf) {
                Ok(user) => Some(Ok(Arc::new(user))),
                Err(AuthError::NoCommonName) => None,
                Err(reason) => Some(Err(reason.to_string())),
            },
            Err(reason) => Some(Err(reason)),
        });
        let proxy = self.proxies.as_ref().map(|verifier| {
            verify(verifier)?;
            auth::x509::common_name(leaf).ok_or_else(|| "the certificate cannot be read".to_owned())
        });
        let until = auth::x509::valid_until(leaf).unwrap_or(i64::MIN);
        Some(Certificate { user, proxy, until })
    }
}

pub(super) fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(problem(what))?;
    match chain.is_empty() {
        true => Err(ServeError::Tls { what, problem: "no certificate in it".to_owned() }),
        false => Ok(chain),
    }
}

pub(super) fn problem<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> ServeError {
    move |error| ServeError::Tls { what, problem: error.to_string() }
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

/// Lets every chain pass the handshake, so that a bad one can be answered with a 401. That the client holds
/// the leaf's key is still verified, by the signature over the handshake.
#[derive(Debug)]
struct AnyChain {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Whose certificates are worth showing.
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyChain {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
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
        self.verifier.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
