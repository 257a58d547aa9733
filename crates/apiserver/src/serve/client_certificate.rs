//! Verification of client certificates, by the current authorities.
//!
//! Invariant: a chain is verified once per connection and generation of the authorities, never per request. A
//! connection whose authority is no longer trusted loses its identity with the next request, and regains it
//! if the authority returns.

use super::authorities::{Authorities, Bundle};
use arc_swap::{ArcSwap, Guard};
use auth::{AuthError, User};
use env::World;
use rustls_pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// The identity in a client certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The user that it names, or why the client authorities do not verify it; `None` without a user name or without
    /// such authorities.
    pub user: Option<Result<Arc<User>, String>>,
    /// The common name of a front proxy, or why the proxy authorities do not verify it; `None` without proxy
    /// authorities, or without a configured file of them.
    pub proxy: Option<Result<String, String>>,
    /// End of validity, in Unix seconds.
    pub until: i64,
}

/// The certificate that a client presented on a connection.
pub struct ClientCertificate {
    current: ArcSwap<Verification>,
    /// Inputs to verify the chain again; `None` where the authorities never change.
    reverification: Option<Reverification>,
}

/// The result of a verification by one generation of the authorities.
#[derive(Debug)]
pub struct Verification {
    pub certificate: Certificate,
    generation: u64,
}

struct Reverification {
    clients: Arc<Clients>,
    chain: Vec<CertificateDer<'static>>,
}

impl ClientCertificate {
    /// A certificate whose verification never changes.
    pub fn new(certificate: Certificate) -> Self {
        let verified = Verification { certificate, generation: 0 };
        ClientCertificate { current: ArcSwap::from_pointee(verified), reverification: None }
    }

    /// The verification by the current authorities.
    pub fn current(&self) -> Guard<Arc<Verification>> {
        let current = self.current.load();
        let Some(reverification) = &self.reverification else { return current };
        if current.generation == reverification.clients.authorities.generation() {
            return current;
        }
        self.current.store(Arc::new(reverification.clients.verify(&reverification.chain)));
        self.current.load()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.current.load(), f)
    }
}

/// Verifies client certificates.
pub(super) struct Clients {
    authorities: Arc<Authorities>,
    world: World,
}

impl Clients {
    pub(super) fn new(authorities: Arc<Authorities>, world: World) -> Self {
        Clients { authorities, world }
    }

    pub(super) fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// The certificate of a connection on which a client presented this chain.
    pub(super) fn identify(self: &Arc<Self>, chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
        if chain.is_empty() {
            return None;
        }
        let reverification = self.authorities.have_files().then(|| Reverification {
            clients: self.clone(),
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
        });
        Some(ClientCertificate { current: ArcSwap::from_pointee(self.verify(chain)), reverification })
    }

    /// Verifies a chain.
    fn verify(&self, chain: &[CertificateDer<'_>]) -> Verification {
        // read first: if the authorities change meanwhile, the next request verifies again
        let generation = self.authorities.generation();
        let Some((leaf, intermediates)) = chain.split_first() else {
            let certificate = Certificate { user: None, proxy: None, until: i64::MIN };
            return Verification { certificate, generation };
        };
        let intermediates: Vec<&[u8]> = intermediates.iter().map(|it| it.as_ref()).collect();
        let now = env::unix_seconds(&self.world);
        let verify = |bundle: &Bundle| {
            bundle.authorities.verify(leaf, &intermediates, now).map_err(|why| why.to_string())
        };
        let user = self.authorities.clients.current().and_then(|bundle| match verify(&bundle) {
            Ok(()) => match auth::x509::identify(leaf) {
                Ok(user) => Some(Ok(Arc::new(user))),
                Err(AuthError::NoCommonName) => None,
                Err(reason) => Some(Err(reason.to_string())),
            },
            Err(reason) => Some(Err(reason)),
        });
        let proxies = &self.authorities.proxies;
        let proxy = proxies.current().map(|bundle| {
            verify(&bundle)?;
            auth::x509::common_name(leaf).ok_or_else(|| "the certificate cannot be read".to_owned())
        });
        // without configured proxy authorities, a certificate of no proxy is no error
        let proxy = proxy.filter(|proxy| proxy.is_ok() || proxies.has_file());
        let until = auth::x509::valid_until(leaf).unwrap_or(i64::MIN);
        Verification { certificate: Certificate { user, proxy, until }, generation }
    }
}
