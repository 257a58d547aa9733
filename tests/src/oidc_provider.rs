//! An OpenID Connect provider over HTTPS: discovery document, keys and signed tokens.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
    RsaEncoding, RsaKeyPair,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::https_server::{HttpsServer, ReceivedRequest, Reply};

/// A private key that signs by way of one algorithm.
pub struct SigningKey {
    pub id: String,
    algorithm: &'static str,
    key: Private,
}

enum Private {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Curve(EcdsaKeyPair),
    P521(p521::ecdsa::SigningKey),
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl SigningKey {
    /// A new key on a curve, or the one RSA key of the tests.
    pub fn new(id: &str, algorithm: &'static str) -> Self {
        let rsa = |encoding| {
            let pem = include_bytes!("../../crates/apiserver/src/authentication/jose/tests/rsa.pem");
            let der = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
            Private::Rsa(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap(), encoding)
        };
        let curve = |signing| {
            let random = SystemRandom::new();
            let der = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
            Private::Curve(EcdsaKeyPair::from_pkcs8(signing, der.as_ref(), &random).unwrap())
        };
        let key = match algorithm {
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            "ES256" => curve(&ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => curve(&ECDSA_P384_SHA384_FIXED_SIGNING),
            "ES512" => {
                let mut number = [0; 66];
                ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut number[2..]).unwrap();
                Private::P521(p521::ecdsa::SigningKey::from_slice(&number).unwrap())
            }
            other => panic!("{other} is nothing that tests sign with"),
        };
        SigningKey { id: id.to_owned(), algorithm, key }
    }

    /// The key as a JWK.
    pub fn published(&self) -> Value {
        let point = |curve: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at((point.len() - 1) / 2);
            json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)})
        };
        let mut shown = match &self.key {
            Private::Rsa(key, _) => {
                let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encoded(public.n), "e": encoded(public.e)})
            }
            Private::Curve(key) => {
                let curve = if self.algorithm == "ES256" { "P-256" } else { "P-384" };
                point(curve, key.public_key().as_ref())
            }
            Private::P521(key) => {
                let public = p521::ecdsa::VerifyingKey::from(key);
                point("P-521", public.to_encoded_point(false).as_bytes())
            }
        };
        shown["kid"] = json!(self.id);
        shown["use"] = json!("sig");
        shown
    }

    /// The public key as bytes, to misuse as a symmetric key.
    pub fn public_bytes(&self) -> Vec<u8> {
        self.published().to_string().into_bytes()
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": self.algorithm, "kid": self.id}), claims)
    }

    /// The same with another header.
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = match &self.key {
            Private::Rsa(key, encoding) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(*encoding, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
                signature
            }
            Private::Curve(key) => {
                key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
            }
            Private::P521(key) => {
                use p521::ecdsa::signature::Signer;
                let signature: p521::ecdsa::Signature = key.sign(signed.as_bytes());
                signature.to_bytes().to_vec()
            }
        };
        format!("{signed}.{}", encoded(signature))
    }
}

/// Responses of the provider at its paths, where they differ from the usual ones.
#[derive(Default)]
pub struct ProviderResponses {
    pub keys: Vec<Value>,
    /// In place of the usual document.
    pub document: Option<Reply>,
    /// In place of the usual keys.
    pub instead_of_keys: Option<Reply>,
    /// The response at `/claims`.
    pub claims: String,
}

/// See the module.
pub struct OidcProvider {
    pub server: HttpsServer,
    pub published: Arc<Mutex<ProviderResponses>>,
}

impl OidcProvider {
    pub async fn start(keys: &[&SigningKey]) -> Self {
        let keys = keys.iter().map(|key| key.published()).collect();
        let published = Arc::new(Mutex::new(ProviderResponses { keys, ..ProviderResponses::default() }));
        let shared = published.clone();
        let server = HttpsServer::start(move |request| answer(request, &shared.lock().unwrap())).await;
        OidcProvider { server, published }
    }

    /// How often the keys were fetched.
    pub fn fetches(&self) -> usize {
        self.server.requests().iter().filter(|request| request.path == "/keys").count()
    }
}

fn answer(request: &ReceivedRequest, published: &ProviderResponses) -> Reply {
    let issuer = format!("https://{}", request.headers["host"].to_str().unwrap());
    let usual = |instead: &Option<Reply>, usual: Value| instead.clone().unwrap_or(Reply::Json(usual));
    match &*request.path {
        "/.well-known/openid-configuration" => {
            usual(&published.document, json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}))
        }
        "/keys" => usual(&published.instead_of_keys, json!({"keys": published.keys})),
        "/claims" => Reply::Text(200, published.claims.clone()),
        _ => Reply::Text(404, String::new()),
    }
}
