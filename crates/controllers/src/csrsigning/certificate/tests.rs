use super::*;
use crate::csrsigning::authority::Authority;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

const NOW: i64 = 1_700_000_000;
const YEAR: i64 = 365 * 86_400;

fn authority() -> (String, Authority) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "the authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = OffsetDateTime::from_unix_timestamp(NOW - YEAR).unwrap();
    params.not_after = OffsetDateTime::from_unix_timestamp(NOW + 2 * YEAR).unwrap();
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let authority = Authority::new(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    (pem, authority)
}

fn request() -> CertificateRequest {
    let pem = crate::csr::tests::request("jane", "a", &["x.example", "10.0.0.1"]);
    let mut request = crate::csr::parse_signed(pem.as_bytes()).unwrap();
    request.subject.organizations.push("ü, and others".to_owned());
    request
}

fn template<'a>(request: &'a CertificateRequest, usages: &'a BTreeSet<&'a str>) -> CertificateTemplate<'a> {
    let serial = [0x80; 16];
    CertificateTemplate { request, usages, now: NOW, not_before: NOW - 300, not_after: NOW + YEAR, serial }
}

#[test]
fn a_certificate_has_the_requested_contents_and_is_signed() {
    let (pem, authority) = authority();
    let (request, usages) =
        (request(), BTreeSet::from(["client auth", "digital signature", "decipher only"]));
    let issued = authority.issue(&template(&request, &usages)).unwrap();
    let der = CertificateDer::from_pem_slice(issued.as_bytes()).unwrap();
    let (rest, issued) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let issuer = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, issuer) = X509Certificate::from_der(&issuer).unwrap();
    issued.verify_signature(Some(issuer.public_key())).unwrap();
    assert_eq!(issued.issuer(), issuer.subject());
    let text = |it: &x509_parser::x509::AttributeTypeAndValue<'_>| it.as_str().unwrap().to_owned();
    assert_eq!(issued.subject().iter_common_name().map(text).collect::<Vec<_>>(), ["jane"]);
    let mut groups: Vec<_> = issued.subject().iter_organization().map(text).collect();
    groups.sort();
    assert_eq!(groups, ["a", "ü, and others"]);
    assert_eq!(issued.public_key().raw, request.public_key);
    assert_eq!(issued.validity().not_before.timestamp(), NOW - 300);
    assert_eq!(issued.validity().not_after.timestamp(), NOW + YEAR);
    let usage = issued.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && usage.decipher_only() && !usage.key_encipherment());
    let extended = issued.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.client_auth && !extended.server_auth && !extended.any);
    assert!(!issued.is_ca() && issued.basic_constraints().unwrap().unwrap().critical);
    let names = issued.subject_alternative_name().unwrap().unwrap();
    assert_eq!((names.value.general_names.len(), names.critical), (2, false));
    assert_eq!(issued.tbs_certificate.raw_serial(), [&[0][..], &[0x80; 16]].concat());
}

#[test]
fn nothing_outlives_its_authority() {
    let (_, authority) = authority();
    let (request, usages) = (request(), BTreeSet::from(["client auth"]));
    let far = CertificateTemplate { not_after: NOW + 40 * YEAR, ..template(&request, &usages) };
    assert_eq!(crate::csr::expiry(authority.issue(&far).unwrap().as_bytes()), Some(NOW + 2 * YEAR));
    let late = CertificateTemplate { now: NOW + 3 * YEAR, ..far };
    assert!(authority.issue(&late).unwrap_err().contains("expired"));
}

#[test]
fn unknown_usages_are_refused() {
    assert!(Usages::parse(&BTreeSet::from(["flying"])).is_err());
    let known = crate::csrsigning::certificate::BITS.iter().map(|(name, _)| *name);
    let others = EXTENDED.iter().map(|(name, _)| *name).chain(OTHER_EXTENDED.iter().map(|(name, _)| *name));
    let all = Usages::parse(&known.chain(others).collect()).unwrap();
    assert_eq!(all.bits(), Some((vec![0xff, 0x80], 9)));
    assert_eq!(all.purposes.len(), 12);
}

#[test]
fn keys_must_fit() {
    let (pem, _) = authority();
    let other = KeyPair::generate().unwrap().serialize_pem();
    let why = Authority::new(pem.as_bytes(), other.as_bytes()).err().unwrap();
    assert!(why.contains("does not belong"), "{why}");
    assert!(Authority::new(b"", other.as_bytes()).is_err());
    assert!(Authority::new(pem.as_bytes(), b"").is_err());
}
