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

fn asked() -> CertificateRequest {
    let pem = crate::csr::tests::request("jane", "a", &["x.example", "10.0.0.1"]);
    let mut asked = crate::csr::read_signed(pem.as_bytes()).unwrap();
    asked.subject.organizations.push("ü, and others".to_owned());
    asked
}

fn wanted<'a>(asked: &'a CertificateRequest, usages: &'a BTreeSet<&'a str>) -> CertificateTemplate<'a> {
    let serial = [0x80; 16];
    CertificateTemplate { asked, usages, now: NOW, not_before: NOW - 300, not_after: NOW + YEAR, serial }
}

#[test]
fn a_certificate_says_what_was_asked_for_and_is_signed() {
    let (pem, authority) = authority();
    let (asked, usages) = (asked(), BTreeSet::from(["client auth", "digital signature", "decipher only"]));
    let made = authority.issue(&wanted(&asked, &usages)).unwrap();
    let der = CertificateDer::from_pem_slice(made.as_bytes()).unwrap();
    let (rest, made) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let issuer = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, issuer) = X509Certificate::from_der(&issuer).unwrap();
    made.verify_signature(Some(issuer.public_key())).unwrap();
    assert_eq!(made.issuer(), issuer.subject());
    let text = |it: &x509_parser::x509::AttributeTypeAndValue<'_>| it.as_str().unwrap().to_owned();
    assert_eq!(made.subject().iter_common_name().map(text).collect::<Vec<_>>(), ["jane"]);
    let mut groups: Vec<_> = made.subject().iter_organization().map(text).collect();
    groups.sort();
    assert_eq!(groups, ["a", "ü, and others"]);
    assert_eq!(made.public_key().raw, asked.public_key);
    assert_eq!(made.validity().not_before.timestamp(), NOW - 300);
    assert_eq!(made.validity().not_after.timestamp(), NOW + YEAR);
    let usage = made.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && usage.decipher_only() && !usage.key_encipherment());
    let extended = made.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.client_auth && !extended.server_auth && !extended.any);
    assert!(!made.is_ca() && made.basic_constraints().unwrap().unwrap().critical);
    let names = made.subject_alternative_name().unwrap().unwrap();
    assert_eq!((names.value.general_names.len(), names.critical), (2, false));
    assert_eq!(made.tbs_certificate.raw_serial(), [&[0][..], &[0x80; 16]].concat());
}

#[test]
fn nothing_outlives_its_authority() {
    let (_, authority) = authority();
    let (asked, usages) = (asked(), BTreeSet::from(["client auth"]));
    let far = CertificateTemplate { not_after: NOW + 40 * YEAR, ..wanted(&asked, &usages) };
    assert_eq!(crate::csr::good_until(authority.issue(&far).unwrap().as_bytes()), Some(NOW + 2 * YEAR));
    let late = CertificateTemplate { now: NOW + 3 * YEAR, ..far };
    assert!(authority.issue(&late).unwrap_err().contains("expired"));
}

#[test]
fn usages_that_nobody_knows_are_refused() {
    assert!(Usages::read(&BTreeSet::from(["flying"])).is_err());
    let known = crate::csrsigning::certificate::BITS.iter().map(|(name, _)| *name);
    let others = OF_PURPOSE.iter().map(|(name, _)| *name).chain(ELSEWHERE.iter().map(|(name, _)| *name));
    let all = Usages::read(&known.chain(others).collect()).unwrap();
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
