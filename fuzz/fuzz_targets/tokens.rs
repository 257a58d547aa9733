//! Tokens and keys: only what this issuer has signed names a user, and it names that of its claims.

#![no_main]

use apiserver::authentication::jose::{Compact, PublicKey, Signer};
use apiserver::authentication::{Identity, Options, ServiceAccounts};
use auth::User;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use env::{Simulated, World};
use fuzz::certificates::{CLIENT, NOW, SERVER};
use fuzz::duplex::run;
use fuzz::objects::NAMES;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SIGNER: LazyLock<Signer> = LazyLock::new(|| Signer::from_pem(SERVER.1.as_bytes()).expect("a key"));
static WORLD: LazyLock<World> = LazyLock::new(|| Simulated::new(NOW, 7));
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let service_accounts = ServiceAccounts {
        signer: Some(SIGNER.clone()),
        keys: PublicKey::all_from_pem(RSA.as_bytes()).expect("a key"),
        lookup: false,
        ..ServiceAccounts::default()
    };
    Identity::new(Options { service_accounts, ..Options::default() }, &NAMES, &WORLD, "localhost")
});
const RSA: &str = include_str!("../../crates/apiserver/src/authentication/jose/tests/rsa.pub.pem");
/// A token of a service account that is accepted. It is written down since each signature is another one, and an input that
/// changes it means the same in every run.
const VALID: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6IkFKb3RUVWRNZVE0MWdrcUItTTRyWEhqQTItZGpzbl8wcGZKem1ydktxTDAifQ.eyJpc3MiOiJrdWJlcm5ldGVzL3NlcnZpY2VhY2NvdW50Iiwic3ViIjoic3lzdGVtOnNlcnZpY2VhY2NvdW50Om46YSIsImt1YmVybmV0ZXMuaW8vc2VydmljZWFjY291bnQvbmFtZXNwYWNlIjoibiIsImt1YmVybmV0ZXMuaW8vc2VydmljZWFjY291bnQvc2VjcmV0Lm5hbWUiOiJzIiwia3ViZXJuZXRlcy5pby9zZXJ2aWNlYWNjb3VudC9zZXJ2aWNlLWFjY291bnQubmFtZSI6ImEiLCJrdWJlcm5ldGVzLmlvL3NlcnZpY2VhY2NvdW50L3NlcnZpY2UtYWNjb3VudC51aWQiOiJ1In0.-_01jWzpW1WCGEoABn-kqKfXnDibNiIrOnQMvPNvSO-Skd1lajtudinUSWIQDa6pxr1x-lI0__HLpTs6oitrlw";

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = fuzz::choice(data) else { return };
    match choice % 6 {
        // signed claims
        0 => {
            let Some(claims) = fuzz::text(rest).and_then(fuzz::json) else { return };
            let Some(token) = SIGNER.sign(&claims) else { return };
            let Some(user) = owner(&token) else { return };
            assert!(user.name.starts_with("system:serviceaccount:"), "{user:?}");
            assert_eq!(owner(&token), Some(user));
        }
        // other signatures of these parts
        1 => {
            let Some([header, claims, signature]) = fuzz::texts(rest) else { return };
            let parts = [header, claims, signature].map(|it| URL_SAFE_NO_PAD.encode(it));
            assert_eq!(owner(&parts.join(".")), None);
        }
        // a token that was changed
        2 => {
            assert!(!rest.is_empty() || owner(VALID).is_some());
            let changed = fuzz::mutated(VALID.as_bytes(), rest);
            let Some(token) = fuzz::text(&changed) else { return };
            assert!(owner(token).is_none() || token == VALID, "{token}");
        }
        3 => {
            let Some(token) = fuzz::text(rest) else { return };
            assert!(owner(token).is_none());
            if let Some(read) = Compact::parse(token) {
                assert!(!read.is_signed_by(SIGNER.public()));
            }
        }
        4 => {
            if let Ok(keys) = PublicKey::all_from_pem(rest) {
                keys.iter().for_each(round_trip);
            }
            let _ = Signer::from_pem(rest);
            PublicKey::from_spki(rest).iter().for_each(round_trip);
        }
        _ => {
            if let Some(key) = fuzz::text(rest).and_then(fuzz::json).as_ref().and_then(PublicKey::from_jwk) {
                round_trip(&key);
            }
            let changed = fuzz::mutated(&CLIENT, rest);
            auth::x509::public_key(&changed).and_then(PublicKey::from_spki).iter().for_each(round_trip);
        }
    }
});

/// The user of a token.
fn owner(token: &str) -> Option<User> {
    let audiences = IDENTITY.chain.audiences.to_vec();
    run(IDENTITY.chain.owner(token, &audiences)).ok().map(|it| (*it.user).clone())
}

/// A key is the same after its own JWK, if it has one.
fn round_trip(key: &PublicKey) {
    let Some(jwk) = key.to_jwk() else { return };
    if let Some(again) = PublicKey::from_jwk(&jwk) {
        assert_eq!(again.to_jwk(), Some(jwk));
    }
}
