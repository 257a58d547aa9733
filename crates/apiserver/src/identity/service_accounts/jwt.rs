//! Signed tokens: `header.claims.signature`, each in base64 without padding.
//!
//! ```text
//! {"alg":"ES256","kid":"..."} . {"iss":"...","sub":"...","aud":["..."],"exp":1,...} . r s
//! ```
//!
//! What always holds: claims are given out only when the signature is that of the key over exactly these
//! bytes. What the claims say, and whether their time has come or gone, is for others to judge.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{AlgorithmIdentifier, PrivateKeyDer, SignatureVerificationAlgorithm, alg_id};
use rustls::sign::SigningKey;
use schema::{Value, decode, encode};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A private key that signs, and its public half that verifies.
pub struct Key {
    private: Arc<dyn SigningKey>,
    algorithm: &'static Algorithm,
    verifier: &'static dyn SignatureVerificationAlgorithm,
    /// The bits of the public key.
    public: Vec<u8>,
    /// Names the key among others.
    id: String,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    #[error("the key that signs tokens cannot be read: {0}")]
    Unreadable(String),
    #[error("the key that signs tokens is neither RSA nor on the curve P-256")]
    Unsupported,
}

/// A way of signing that clients know by name.
struct Algorithm {
    name: &'static str,
    scheme: SignatureScheme,
    public: AlgorithmIdentifier,
    signature: AlgorithmIdentifier,
    /// The signature is two numbers side by side, where the library has them in a structure.
    two_numbers: bool,
}

static ALGORITHMS: [Algorithm; 2] = [
    Algorithm {
        name: "ES256",
        scheme: SignatureScheme::ECDSA_NISTP256_SHA256,
        public: alg_id::ECDSA_P256,
        signature: alg_id::ECDSA_SHA256,
        two_numbers: true,
    },
    Algorithm {
        name: "RS256",
        scheme: SignatureScheme::RSA_PKCS1_SHA256,
        public: alg_id::RSA_ENCRYPTION,
        signature: alg_id::RSA_PKCS1_SHA256,
        two_numbers: false,
    },
];

impl Key {
    /// Reads a private key.
    pub fn from_pem(pem: &[u8]) -> Result<Self, BadKey> {
        let unreadable = |why: &dyn std::fmt::Display| BadKey::Unreadable(why.to_string());
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|why| unreadable(&why))?;
        let private = any_supported_type(&der).map_err(|why| unreadable(&why))?;
        let fits = |it: &&Algorithm| private.choose_scheme(&[it.scheme]).is_some();
        let algorithm = ALGORITHMS.iter().find(fits).ok_or(BadKey::Unsupported)?;
        let spki = private.public_key().ok_or(BadKey::Unsupported)?.to_vec();
        let same = |it: &&&'static dyn SignatureVerificationAlgorithm| {
            it.public_key_alg_id() == algorithm.public && it.signature_alg_id() == algorithm.signature
        };
        let verifiers = default_provider().signature_verification_algorithms.all;
        let verifier = *verifiers.iter().find(same).ok_or(BadKey::Unsupported)?;
        let public = public_bits(&spki).ok_or(BadKey::Unsupported)?.to_vec();
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(&spki));
        Ok(Key { private, algorithm, verifier, public, id })
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let mut header = Value::map();
        header.set(&["alg"], self.algorithm.name);
        header.set(&["kid"], self.id.as_str());
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(encode::untyped(value));
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.private.choose_scheme(&[self.algorithm.scheme])?.sign(signed.as_bytes()).ok()?;
        let signature = if self.algorithm.two_numbers { side_by_side(&signature)? } else { signature };
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// What the way of signing is called.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm.name
    }

    /// The public half, as those who verify tokens elsewhere read it.
    pub fn published(&self) -> Option<Value> {
        let mut out = Value::map();
        for (field, text) in [("use", "sig"), ("kid", &*self.id), ("alg", self.algorithm.name)] {
            out.set(&[field], text);
        }
        let number = |bytes: &[u8]| {
            let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
            URL_SAFE_NO_PAD.encode(&bytes[start..])
        };
        if self.algorithm.two_numbers {
            // one byte says that the two coordinates follow whole
            let (x, y) = self.public.get(1..)?.split_at_checked(NUMBER)?;
            out.set(&["kty"], "EC");
            out.set(&["crv"], "P-256");
            out.set(&["x"], URL_SAFE_NO_PAD.encode(x));
            out.set(&["y"], URL_SAFE_NO_PAD.encode(y));
        } else {
            let (inner, _) = element(SEQUENCE, &self.public)?;
            let (n, rest) = element(INTEGER, inner)?;
            let (e, _) = element(INTEGER, rest)?;
            out.set(&["kty"], "RSA");
            out.set(&["n"], number(n));
            out.set(&["e"], number(e));
        }
        Some(out)
    }

    /// The claims of a token that this key signed.
    pub fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let read = |part: &str| Some(decode::json_untyped(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()?.value);
        // a token must not choose how it is verified
        if read(header)?.text(&["alg"]) != self.algorithm.name {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let signature = if self.algorithm.two_numbers { structured(&signature)? } else { signature };
        self.verifier.verify_signature(&self.public, signed.as_bytes(), &signature).ok()?;
        read(claims)
    }
}

/// The content of a DER element with this tag, and what follows it.
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

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
/// The length of each of the two numbers.
const NUMBER: usize = 32;

/// The key within a public key's structure.
fn public_bits(spki: &[u8]) -> Option<&[u8]> {
    let (inner, _) = element(SEQUENCE, spki)?;
    let (_, rest) = element(SEQUENCE, inner)?;
    let (bits, _) = element(BITS, rest)?;
    bits.split_first().filter(|(unused, _)| **unused == 0).map(|(_, key)| key)
}

fn side_by_side(der: &[u8]) -> Option<Vec<u8>> {
    let (inner, _) = element(SEQUENCE, der)?;
    let (r, rest) = element(INTEGER, inner)?;
    let (s, _) = element(INTEGER, rest)?;
    let mut out = Vec::with_capacity(2 * NUMBER);
    for number in [r, s] {
        let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        let digits = &number[start..];
        out.resize(out.len() + NUMBER.checked_sub(digits.len())?, 0);
        out.extend_from_slice(digits);
    }
    Some(out)
}

fn structured(numbers: &[u8]) -> Option<Vec<u8>> {
    if numbers.len() != 2 * NUMBER {
        return None;
    }
    let mut inner = Vec::with_capacity(2 * NUMBER + 6);
    for number in numbers.chunks(NUMBER) {
        let start = number.iter().position(|byte| *byte != 0).unwrap_or(NUMBER - 1);
        let digits = &number[start..];
        // a number that begins with a set bit would be negative
        let padded = digits[0] & 0x80 != 0;
        inner.extend_from_slice(&[INTEGER, digits.len() as u8 + u8::from(padded)]);
        inner.extend(padded.then_some(0));
        inner.extend_from_slice(digits);
    }
    let mut out = vec![SEQUENCE, inner.len() as u8];
    out.extend(inner);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::from_pem(rcgen::KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap()
    }

    #[test]
    fn what_a_key_signed_it_knows_and_no_other_does() {
        let (mine, other) = (key(), key());
        let mut claims = Value::map();
        claims.set(&["sub"], "somebody");
        // signatures differ each time, in the lengths of their numbers too
        for _ in 0..50 {
            let token = mine.sign(&claims).unwrap();
            assert_eq!(mine.claims(&token), Some(claims.clone()));
            assert_eq!(other.claims(&token), None);
            let (head, _) = token.rsplit_once('.').unwrap();
            assert_eq!(mine.claims(&format!("{head}.AAAA")), None);
        }
    }

    #[test]
    fn the_public_half_is_published() {
        let key = key();
        let shown = key.published().unwrap();
        assert_eq!((shown.text(&["kty"]), shown.text(&["alg"])), ("EC", "ES256"));
        let length = |field: &str| URL_SAFE_NO_PAD.decode(shown.text(&[field])).unwrap().len();
        assert_eq!((length("x"), length("y")), (32, 32));
        assert_eq!(shown.at(&["d"]), None);
    }

    #[test]
    fn a_token_that_was_changed_is_no_token() {
        let mine = key();
        let token = mine.sign(&Value::map()).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(br#"{"sub":"root"}"#);
        let none = URL_SAFE_NO_PAD.encode(br#"{"alg":"none"}"#);
        for bad in [
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{none}.{}.", parts[1]),
            format!("{none}.{}.{}", parts[1], parts[2]),
            parts[0].to_owned(),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(mine.claims(&bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_keep_their_value_in_both_forms() {
        let mut numbers = [0u8; 64];
        (numbers[31], numbers[32]) = (1, 0x80);
        let der = structured(&numbers).unwrap();
        assert_eq!(side_by_side(&der).unwrap(), numbers);
        assert_eq!(structured(&numbers[1..]), None);
        assert_eq!(side_by_side(&der[1..]), None);
    }
}
