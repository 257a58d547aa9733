use super::*;
use ring::hmac;

const RSA_KEY: &[u8] = include_bytes!("rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("rsa.pub.pem");
const EC_KEY: &[u8] = include_bytes!("ec.pem");

fn p256() -> Signer {
    Signer::from_pem(rcgen::KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap()
}

fn p384() -> Signer {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    Signer::from_pem(key.serialize_pem().as_bytes()).unwrap()
}

fn claims() -> Value {
    let mut claims = Value::map();
    claims.set(&["sub"], "subject");
    claims
}

fn verified(token: &str, key: &PublicKey) -> bool {
    Compact::parse(token).is_some_and(|it| it.is_signed_by(key))
}

#[test]
fn a_key_verifies_its_own_signatures_only() {
    let rsa = || Signer::from_pem(RSA_KEY).unwrap();
    for (signers, name) in
        [([p256(), p256()], "ES256"), ([p384(), p384()], "ES384"), ([rsa(), p256()], "RS256")]
    {
        let [mine, other] = signers;
        // signatures differ each time, also in the length of their numbers
        for _ in 0..20 {
            let token = mine.sign(&claims()).unwrap();
            let read = Compact::parse(&token).unwrap();
            assert_eq!((read.algorithm(), &*read.key_id), (name, mine.public().id()));
            assert_eq!(read.claims, claims());
            assert!(read.is_signed_by(mine.public()) && !read.is_signed_by(other.public()));
            let (head, _) = token.rsplit_once('.').unwrap();
            assert!(!verified(&format!("{head}.AAAA"), mine.public()));
        }
    }
}

#[test]
fn a_jwk_is_enough_to_verify() {
    for signer in [p256(), p384(), Signer::from_pem(RSA_KEY).unwrap()] {
        let jwk = signer.public().to_jwk().unwrap();
        assert_eq!(jwk.text(&["alg"]), signer.public().algorithm());
        assert_eq!(jwk.at(&["d"]), None);
        let read = PublicKey::from_jwk(&jwk).unwrap();
        assert!(read == *signer.public());
        assert!(verified(&signer.sign(&claims()).unwrap(), &read));
    }
}

#[test]
fn keys_that_no_token_passes_are_not_accepted() {
    let rsa = |modulus: &[u8], exponent: &[u8]| {
        let numbers = [wrapped(INTEGER, modulus), wrapped(INTEGER, exponent)].concat();
        let bits = [&[0][..], &wrapped(SEQUENCE, &numbers)].concat();
        wrapped(SEQUENCE, &[wrapped(SEQUENCE, RSA), wrapped(BITS, &bits)].concat())
    };
    let key = PublicKey::from_spki(&rsa(&[0, 0x81], &[1, 0, 1])).unwrap();
    assert_eq!((key.to_jwk().unwrap().text(&["n"]), key.to_jwk().unwrap().text(&["e"])), ("gQ", "AQAB"));
    for (modulus, exponent) in [(&[5][..], &[0, 0][..]), (&[0], &[3]), (&[5], &[]), (&[0x80], &[3])] {
        assert!(PublicKey::from_spki(&rsa(modulus, exponent)).is_none(), "{modulus:?} {exponent:?}");
    }
    let point = |bytes: &[u8]| {
        let bits = [&[0][..], bytes].concat();
        wrapped(SEQUENCE, &[wrapped(SEQUENCE, P256), wrapped(BITS, &bits)].concat())
    };
    assert!(PublicKey::from_spki(&point(&[4; 65])).is_some());
    for bytes in [&[4; 64][..], &[2; 33], &[]] {
        assert!(PublicKey::from_spki(&point(bytes)).is_none(), "{bytes:?}");
    }
}

#[test]
fn files_hold_keys_of_every_kind() {
    let certificate =
        rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap().cert.pem().into_bytes();
    let all = [
        RSA_PUBLIC,
        EC_KEY,
        &certificate,
        b"-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n",
    ]
    .concat();
    let keys = PublicKey::all_from_pem(&all).unwrap();
    assert_eq!(keys.iter().map(|key| key.algorithm()).collect::<Vec<_>>(), ["RS256", "ES256", "ES256"]);
    assert!(keys[0] == *Signer::from_pem(RSA_KEY).unwrap().public());
    assert!(keys[1] == *Signer::from_pem(EC_KEY).unwrap().public());
    assert_eq!(PublicKey::all_from_pem(b"nothing").err(), Some(KeyError::NoKeys));
    assert!(matches!(Signer::from_pem(RSA_PUBLIC).err(), Some(KeyError::Unreadable(_))));
    let unsupported = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    assert_eq!(Signer::from_pem(unsupported.as_bytes()).err(), Some(KeyError::Unsupported));
}

#[test]
fn a_token_that_was_changed_is_no_token() {
    let mine = p256();
    let token = mine.sign(&claims()).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let (other, none) = (encoded(r#"{"sub":"root"}"#), encoded(r#"{"alg":"none"}"#));
    let critical = encoded(r#"{"alg":"ES256","crit":["x"]}"#);
    for bad in [
        format!("{}.{other}.{}", parts[0], parts[2]),
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{critical}.{}.{}", parts[1], parts[2]),
        format!("{token}."),
        format!("{token}.{}", parts[2]),
        format!("{token}="),
        parts[0].to_owned(),
        String::new(),
        "..".to_owned(),
    ] {
        assert!(!verified(&bad, mine.public()), "{bad}");
    }
    for length in 0..token.len() {
        assert!(!verified(&token[..length], mine.public()), "{length}");
    }
}

#[test]
fn a_public_key_is_no_shared_secret() {
    // an attacker who knows the public key signs with it as a shared secret
    for (secret, key) in [(RSA_PUBLIC, Signer::from_pem(RSA_KEY).unwrap().public().clone())] {
        for name in ["HS256", "HS384", "HS512", "RS256", "none"] {
            let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":{name:?}}}"));
            let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(encode::untyped(&claims())));
            for secret in [secret, &key.bits] {
                let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
                assert!(!verified(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)), &key), "{name}");
            }
        }
    }
}
