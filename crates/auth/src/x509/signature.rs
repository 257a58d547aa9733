//! Certificate signatures and supported keys.
//!
//! Invariants: unsafe digests (MD5, SHA-1) are rejected. RSA keys have 2,048 to 8,192 bits.

use p521::ecdsa::signature::hazmat::PrehashVerifier;
use p521::ecdsa::{Signature, VerifyingKey};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_SHA1WITHRSA,
    OID_SHA1_WITH_RSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
    OID_SIG_ED25519, Oid,
};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// The octets of a number on the curve P-521.
const P521_OCTETS: usize = 66;

/// Whether signatures of the certificate's key can be verified.
pub(super) fn has_supported_key(certificate: &X509Certificate<'_>) -> bool {
    let key = certificate.public_key();
    if key.algorithm.algorithm == OID_SIG_ED25519 {
        return true;
    }
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => (2048..=8192).contains(&bits(rsa.modulus)),
        _ => has_curve(key, &[OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521]),
    }
}

/// The bits of a number, without leading zeros.
fn bits(number: &[u8]) -> usize {
    let digits = number.iter().skip_while(|digit| **digit == 0);
    let first = number.iter().find(|digit| **digit != 0).map_or(8, |digit| digit.leading_zeros() as usize);
    (digits.count() * 8).saturating_sub(first)
}

fn has_curve(key: &SubjectPublicKeyInfo<'_>, curves: &[Oid<'_>]) -> bool {
    let curve = key.algorithm.parameters.as_ref().and_then(|it| it.as_oid().ok());
    key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve.is_some_and(|it| curves.contains(&it))
}

/// Whether the certificate is signed by the key of `issuer`.
pub(super) fn is_signed_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let algorithm = &certificate.signature_algorithm.algorithm;
    let is_consistent = certificate.signature_algorithm == certificate.tbs_certificate.signature;
    if !is_consistent || *algorithm == OID_PKCS1_SHA1WITHRSA || *algorithm == OID_SHA1_WITH_RSA {
        return false;
    }
    if !has_curve(issuer.public_key(), &[OID_NIST_EC_P521]) {
        return certificate.verify_signature(Some(issuer.public_key())).is_ok();
    }
    let signed: &[u8] = certificate.tbs_certificate.as_ref();
    let digest = match algorithm {
        it if *it == OID_SIG_ECDSA_WITH_SHA256 => Sha256::digest(signed).to_vec(),
        it if *it == OID_SIG_ECDSA_WITH_SHA384 => Sha384::digest(signed).to_vec(),
        it if *it == OID_SIG_ECDSA_WITH_SHA512 => Sha512::digest(signed).to_vec(),
        _ => return false,
    };
    verify_p521(issuer.public_key(), &digest, &certificate.signature_value.data)
}

/// The state of the handshake signature with which a client proves possession of its certificate's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// Of a key type that TLS libraries support; to be verified by one.
    Usual,
    /// Of a key on the curve P-521, and valid.
    Valid,
    Invalid,
    /// The certificate cannot be parsed, or its key is not supported: [`Authorities`](super::Authorities) rejects
    /// it anyway, so the signature does not matter.
    Unsupported,
}

/// The digest of a handshake signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeDigest {
    Sha256,
    Sha384,
    Sha512,
}

impl HandshakeDigest {
    fn of(self, message: &[u8]) -> Vec<u8> {
        match self {
            HandshakeDigest::Sha256 => Sha256::digest(message).to_vec(),
            HandshakeDigest::Sha384 => Sha384::digest(message).to_vec(),
            HandshakeDigest::Sha512 => Sha512::digest(message).to_vec(),
        }
    }
}

/// Verifies a handshake signature of a kind that TLS libraries do not support. `digest` is `None` for a signature
/// scheme that P-521 keys do not use.
pub fn verify_handshake(
    leaf: &[u8],
    message: &[u8],
    signature: &[u8],
    digest: Option<HandshakeDigest>,
) -> Handshake {
    let Ok(([], certificate)) = X509Certificate::from_der(leaf) else { return Handshake::Unsupported };
    let key = certificate.public_key();
    if !has_supported_key(&certificate) {
        return Handshake::Unsupported;
    }
    if !has_curve(key, &[OID_NIST_EC_P521]) {
        return Handshake::Usual;
    }
    match digest.is_some_and(|digest| verify_p521(key, &digest.of(message), signature)) {
        true => Handshake::Valid,
        false => Handshake::Invalid,
    }
}

/// `signature` is in DER.
fn verify_p521(key: &SubjectPublicKeyInfo<'_>, digest: &[u8], signature: &[u8]) -> bool {
    let key = VerifyingKey::from_sec1_bytes(&key.subject_public_key.data);
    let (Ok(key), Ok(signature)) = (key, Signature::from_der(signature)) else { return false };
    // a digest shorter than the curve's numbers is padded with leading zeros
    let mut padded = [0; P521_OCTETS];
    let Some(zeros) = P521_OCTETS.checked_sub(digest.len()) else { return false };
    padded[zeros..].copy_from_slice(digest);
    key.verify_prehash(&padded, &signature).is_ok()
}
