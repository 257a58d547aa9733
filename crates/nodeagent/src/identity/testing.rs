//! Certificates of tests.

use super::certificate::PemPair;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use std::time::{Duration, SystemTime};

pub fn self_signed(name: &str) -> PemPair {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    PemPair { certificate: made.cert.pem().into(), key: made.signing_key.serialize_pem().into() }
}

/// A certificate of a node that begins and ends at times since the epoch.
pub fn node_certificate(name: &str, begin: u64, end: u64) -> PemPair {
    let mut params = CertificateParams::default();
    let time = |seconds| (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into();
    (params.not_before, params.not_after) = (time(begin), time(end));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{name}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    PemPair { certificate: certificate.pem().into(), key: key.serialize_pem().into() }
}
