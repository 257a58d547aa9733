//! JWS in compact form: `header.claims.signature`, each in base64url without padding.
//!
//! ```text
//! {"alg":"ES256","kid":"..."} . {"iss":"...","sub":"...","aud":["..."],"exp":1,...} . r s
//! ```
//!
//! Invariants: the kind of key decides which algorithms are tried; the token only chooses among those. No
//! algorithm works without a key or with a shared one, so none can be chosen. Claims and validity times are
//! not checked here.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p521::ecdsa::signature::Verifier;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::sign::SigningKey;
use schema::{Value, decode, encode};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Rsa,
    P256,
    P384,
    P521,
}

/// The verification of a signature.
#[derive(Clone, Copy)]
enum Check {
    Ring(&'static dyn VerificationAlgorithm),
    /// ECDSA with SHA-512 on P-521, which the usual library does not support.
    P521,
}

impl Check {
    fn passes(self, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        match self {
            Check::Ring(algorithm) => {
                UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
            }
            Check::P521 => {
                let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(key);
                let signature = p521::ecdsa::Signature::from_slice(signature);
                key.is_ok_and(|key| signature.is_ok_and(|signature| key.verify(message, &signature).is_ok()))
            }
        }
    }
}

/// A signature algorithm with its JWS name.
struct Algorithm {
    name: &'static str,
    family: Family,
    check: Check,
}

const fn algorithm(
    name: &'static str,
    family: Family,
    verifier: &'static dyn VerificationAlgorithm,
) -> Algorithm {
    Algorithm { name, family, check: Check::Ring(verifier) }
}

/// The first algorithm of each kind of key is the one for signing.
static ALGORITHMS: [Algorithm; 9] = [
    algorithm("RS256", Family::Rsa, &signature::RSA_PKCS1_2048_8192_SHA256),
    algorithm("RS384", Family::Rsa, &signature::RSA_PKCS1_2048_8192_SHA384),
    algorithm("RS512", Family::Rsa, &signature::RSA_PKCS1_2048_8192_SHA512),
    algorithm("PS256", Family::Rsa, &signature::RSA_PSS_2048_8192_SHA256),
    algorithm("PS384", Family::Rsa, &signature::RSA_PSS_2048_8192_SHA384),
    algorithm("PS512", Family::Rsa, &signature::RSA_PSS_2048_8192_SHA512),
    algorithm("ES256", Family::P256, &signature::ECDSA_P256_SHA256_FIXED),
    algorithm("ES384", Family::P384, &signature::ECDSA_P384_SHA384_FIXED),
    Algorithm { name: "ES512", family: Family::P521, check: Check::P521 },
];

impl Family {
    fn signs_with(self) -> &'static str {
        match self {
            Family::Rsa => "RS256",
            Family::P256 => "ES256",
            Family::P384 => "ES384",
            Family::P521 => "ES512",
        }
    }

    /// The curve's name and the length of a number on it.
    fn curve(self) -> Option<(&'static str, usize)> {
        match self {
            Family::Rsa => None,
            Family::P256 => Some(("P-256", 32)),
            Family::P384 => Some(("P-384", 48)),
            Family::P521 => Some(("P-521", 66)),
        }
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it holds no private key: {0}")]
    Unreadable(String),
    #[error("its key is neither RSA of at least 2048 bits nor on the curves P-256 or P-384")]
    Unsupported,
    #[error("it holds no RSA key and none on the curves P-256, P-384 or P-521")]
    NoKeys,
}

/// A parsed token, untrusted until a key has [signed](Self::is_signed_by) it.
pub struct Compact<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    algorithm: String,
    /// The `kid` of the token.
    pub key_id: String,
    pub claims: Value,
}

impl<'a> Compact<'a> {
    /// Parses a token of this form.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
        let read = |part: &str| {
            let value = decode::json_untyped(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()?.value;
            matches!(value, Value::Map(_)).then_some(value)
        };
        let header = read(header)?;
        // critical extensions are not supported
        if header.at(&["crit"]).is_some() {
            return None;
        }
        let (algorithm, key_id) = (header.text(&["alg"]).to_owned(), header.text(&["kid"]).to_owned());
        let (claims, signature) = (read(claims)?, URL_SAFE_NO_PAD.decode(signature).ok()?);
        Some(Compact { signed, signature, algorithm, key_id, claims })
    }

    /// The `alg` of the token.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let fits = |it: &&Algorithm| it.family == key.family && it.name == self.algorithm;
        let algorithm = ALGORITHMS.iter().find(fits);
        algorithm.is_some_and(|it| it.check.passes(&key.bits, self.signed.as_bytes(), &self.signature))
    }
}

/// A key that verifies tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    family: Family,
    bits: Vec<u8>,
    /// The `kid` of the key.
    id: String,
}

impl PublicKey {
    /// All keys in a file: public keys, public halves of private keys, and keys of certificates. Other
    /// sections are ignored, as long as there is a key at all.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).filter_map(Result::ok);
        let keys: Vec<_> = sections.filter_map(|(kind, der)| Self::from_section(kind, &der)).collect();
        if keys.is_empty() { Err(KeyError::NoKeys) } else { Ok(keys) }
    }

    fn from_section(kind: SectionKind, der: &[u8]) -> Option<Self> {
        let private = match kind {
            SectionKind::PublicKey => return Self::from_spki(der),
            SectionKind::Certificate => return Self::from_spki(auth::x509::public_key(der)?),
            SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(der.into()),
            SectionKind::PrivateKey => PrivateKeyDer::Pkcs8(der.into()),
            SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(der.into()),
            _ => return None,
        };
        Self::from_spki(&any_supported_type(&private).ok()?.public_key()?)
    }

    /// From a SubjectPublicKeyInfo.
    pub fn from_spki(spki: &[u8]) -> Option<Self> {
        let (inner, _) = element(SEQUENCE, spki)?;
        let (algorithm, rest) = element(SEQUENCE, inner)?;
        let family = match algorithm {
            RSA => Family::Rsa,
            P256 => Family::P256,
            P384 => Family::P384,
            P521 => Family::P521,
            _ => return None,
        };
        let (bits, _) = element(BITS, rest)?;
        let (_, bits) = bits.split_first().filter(|(unused, _)| **unused == 0)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(spki));
        PublicKey { family, bits: bits.to_vec(), id }.checked()
    }

    /// From a JWK.
    pub fn from_jwk(key: &Value) -> Option<Self> {
        let number = |field: &str| URL_SAFE_NO_PAD.decode(key.text(&[field]).trim_end_matches('=')).ok();
        let (family, bits) = match (key.text(&["kty"]), key.text(&["crv"])) {
            ("RSA", _) => {
                let inner = [integer(&number("n")?), integer(&number("e")?)].concat();
                (Family::Rsa, wrapped(SEQUENCE, &inner))
            }
            ("EC", curve) => {
                let family = [Family::P256, Family::P384, Family::P521];
                let family =
                    family.into_iter().find(|it| it.curve().is_some_and(|(name, _)| name == curve))?;
                let (x, y) = (number("x")?, number("y")?);
                let (_, length) = family.curve()?;
                if x.len() != length || y.len() != length {
                    return None;
                }
                (family, [&[WHOLE_POINT][..], &x, &y].concat())
            }
            _ => return None,
        };
        PublicKey { family, bits, id: key.text(&["kid"]).to_owned() }.checked()
    }

    /// The key, if its numbers can be those of a key: one that no token passes is not accepted.
    fn checked(self) -> Option<Self> {
        self.numbers().is_some().then_some(self)
    }

    /// Modulus and exponent, or the coordinates of the point.
    fn numbers(&self) -> Option<(&[u8], &[u8])> {
        let Some((_, length)) = self.family.curve() else {
            let (inner, _) = element(SEQUENCE, &self.bits)?;
            let (modulus, rest) = element(INTEGER, inner)?;
            let (exponent, _) = element(INTEGER, rest)?;
            return Some((positive(modulus)?, positive(exponent)?));
        };
        let (form, point) = self.bits.split_first()?;
        (*form == WHOLE_POINT && point.len() == 2 * length).then(|| point.split_at(length))
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm of the private half.
    pub fn algorithm(&self) -> &'static str {
        self.family.signs_with()
    }

    /// As a JWK.
    pub fn to_jwk(&self) -> Option<Value> {
        let mut out = Value::map();
        out.set(&["use"], "sig");
        let (first, second) = self.numbers()?;
        let (first, second) = (URL_SAFE_NO_PAD.encode(first), URL_SAFE_NO_PAD.encode(second));
        out.set(&["kid"], &*self.id);
        out.set(&["alg"], self.algorithm());
        if let Some((curve, _)) = self.family.curve() {
            out.set(&["kty"], "EC");
            out.set(&["crv"], curve);
            out.set(&["x"], first);
            out.set(&["y"], second);
        } else {
            out.set(&["kty"], "RSA");
            out.set(&["n"], first);
            out.set(&["e"], second);
        }
        Some(out)
    }
}

/// A signing key with its public half. Cheap to clone.
#[derive(Clone)]
pub struct Signer {
    private: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    public: PublicKey,
}

impl Signer {
    /// Parses the first private key in a file.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|why| KeyError::Unreadable(why.to_string()))?;
        let private = any_supported_type(&der).map_err(|_| KeyError::Unsupported)?;
        let spki = private.public_key().ok_or(KeyError::Unsupported)?;
        let public = PublicKey::from_spki(&spki).ok_or(KeyError::Unsupported)?;
        let scheme = match public.family {
            Family::Rsa => SignatureScheme::RSA_PKCS1_SHA256,
            Family::P256 => SignatureScheme::ECDSA_NISTP256_SHA256,
            Family::P384 => SignatureScheme::ECDSA_NISTP384_SHA384,
            Family::P521 => return Err(KeyError::Unsupported),
        };
        private.choose_scheme(&[scheme]).ok_or(KeyError::Unsupported)?;
        Ok(Signer { private, scheme, public })
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a token with these claims.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let mut header = Value::map();
        header.set(&["alg"], self.public.algorithm());
        header.set(&["kid"], self.public.id());
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(encode::untyped(value));
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.private.choose_scheme(&[self.scheme])?.sign(signed.as_bytes()).ok()?;
        let signature = match self.public.family.curve() {
            Some((_, length)) => raw_signature(&signature, length)?,
            None => signature,
        };
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
/// Tag of an uncompressed point.
const WHOLE_POINT: u8 = 4;
/// rsaEncryption with NULL parameters.
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// id-ecPublicKey with the curve prime256v1.
const P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// id-ecPublicKey with the curve secp384r1.
const P384: &[u8] =
    &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
/// id-ecPublicKey with the curve secp521r1.
const P521: &[u8] =
    &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];

/// The content of a DER element with this tag, and the bytes after it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) =
            rest.split_at_checked(usize::from(first & 0x7f)).filter(|(it, _)| it.len() <= 4)?;
        length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = after;
    }
    if found == tag { rest.split_at_checked(length) } else { None }
}

fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let start = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    let digits = &length[start..];
    let mut out = vec![tag];
    if content.len() >= 0x80 {
        out.push(0x80 | digits.len() as u8);
    }
    out.extend_from_slice(digits);
    out.extend_from_slice(content);
    out
}

/// The digits of a positive DER integer, without leading zeros.
fn positive(content: &[u8]) -> Option<&[u8]> {
    let is_negative = content.first().is_some_and(|first| first & 0x80 != 0);
    let start = content.iter().position(|byte| *byte != 0).filter(|_| !is_negative)?;
    Some(&content[start..])
}

/// A non-negative DER integer.
fn integer(number: &[u8]) -> Vec<u8> {
    let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let padded = [&[0][..], &number[start..]].concat();
    let needed = padded.get(1).is_none_or(|first| first & 0x80 != 0);
    wrapped(INTEGER, if needed { &padded } else { &padded[1..] })
}

/// The two numbers of a DER signature, each padded to this length.
fn raw_signature(der: &[u8], length: usize) -> Option<Vec<u8>> {
    let (inner, _) = element(SEQUENCE, der)?;
    let (r, rest) = element(INTEGER, inner)?;
    let (s, _) = element(INTEGER, rest)?;
    let mut out = Vec::with_capacity(2 * length);
    for number in [r, s] {
        let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        let digits = &number[start..];
        out.resize(out.len() + length.checked_sub(digits.len())?, 0);
        out.extend_from_slice(digits);
    }
    Some(out)
}

#[cfg(test)]
mod tests;
