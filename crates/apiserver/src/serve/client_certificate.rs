//! Verification of client certificates, by the current authorities.
//!
//! What always holds: a chain is verified once per connection and generation of the authorities, never per request. A
//! connection that was made under an authority that is trusted no longer loses its identity with the next request, and
//! gets it back with the authority.

use super::authorities::{Authorities, Bundle};
use arc_swap::{ArcSwap, Guard};
use auth::{AuthError, User};
use env::World;
use rustls_pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// The identity that a client certificate gives.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The user that it names, or why the client authorities do not verify it; `None` without a user name or without
    /// such authorities.
    pub user: Option<Result<Arc<User>, String>>,
    /// The common name of a proxy that may say who is calling, or why the authorities for proxies do not vouch for
    /// it; `None` where there are no such authorities, or none that an operator named.
    pub proxy: Option<Result<String, String>>,
    /// The last second, in Unix time, at which it is worth anything.
    pub until: i64,
}

/// The certificate that a client showed on a connection.
pub struct ClientCertificate {
    current: ArcSwap<Verified>,
    /// What it takes to verify the chain again; `None` where the authorities never change.
    again: Option<Again>,
}

/// What a certificate is worth by one generation of the authorities.
#[derive(Debug)]
pub struct Verified {
    pub certificate: Certificate,
    generation: u64,
}

struct Again {
    clients: Arc<Clients>,
    chain: Vec<CertificateDer<'static>>,
}

impl ClientCertificate {
    /// A certificate that is worth the same at any time.
    pub fn new(certificate: Certificate) -> Self {
        let verified = Verified { certificate, generation: 0 };
        ClientCertificate { current: ArcSwap::from_pointee(verified), again: None }
    }

    /// What it is worth by the authorities of the moment.
    pub fn current(&self) -> Guard<Arc<Verified>> {
        let current = self.current.load();
        let Some(again) = &self.again else { return current };
        if current.generation == again.clients.authorities.generation() {
            return current;
        }
        self.current.store(Arc::new(again.clients.verify(&again.chain)));
        self.current.load()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.current.load(), f)
    }
}

/// Checks and reads the certificates of clients.
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

    /// The certificate of a connection on which a client showed this chain.
    pub(super) fn identify(self: &Arc<Self>, chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
        if chain.is_empty() {
            return None;
        }
        let again = self.authorities.have_files().then(|| Again {
            clients: self.clone(),
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
        });
        Some(ClientCertificate { current: ArcSwap::from_pointee(self.verify(chain)), again })
    }

    /// What a chain is worth.
    fn verify(&self, chain: &[CertificateDer<'_>]) -> Verified {
        // read first: authorities that change meanwhile are asked with the next request
        let generation = self.authorities.generation();
        let Some((leaf, intermediates)) = chain.split_first() else {
            let certificate = Certificate { user: None, proxy: None, until: i64::MIN };
            return Verified { certificate, generation };
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
        // where the operator names no authority for proxies, being none of them is no fault
        let proxy = proxy.filter(|proxy| proxy.is_ok() || proxies.has_file());
        let until = auth::x509::valid_until(leaf).unwrap_or(i64::MIN);
        Verified { certificate: Certificate { user, proxy, until }, generation }
    }
}
