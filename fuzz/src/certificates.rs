//! Certificates, made once in a process. Keys are fixed, and the authority's signatures are those of Ed25519, which has no
//! random part: an input that changes a certificate means the same in every run.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

/// The time at which all are valid, in Unix seconds.
pub const NOW: u64 = 1_700_000_000;

/// Ed25519.
const AUTHORITY_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEILZpl5tJIJWUT9lvxz33Z/bn5Z5UHW3tgzm/WL1mWX6C
-----END PRIVATE KEY-----";

/// P-256, of servers and clients.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgzjf8YYHRtdMovhN/
hdDbygBH5Wek4n5yx9oYSswtEzmhRANCAASq2x0Iep1AjTF3RN9FyuZU6EXRsDx5
oEaPt5JStq7wF2j7o8+gejEY8DCy/jxvFx+8hU2lKXtfWh9rQeg5iSYp
-----END PRIVATE KEY-----";

pub static AUTHORITY: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = params("authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key(AUTHORITY_KEY)).expect("an authority")
});

/// A certificate of a client, in DER.
pub static CLIENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut params = params("somebody");
    params.distinguished_name.push(DnType::OrganizationName, "group");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.signed_by(&key(KEY), &*AUTHORITY).expect("a certificate").der().to_vec()
});

/// The server's certificate and key, in PEM.
pub static SERVER: LazyLock<(String, String)> = LazyLock::new(|| {
    let mut params = params("server");
    params.subject_alt_names =
        CertificateParams::new(vec!["localhost".to_owned()]).expect("a name").subject_alt_names;
    let key = key(KEY);
    (params.signed_by(&key, &*AUTHORITY).expect("a certificate").pem(), key.serialize_pem())
});

fn key(pem: &str) -> KeyPair {
    KeyPair::from_pem(pem).expect("a key")
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (UNIX_EPOCH + Duration::from_secs(NOW - 86_400)).into();
    params.not_after = (UNIX_EPOCH + Duration::from_secs(NOW + 365 * 86_400)).into();
    params
}
