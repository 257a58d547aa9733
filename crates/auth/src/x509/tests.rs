//! Names of users in certificates, and chains with keys that the generator of certificates cannot make.

use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;

fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in names {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

#[test]
fn the_common_name_is_the_user_and_the_organization_a_group() {
    let der = certificate(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "system:masters")]);
    let user = identify(&der).unwrap();
    assert_eq!(user.name, "jane");
    assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
    assert_eq!(user.uid, "");
}

#[test]
fn several_organizations_are_several_groups() {
    // the generator of certificates keeps one attribute of a kind, so the second organization is
    // written as an organizational unit of the same length of object identifier and then renamed
    let mut der = certificate(&[
        (DnType::CommonName, "jane"),
        (DnType::OrganizationName, "dev"),
        (DnType::OrganizationalUnitName, "ops"),
    ]);
    let unit = [0x55, 0x04, 0x0b];
    while let Some(at) = der.windows(3).position(|window| window == unit) {
        der[at + 2] = 0x0a;
    }
    assert_eq!(identify(&der).unwrap().groups, ["dev", "ops", "system:authenticated"]);
}

#[test]
fn a_certificate_without_a_name_is_not_a_malformed_one() {
    let nameless = certificate(&[(DnType::OrganizationName, "dev")]);
    assert_eq!(identify(&nameless), Err(AuthError::NoCommonName));
    assert_eq!(identify(&certificate(&[(DnType::CommonName, "")])), Err(AuthError::NoCommonName));
    let whole = certificate(&[(DnType::CommonName, "jane")]);
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        let broken = identify(&whole[..length]);
        assert!(matches!(broken, Err(AuthError::MalformedCertificate(_))), "{length}: {broken:?}");
    }
}

/// An authority with a key on the curve P-521, which signs with SHA-256.
const P521_AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIB/TCCAV6gAwIBAgIUMv1oUBoJ6UaXG297/0A4I3pjnj4wCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFY2E1MjEwHhcNMjYxMTE2MDg0MDMxWhcNMjcwMjI0MDg0MDMx
WjAQMQ4wDAYDVQQDDAVjYTUyMTCBmzAQBgcqhkjOPQIBBgUrgQQAIwOBhgAEAdD4
SI+/w5T56XtP0tOmftOnGpSW++V+Z2e+4o9QCIHOsnvvaeS/MRWexitgtd4vXDHp
8XbblNfNQCyV9JiCnbtiAXQmecb7zXLRWlUUgZFBKa/1IuOrO7Ld5Wjlj1bKfCNU
wsJnkxwNyScjY4qPRChXeUW8oMXZRbVp3vUbnF28Mz3fo1MwUTAdBgNVHQ4EFgQU
sSxROV6JhUWJInSifuKenaMOM0IwHwYDVR0jBBgwFoAUsSxROV6JhUWJInSifuKe
naMOM0IwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgOBjAAwgYgCQgGB2GOu
nbJPn1bT+sVaHMFTrIYTnQH2qVcaZ+HztdZ6tXi5sktfkjojUJZQE5EidpdZ/X34
H9Te9w1QjYH0Oan0mwJCAZzNcEKAbehYoynMZo4zBCxz3hZQKqXlicBSQLpqMh/8
GZ5UilGX3uewpQbFLKPS1EZO8fQlw6MrDd9OByRETMhZ
-----END CERTIFICATE-----
";

/// A client of that authority.
const P521_CLIENT: &str = "-----BEGIN CERTIFICATE-----
MIIB1jCCATegAwIBAgIUQ1RwOHJsyI+MzXUMCrGyAGhXZfkwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFY2E1MjEwHhcNMjYxMTE2MDg0MDMxWhcNMjYxMTI2MDg0MDMx
WjAoMRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczENMAsGA1UEAwwEamFuZTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABLFTOVWpZgw5ypJNxAaEMbitkXaFqtrPka6J
rwcyFEOuDQD1lvomTqA8LJh7bNnFXApcrKZAj3V8kJsP4fHqSWmjVzBVMBMGA1Ud
JQQMMAoGCCsGAQUFBwMCMB0GA1UdDgQWBBS4XhucbMiXmnr5Uo5PB76aChO3YzAf
BgNVHSMEGDAWgBSxLFE5XomFRYkidKJ+4p6dow4zQjAKBggqhkjOPQQDAgOBjAAw
gYgCQgCC7yji8nPoY2NIeSqN28sM4uHJl6vgmwohpyzlZwKmdint+KtVs/oMGSDc
fdSa4rHIAGRgCP+mEipe6Fr57XVTtQJCAaGRvL0BroGtijvM5XYypzh+MFZb0kb6
13NZ1vES516CG8EI1leDIOlAGRQyDx7o2vYduaohzyYdJOf8YeMT5tAO
-----END CERTIFICATE-----
";

/// A client with an RSA key of 1,024 bits.
const SHORT_KEY: &str = "-----BEGIN CERTIFICATE-----
MIIB1jCCAXugAwIBAgIUF6InGAsMCxT0FlWprj2rN8z2DPcwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwHhcNMjYxMTE2MDg0MDI5WhcNMjYxMTI2MDg0MDI5WjAo
MRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczENMAsGA1UEAwwEamFuZTCBnzANBgkq
hkiG9w0BAQEFAAOBjQAwgYkCgYEAr8uI9UcUOn6SAThi/1tu05b/IL6jTiD6DOFG
pqR1nmiJvTZfAArqf0KVDdG4weqUQagrPmvap8Wd0cAQ0mqDrjhRlTOTSVKp5RcQ
Gfgy9U36M6tCXj3uTkJNO4pehc0sozcx5yqkkAimBxVhNhhs4vTZykM9KE6MYeCy
uHfDuFECAwEAAaNXMFUwEwYDVR0lBAwwCgYIKwYBBQUHAwIwHQYDVR0OBBYEFFwh
PEGW1dHFkwvj+ZEqLPqyALS7MB8GA1UdIwQYMBaAFKsMuXDHRxk+QIaNGgfpa0yD
iz71MAoGCCqGSM49BAMCA0kAMEYCIQDL8//dWnMuVcQgL+pKn4PiY/4dXWlQAXos
Mk0spNNOgAIhANuOt55soh/896IawIDRoAiCIGyIgoifbpgrJNkPUASU
-----END CERTIFICATE-----
";

fn der(pem: &str) -> Vec<u8> {
    x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap().1.contents
}

#[test]
fn an_authority_may_have_a_key_on_p521() {
    let (authority, client) = (der(P521_AUTHORITY), der(P521_CLIENT));
    let now = valid_until(&client).unwrap() - 60;
    let authorities = Authorities::new([&authority]).unwrap();
    assert_eq!(authorities.verify(&client, &[], now), Ok(()));
    assert_eq!(authorities.verify(&client, &[], now + 61), Err(ChainError::OutsideValidity));
    let mut changed = client.clone();
    let name = changed.windows(4).position(|it| it == b"jane").unwrap();
    changed[name] = b'J';
    assert_eq!(authorities.verify(&changed, &[], now), Err(ChainError::BadSignature));
    let others = Authorities::new([&client]).unwrap();
    assert_eq!(others.verify(&changed, &[], now), Err(ChainError::UnknownAuthority));
    assert_eq!(authorities.verify(&client[1..], &[], now), Err(ChainError::Malformed));
}

#[test]
fn unsupported_keys_are_rejected_with_any_signature() {
    let client = der(SHORT_KEY);
    let now = valid_until(&client).unwrap() - 60;
    let authorities = Authorities::new([&client]).unwrap();
    assert_eq!(authorities.verify(&client, &[], now), Err(ChainError::UnsupportedKey));
    assert_eq!(
        verify_handshake(&client, b"message", b"signature", Some(HandshakeDigest::Sha512)),
        Handshake::Unsupported
    );
    assert_eq!(
        verify_handshake(b"nonsense", b"message", b"signature", Some(HandshakeDigest::Sha512)),
        Handshake::Unsupported
    );
    assert_eq!(
        verify_handshake(&der(P521_CLIENT), b"message", b"signature", Some(HandshakeDigest::Sha512)),
        Handshake::Usual
    );
    assert_eq!(
        verify_handshake(&der(P521_AUTHORITY), b"message", b"signature", Some(HandshakeDigest::Sha512)),
        Handshake::Invalid
    );
}
