//! The public cluster information: the address of the server and its authority, readable without credentials.
//!
//! A new node trusts it in two steps. The signature proves that a holder of the token signed it; all nodes that joined
//! with the same token can do that. So the authority must also have one of the pinned hashes, and only authorities that
//! have one are trusted.

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::hmac;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use schema::yaml::{self, Limits};
use std::collections::BTreeMap;
use std::fmt;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::token::BootstrapToken;

/// The name of the config map, and its key.
pub const NAME: &str = "cluster-info";
pub const CONTENT: &str = "kubeconfig";
/// The prefix of the keys of signatures; the token's id follows.
const SIGNATURE: &str = "jws-kubeconfig-";

/// The SHA-256 of an authority's public key (SubjectPublicKeyInfo), as `sha256:HEX`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthorityHash([u8; 32]);

impl AuthorityHash {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let bytes = text.trim().strip_prefix("sha256:").and_then(|digits| {
            let is_hex = digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit());
            let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
            is_hex.then(|| (0..32).map(byte).collect::<Option<Vec<u8>>>()).flatten()
        });
        let bytes = bytes.and_then(|it| <[u8; 32]>::try_from(it).ok());
        bytes.map(AuthorityHash).with_context(|| {
            format!("{text:?} is not the hash of an authority: it is sha256: and 64 hexadecimal digits")
        })
    }

    fn of(certificate: &CertificateDer<'_>) -> anyhow::Result<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).context("a certificate cannot be read")?;
        let hash = digest(&SHA256, parsed.tbs_certificate.subject_pki.raw);
        Ok(AuthorityHash(hash.as_ref().try_into().context("a hash has another length")?))
    }
}

impl fmt::Display for AuthorityHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for AuthorityHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The authorities in a PEM text, with their hashes.
pub fn authorities(pem: &[u8]) -> anyhow::Result<Vec<(AuthorityHash, CertificateDer<'static>)>> {
    let mut all = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.context("the authority is not in PEM")?;
        all.push((AuthorityHash::of(&certificate)?, certificate));
    }
    anyhow::ensure!(!all.is_empty(), "there is no authority");
    Ok(all)
}

/// The content for a server and its authorities: a kubeconfig without users.
pub fn content(server: &str, authorities: &[u8]) -> String {
    // a JSON string is a YAML string
    let server = serde_json::Value::from(server);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: \"\"
  cluster:
    certificate-authority-data: {}
    server: {server}
contexts: []
current-context: \"\"
users: []
preferences: {{}}
",
        STANDARD.encode(authorities)
    )
}

/// Why cluster information is not trusted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DistrustReason {
    #[error(
        "the cluster does not know the token {0}, or it has expired: make a new one with pintle token create on the \
         server"
    )]
    UnknownToken(String),
    #[error(
        "the cluster information is not signed with the token {0}: copy the token again; if it is right, another server \
         answers at this address"
    )]
    Signature(String),
    #[error(
        "the cluster's authority has the hash {found}, which is not the one of --discovery-token-ca-cert-hash: copy the \
         line of pintle token create again; if it is right, another server answers at this address"
    )]
    Authority { found: String },
    #[error("the cluster information cannot be read: {0}")]
    Content(String),
}

/// Checks the data of a config map, and returns the pinned authorities in PEM.
pub fn verify(
    data: &BTreeMap<String, String>,
    token: &BootstrapToken,
    pins: &[AuthorityHash],
) -> Result<String, DistrustReason> {
    let unreadable = |why: &dyn fmt::Display| DistrustReason::Content(why.to_string());
    let content = data.get(CONTENT).ok_or_else(|| unreadable(&"there is no kubeconfig in it"))?;
    let signature = data.get(&format!("{SIGNATURE}{}", token.id));
    let signature = signature.ok_or_else(|| DistrustReason::UnknownToken(token.id.clone()))?;
    if !is_signed(content, signature, token) {
        return Err(DistrustReason::Signature(token.id.clone()));
    }
    let config = yaml::parse(content.as_bytes(), Limits::default()).map_err(|why| unreadable(&why))?.value;
    let cluster = config.items(&["clusters"]).first().and_then(|it| it.at(&["cluster"]));
    let encoded = cluster.map(|it| it.text(&["certificate-authority-data"])).unwrap_or_default();
    let pem = STANDARD.decode(encoded).map_err(|why| unreadable(&why))?;
    let all = authorities(&pem).map_err(|why| unreadable(&format!("{why:#}")))?;
    let pinned: Vec<_> = all.iter().filter(|(hash, _)| pins.contains(hash)).collect();
    if pinned.is_empty() {
        let found: Vec<_> = all.iter().map(|(hash, _)| hash.to_string()).collect();
        return Err(DistrustReason::Authority { found: found.join(", ") });
    }
    Ok(pinned.iter().map(|(_, certificate)| to_pem(certificate)).collect())
}

/// Checks a JSON web signature with detached content: `header..signature`.
fn is_signed(content: &str, signature: &str, token: &BootstrapToken) -> bool {
    let Some((header, tag)) = signature.split_once("..") else { return false };
    let decoded = URL_SAFE_NO_PAD.decode(header).ok();
    let fields: Option<serde_json::Value> = decoded.and_then(|it| serde_json::from_slice(&it).ok());
    let is_known = fields.is_some_and(|it| it["alg"] == "HS256" && it["kid"] == *token.id);
    let Ok(tag) = URL_SAFE_NO_PAD.decode(tag) else { return false };
    let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    is_known && hmac::verify(&key, text.as_bytes(), &tag).is_ok()
}

/// Whether there is a signature with a token.
pub fn has_signature(data: &BTreeMap<String, String>, id: &str) -> bool {
    data.contains_key(&format!("{SIGNATURE}{id}"))
}

fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem()
    }

    fn sign(content: &str, header: &str, secret: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(header);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(content)).as_bytes());
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
    }

    const HEADER: &str = r#"{"alg":"HS256","kid":"abcdef"}"#;

    fn info(content: &str, signature: String) -> BTreeMap<String, String> {
        BTreeMap::from([
            (CONTENT.to_owned(), content.to_owned()),
            ("jws-kubeconfig-abcdef".to_owned(), signature),
        ])
    }

    #[test]
    fn only_pinned_authorities_of_signed_information_are_trusted() {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        let (own, other) = (authority(), authority());
        let hash = authorities(own.as_bytes()).unwrap()[0].0;
        assert_eq!(AuthorityHash::parse(&hash.to_string()).unwrap(), hash);
        let text = content("https://10.0.0.1:6443", own.as_bytes());
        let good = info(&text, sign(&text, HEADER, &token.secret));
        assert_eq!(verify(&good, &token, &[hash]).unwrap().replace("\r\n", "\n"), own.replace("\r\n", "\n"));
        // the pin
        let others = authorities(other.as_bytes()).unwrap()[0].0;
        let refused = verify(&good, &token, &[others]).unwrap_err();
        assert_eq!(refused, DistrustReason::Authority { found: hash.to_string() });
        // an authority that a holder of the token has slipped in
        let both = content("https://10.0.0.1:6443", format!("{other}{own}").as_bytes());
        let trusted = verify(&info(&both, sign(&both, HEADER, &token.secret)), &token, &[hash]).unwrap();
        assert_eq!(authorities(trusted.as_bytes()).unwrap().len(), 1);
        assert_eq!(authorities(trusted.as_bytes()).unwrap()[0].0, hash);
    }

    #[test]
    fn information_that_lies_is_refused() {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        let own = authority();
        let hash = authorities(own.as_bytes()).unwrap()[0].0;
        let text = content("https://10.0.0.1:6443", own.as_bytes());
        let check = |data: &BTreeMap<String, String>| verify(data, &token, &[hash]).unwrap_err();
        let unsigned = DistrustReason::Signature("abcdef".to_owned());
        let good = sign(&text, HEADER, &token.secret);
        assert_eq!(check(&info(&text.replace("10.0.0.1", "10.6.6.6"), good.clone())), unsigned);
        assert_eq!(check(&info(&text, sign(&text, HEADER, "0000000000000000"))), unsigned);
        assert_eq!(
            check(&info(&text, sign(&text, r#"{"alg":"none","kid":"abcdef"}"#, &token.secret))),
            unsigned
        );
        assert_eq!(
            check(&info(&text, sign(&text, r#"{"alg":"HS256","kid":"fedcba"}"#, &token.secret))),
            unsigned
        );
        for broken in ["", "..", "x..y", "a.b.c", "é..é"] {
            assert_eq!(check(&info(&text, broken.to_owned())), unsigned, "{broken}");
        }
        let expired = BTreeMap::from([(CONTENT.to_owned(), text.clone())]);
        assert_eq!(check(&expired), DistrustReason::UnknownToken("abcdef".to_owned()));
        for content in ["", "a: [", "clusters: 7", "clusters: [{cluster: {certificate-authority-data: '%'}}]"]
        {
            let data = info(content, sign(content, HEADER, &token.secret));
            assert!(matches!(check(&data), DistrustReason::Content(_)), "{content}");
        }
        assert!(matches!(check(&BTreeMap::new()), DistrustReason::Content(_)));
    }

    #[test]
    fn hashes_have_one_form() {
        let digits = "0f".repeat(32);
        assert!(AuthorityHash::parse(&format!("sha256:{digits}")).is_ok());
        for bad in [
            &*digits,
            "sha256:",
            "sha1:0f",
            &format!("sha256:{}", "é".repeat(32)),
            &format!("sha256:{digits}0"),
        ] {
            assert!(AuthorityHash::parse(bad).unwrap_err().to_string().contains("64 hexadecimal"), "{bad}");
        }
    }

    /// The hash of a certificate by another program: `openssl x509 -pubkey | openssl rsa -pubin -outform der | sha256sum`.
    #[test]
    fn the_hash_is_that_of_the_public_key() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = |name: &str| {
            rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&pair).unwrap().pem()
        };
        let hash = |pem: String| authorities(pem.as_bytes()).unwrap()[0].0;
        assert_eq!(hash(certificate("a")), hash(certificate("b")), "a renewed certificate keeps the hash");
        let spki = rcgen::PublicKeyData::subject_public_key_info(&pair);
        assert_eq!(hash(certificate("a")).0, *digest(&SHA256, &spki).as_ref());
    }
}
