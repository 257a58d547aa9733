//! Certificates of the tests: one authority that the servers trust, and as many others as a test wants.

use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, SignatureAlgorithm,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::NOW;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A certificate, followed by those between it and its root, and its key, as PEM text.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    /// Sends the certificate to every server, also if the server does not list its issuer.
    pub(crate) fn resolver(&self) -> SingleCertAndKey {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key).unwrap()).into()
    }
}

/// Something that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The authority that every server of the tests trusts.
pub fn authority() -> &'static Authority {
    static CLUSTER: OnceLock<Authority> = OnceLock::new();
    CLUSTER.get_or_init(|| Authority::new("cluster"))
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = params(name, NOW - 60, YEAR);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's own certificate and key, for others to sign with.
    pub fn pair(&self) -> Pair {
        Pair { certificate: self.issuer.pem(), key: self.issuer.key().serialize_pem() }
    }

    /// A client's certificate: the common name is the user, the organization a group.
    pub fn client(&self, name: &str, group: &str) -> Pair {
        self.client_from(name, group, NOW - 60, YEAR)
    }

    /// The same, valid from a moment (Unix seconds) and for some time.
    pub fn client_from(&self, name: &str, group: &str, from: u64, valid: Duration) -> Pair {
        let mut params = params(name, from, valid);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    pub(crate) fn server(&self) -> Pair {
        self.server_named("server", "")
    }

    /// A server certificate with this name and group, valid by the real time too.
    pub fn server_named(&self, name: &str, group: &str) -> Pair {
        let mut params = params(name, NOW - 60, 50 * YEAR);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned).to_vec();
        params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A certificate of a client with further properties, for a key of a certain kind.
    pub fn client_with(
        &self,
        name: &str,
        algorithm: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let mut params = params(name, NOW - 60, YEAR);
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        change(&mut params);
        self.sign_for(KeyPair::generate_for(algorithm).unwrap(), &params)
    }

    /// An authority below this one.
    pub fn below(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = params(name, NOW - 60, YEAR);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::signed_by(params, key, &self.issuer).unwrap() }
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        self.sign_for(KeyPair::generate().unwrap(), params)
    }

    fn sign_for(&self, key: KeyPair, params: &CertificateParams) -> Pair {
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A certificate that vouches for itself.
pub fn self_signed(name: &str, group: &str) -> Pair {
    let mut params = params(name, NOW - 60, YEAR);
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Pair { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn params(name: &str, from: u64, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (UNIX_EPOCH + Duration::from_secs(from)).into();
    params.not_after = (UNIX_EPOCH + Duration::from_secs(from) + valid).into();
    params
}
