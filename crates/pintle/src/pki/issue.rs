//! Issues certificates and checks existing ones.
//!
//! Invariants: keys are ECDSA P-256, authorities last ten years and other certificates one, never
//! longer than their authority. Everything is valid from an hour before it was made, for clocks that are off.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use env::World;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::certified_key::CertifiedKey;
use super::hosts::Hosts;
use super::store::CertificateStore;

const AUTHORITY_LIFE: Duration = Duration::days(3650);
const LEAF_LIFE: Duration = Duration::days(365);
const RENEW_BEFORE: Duration = Duration::days(30);
/// How many hexadecimal digits a token has.
const TOKEN_DIGITS: usize = 64;
const CLOCK_SKEW: Duration = Duration::hours(1);

/// The purpose of a certificate.
pub(super) enum Purpose<'a> {
    Server { name: &'a str, hosts: &'a Hosts },
    Client { name: &'a str, group: Option<&'a str> },
}

/// An authority that can issue.
pub(super) struct Authority {
    file: &'static str,
    pair: CertifiedKey,
    issuer: Issuer<'static, KeyPair>,
    expires: OffsetDateTime,
    world: World,
}

impl Authority {
    /// The authority on the shelf, or a new one.
    pub(super) fn obtain(
        store: &mut CertificateStore,
        file: &'static str,
        name: &str,
        world: &World,
    ) -> anyhow::Result<Self> {
        let key = Key::obtain(store, file)?;
        let certificate = match store.get(&crt(file)) {
            Some(present) => present,
            None => {
                let params = authority_params(name, world);
                let made = with_usual_size(|| Ok(params.self_signed(&key.pair)?))?.pem();
                store.put(crt(file), &made);
                made
            }
        };
        let read = ExistingCertificate::read(store, file, &certificate, &key)?;
        ensure!(
            read.expires > now(world),
            "{} expired on {}: remove the folder it is in to make a new cluster identity; every kubeconfig made \
             before is then void",
            store.path(&crt(file)),
            read.expires.date(),
        );
        let pair = CertifiedKey { certificate, key: key.pem };
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, key.pair)
            .with_context(|| unusable(&store.path(&crt(file)), "not the certificate of an authority"))?;
        Ok(Self { file, pair, issuer, expires: read.expires, world: world.clone() })
    }

    /// The certificate of that name, issued or renewed if needed.
    pub(super) fn leaf(
        &self,
        store: &mut CertificateStore,
        file: &str,
        purpose: &Purpose<'_>,
    ) -> anyhow::Result<CertifiedKey> {
        let key = Key::obtain(store, file)?;
        if let Some(certificate) = store.get(&crt(file)) {
            let existing = ExistingCertificate::read(store, file, &certificate, &key)?;
            existing.check_issuer(store, file, self)?;
            if existing.expires > now(&self.world) + RENEW_BEFORE && existing.serves(purpose) {
                return Ok(CertifiedKey { certificate, key: key.pem });
            }
            tracing::info!(file = store.path(&crt(file)), "renewing the certificate");
        }
        let mut params = leaf_params(purpose, &self.world)?;
        params.not_after = params.not_after.min(self.expires);
        let certificate = params.signed_by(&key.pair, &self.issuer)?.pem();
        store.put(crt(file), &certificate);
        Ok(CertifiedKey { certificate, key: key.pem })
    }

    pub(super) fn into_pair(self) -> CertifiedKey {
        self.pair
    }
}

/// The private and public key for signing tokens.
pub(super) fn signing_key(store: &mut CertificateStore, file: &str) -> anyhow::Result<String> {
    let name = format!("{file}.pub");
    let present = store.get(&name);
    let key = Key::obtain_beside(store, file, present.is_some().then_some(name.as_str()))?;
    if present.is_none() {
        store.put(name, &key.pair.public_key_pem());
    }
    Ok(key.pem)
}

/// The token on the shelf, or a new one of 256 random bits.
pub(super) fn token(store: &mut CertificateStore, file: &str, world: &World) -> anyhow::Result<String> {
    let name = format!("{file}.token");
    if let Some(present) = store.get(&name) {
        let token = present.trim().to_owned();
        let is_whole = token.len() >= TOKEN_DIGITS && token.bytes().all(|c| c.is_ascii_graphic());
        ensure!(
            is_whole,
            "{} is damaged (no token in it): restore it, or remove it to have one made anew",
            store.path(&name)
        );
        return Ok(token);
    }
    let mut bytes = [0; TOKEN_DIGITS / 2];
    world.fill(&mut bytes);
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    store.put(name, &token);
    Ok(token)
}

struct Key {
    pem: String,
    pair: KeyPair,
}

impl Key {
    fn obtain(store: &mut CertificateStore, file: &str) -> anyhow::Result<Self> {
        let certificate = crt(file);
        let has_certificate = store.get(&certificate).is_some();
        Self::obtain_beside(store, file, has_certificate.then_some(certificate.as_str()))
    }

    /// The stored key, or a new one; a missing key of a stored certificate is an error.
    fn obtain_beside(
        store: &mut CertificateStore,
        file: &str,
        other_half: Option<&str>,
    ) -> anyhow::Result<Self> {
        let name = format!("{file}.key");
        if let Some(pem) = store.get(&name) {
            let pair = KeyPair::from_pem(&pem).map_err(anyhow::Error::from);
            let pair = pair.with_context(|| unusable(&store.path(&name), "not a private key in PKCS #8"))?;
            return Ok(Self { pem, pair });
        }
        if let Some(other_half) = other_half {
            let (key, other_half) = (store.path(&name), store.path(other_half));
            bail!("{key} is missing: restore it, or remove {other_half} as well to have both made anew");
        }
        let pair = KeyPair::generate()?;
        let pem = pair.serialize_pem();
        store.put(name, &pem);
        Ok(Self { pem, pair })
    }
}

/// A certificate from the store.
struct ExistingCertificate {
    der: CertificateDer<'static>,
    expires: OffsetDateTime,
    hosts: BTreeSet<String>,
}

impl ExistingCertificate {
    fn read(store: &CertificateStore, file: &str, pem: &str, key: &Key) -> anyhow::Result<Self> {
        let path = store.path(&crt(file));
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| anyhow::anyhow!("{error}"))
            .with_context(|| unusable(&path, "not a certificate"))?;
        let (_, parsed) =
            X509Certificate::from_der(&der).with_context(|| unusable(&path, "not a certificate"))?;
        let fits = parsed.public_key().raw == key.pair.subject_public_key_info();
        ensure!(
            fits,
            "{path} does not belong to the key {}: restore the one that does, or remove both to have them made anew",
            store.path(&format!("{file}.key")),
        );
        let (expires, hosts) = (parsed.validity().not_after.to_datetime(), hosts_of(&parsed));
        Ok(Self { der, expires, hosts })
    }

    fn check_issuer(
        &self,
        store: &CertificateStore,
        file: &str,
        authority: &Authority,
    ) -> anyhow::Result<()> {
        let issued = || -> anyhow::Result<()> {
            let issuer = CertificateDer::from_pem_slice(authority.pair.certificate.as_bytes())?;
            let (_, issuer) = X509Certificate::from_der(&issuer)?;
            let (_, leaf) = X509Certificate::from_der(&self.der)?;
            Ok(leaf.verify_signature(Some(issuer.public_key()))?)
        };
        issued().ok().with_context(|| {
            let (leaf, issuer) = (store.path(&crt(file)), store.path(&crt(authority.file)));
            format!("{leaf} was not issued by {issuer}: remove it to have it issued anew")
        })
    }

    fn serves(&self, purpose: &Purpose<'_>) -> bool {
        match purpose {
            Purpose::Server { hosts, .. } => hosts.0.is_subset(&self.hosts),
            Purpose::Client { .. } => true,
        }
    }
}

fn hosts_of(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    };
    names.value.general_names.iter().filter_map(host).collect()
}

/// A certificate whose signature has the most frequent size: by chance it has one of three. Authorities are in objects, whose
/// size decides how many pieces a response has: with a seed and a manual clock it must be the same in every run.
fn with_usual_size(sign: impl Fn() -> anyhow::Result<Certificate>) -> anyhow::Result<Certificate> {
    const USUAL_BYTES: usize = 71;
    const ATTEMPTS: usize = 64;
    let has_usual_size = |made: &Certificate| {
        let parsed = X509Certificate::from_der(made.der());
        parsed.is_ok_and(|(_, it)| it.signature_value.data.len() == USUAL_BYTES)
    };
    let mut made = sign()?;
    for _ in 1..ATTEMPTS {
        if has_usual_size(&made) {
            break;
        }
        made = sign()?;
    }
    Ok(made)
}

fn authority_params(name: &str, world: &World) -> CertificateParams {
    let mut params = base_params(name, AUTHORITY_LIFE, world);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_params(purpose: &Purpose<'_>, world: &World) -> anyhow::Result<CertificateParams> {
    let (Purpose::Server { name, .. } | Purpose::Client { name, .. }) = purpose;
    let mut params = base_params(name, LEAF_LIFE, world);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    match purpose {
        Purpose::Server { hosts, .. } => {
            let hosts: Vec<String> = hosts.0.iter().cloned().collect();
            params.subject_alt_names = CertificateParams::new(hosts)?.subject_alt_names;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        Purpose::Client { group, .. } => {
            if let Some(group) = group {
                params.distinguished_name.push(DnType::OrganizationName, *group);
            }
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    Ok(params)
}

fn base_params(name: &str, life: Duration, world: &World) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now(world) - CLOCK_SKEW;
    params.not_after = now(world) + life;
    // two certificates of one key must differ
    params.serial_number = Some(SerialNumber::from(env::random_u64(world) >> 1));
    params
}

fn now(world: &World) -> OffsetDateTime {
    world.now().into()
}

fn crt(file: &str) -> String {
    format!("{file}.crt")
}

fn unusable(path: &str, problem: &str) -> String {
    format!(
        "{path} is damaged ({problem}): restore it, or remove it with its other half to have both made anew"
    )
}
