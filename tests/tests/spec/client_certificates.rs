//! Which client certificates are accepted. One that is not gets a 401 over a whole connection.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::time::Duration;
use tests::{Authority, Cluster, NOW, Options, Pair, Protocol, Stream, TestUser, authority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// A client of the cluster's authority.
fn client(change: impl FnOnce(&mut CertificateParams)) -> Pair {
    authority().client_with("jane", &PKCS_ECDSA_P256_SHA256, change)
}

/// A client of an authority below the cluster's one, with the whole chain.
fn client_below(between: &Authority) -> Pair {
    let client = between.client("jane", "system:masters");
    Pair { certificate: format!("{}{}", client.certificate, between.pem()), ..client }
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut der = match length {
        0..=0x7f => vec![tag, length as u8],
        0x80..=0xff => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    der.extend(content);
    der
}

/// The first element, whole, its content, and what follows it.
fn first(der: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let (header, length) = match der[1] {
        short @ 0..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(der[2])),
        _ => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
    };
    (&der[..header + length], &der[header..header + length], &der[header + length..])
}

/// The same certificate in version 1, without extensions.
fn first_version(client: &Pair, issuer: &Authority) -> Pair {
    let der = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
    let (_, certificate, _) = first(&der);
    let (_, signed, rest) = first(certificate);
    let (algorithm, ..) = first(rest);
    // a version that is not said is the first, which has no extensions
    let (_, _, mut left) = first(signed);
    let mut fields = Vec::new();
    for _ in 0..6 {
        let (field, _, rest) = first(left);
        fields.extend(field);
        left = rest;
    }
    let signed = element(SEQUENCE, &fields);
    let random = SystemRandom::new();
    let key = PrivateKeyDer::from_pem_slice(issuer.pair().key.as_bytes()).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_der(), &random).unwrap();
    let signature = key.sign(&random, &signed).unwrap();
    let signature = element(BIT_STRING, &[&[0], signature.as_ref()].concat());
    let whole = element(SEQUENCE, &[&signed, algorithm, &signature].concat());
    let certificate =
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(whole));
    Pair { certificate, key: client.key.clone() }
}

fn unknown_extension(critical: bool) -> Pair {
    client(|params| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(critical);
        params.custom_extensions.push(extension);
    })
}

#[tokio::test]
async fn certificates_that_upstream_accepts_are_accepted() {
    let cluster = Cluster::start().await;
    let usage = |usage: ExtendedKeyUsagePurpose| client(|params| params.extended_key_usages = vec![usage]);
    let is_ca = client(|params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    });
    let of_key = |algorithm| authority().client_with("jane", algorithm, |_| {});
    let between = authority().below("between", |_| {});
    let nearest = authority().below("nearest", |it| it.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    for (what, shown) in [
        ("for clients", usage(ExtendedKeyUsagePurpose::ClientAuth)),
        ("for anything", usage(ExtendedKeyUsagePurpose::Any)),
        ("without extensions", client(|_| {})),
        ("of version 1", first_version(&client(|_| {}), authority())),
        ("of an authority", is_ca),
        ("of the cluster's authority itself", authority().pair()),
        ("with an unknown extension", unknown_extension(false)),
        ("with a P-384 key", of_key(&PKCS_ECDSA_P384_SHA384)),
        ("with an Ed25519 key", of_key(&PKCS_ED25519)),
        ("below another authority", client_below(&between)),
        ("below an authority that allows no other below it", client_below(&nearest)),
    ] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let response =
                cluster.get("/api").user(&TestUser::Certificate(shown.clone())).protocol(protocol).await;
            assert_eq!(response.status, 200, "a certificate {what}: {}", response.text());
        }
    }
}

#[tokio::test]
async fn other_certificates_are_rejected_for_the_whole_connection() {
    let cluster = Cluster::start().await;
    let hour = Duration::from_secs(3600);
    let timed = |from: u64| authority().client_from("jane", "system:masters", from, hour);
    let server_only = client(|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let not_an_authority = authority().below("leaf", |it| it.is_ca = IsCa::ExplicitNoCa);
    let may_not_sign =
        authority().below("signs nothing", |it| it.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let for_servers = authority()
        .below("for servers", |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let nearest = authority().below("nearest", |it| it.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let too_far = nearest.below("too far", |_| {});
    let mut below_too_far = client_below(&too_far);
    below_too_far.certificate.push_str(&nearest.pem());
    let between = authority().below("between", |_| {});
    let foreign = Authority::new("foreign");
    let impostor = Authority::new("cluster");
    for (what, shown) in [
        ("that has expired", timed(NOW - 7200)),
        ("that is not valid yet", timed(NOW + 600)),
        ("for servers", server_only),
        ("of an unknown authority", foreign.client("jane", "system:masters")),
        ("of an authority of the same name", impostor.client("jane", "system:masters")),
        ("of version 1 of an unknown authority", first_version(&client(|_| {}), &foreign)),
        ("that vouches for itself", tests::self_signed("jane", "system:masters")),
        ("with an unknown critical extension", unknown_extension(true)),
        ("below one that is no authority", client_below(&not_an_authority)),
        ("below one that may not sign", client_below(&may_not_sign)),
        ("below one that is for servers", client_below(&for_servers)),
        ("too far below an authority", below_too_far),
        ("whose chain is not complete", between.client("jane", "system:masters")),
    ] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let response =
                cluster.get("/api").user(&TestUser::Certificate(shown.clone())).protocol(protocol).await;
            assert_eq!(response.status, 401, "a certificate {what}: {}", response.text());
        }
    }
}

const AUTHORITY_FILE: &str = "ca.crt";

/// A cluster that verifies clients by a file of this folder.
async fn with_authority_file() -> (Cluster, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(AUTHORITY_FILE);
    std::fs::write(&file, authority().pem()).unwrap();
    let options = Options { client_authority_file: Some(file), ..Options::default() };
    (Cluster::with(options).await, folder)
}

#[tokio::test]
async fn authorities_are_reloaded_when_their_file_changes() {
    let (cluster, folder) = with_authority_file().await;
    let (file, later) = (folder.path().join(AUTHORITY_FILE), Authority::new("later"));
    let jane = TestUser::Certificate(later.client("jane", "system:masters"));
    cluster.get("/api").user(&jane).await.code(401);
    // a file that cannot be used changes nothing
    std::fs::write(&file, "nonsense").unwrap();
    cluster.get("/api").await.code(200);
    std::fs::write(&file, later.pem()).unwrap();
    let accepted = async {
        while cluster.get("/api").user(&jane).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tests::soon("the new authority", accepted).await;
    let old = TestUser::Certificate(authority().client("joe", "system:masters"));
    cluster.get("/api").user(&old).await.code(401);
    // other servers of the cluster learn of it
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = async {
        while !cluster.get(map).user(&jane).await.text().contains(later.pem().lines().nth(1).unwrap()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tests::soon("the published authority", published).await;
}

#[tokio::test]
async fn a_certificate_without_a_name_is_anonymous() {
    let nameless = TestUser::Certificate(client(|params| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    }));
    // an authority for proxies that no operator named finds no fault with clients
    for proxy_authorities in [None, Some(Authority::new("proxies").pem())] {
        let cluster = Cluster::with(Options { proxy_authorities, ..Options::default() }).await;
        let refused = cluster.get("/api").user(&nameless).await.refused(403, "Forbidden");
        assert!(refused.to_string().contains("system:anonymous"), "{refused}");
        cluster.get("/version").user(&nameless).await.code(200);
    }
    // a token on the same connection still names its user
    let tokens = auth::Tokens::parse("secret,joe,1,system:masters").unwrap();
    let authentication = apiserver::authentication::Options { tokens, ..Default::default() };
    let cluster = Cluster::with(Options { authentication, ..Options::default() }).await;
    cluster.get("/api").user(&nameless).header("authorization", "Bearer secret").await.code(200);
}

/// The status of an answer on a connection that stays open.
async fn status(stream: &mut Stream) -> u16 {
    stream.write_all(b"GET /api HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tests::soon("the head", stream.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    tests::soon("the body", stream.read_exact(&mut body)).await.unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_open_connection_loses_its_user_with_its_authority() {
    let (cluster, folder) = with_authority_file().await;
    let (file, later) = (folder.path().join(AUTHORITY_FILE), Authority::new("later"));
    let joe = TestUser::Certificate(authority().client("joe", "system:masters"));
    let mut open = cluster.connect(&joe, Protocol::Http1).await;
    assert_eq!(status(&mut open).await, 200);
    for (trusted, wanted) in [(later.pem(), 401), (authority().pem(), 200), (later.pem(), 401)] {
        std::fs::write(&file, trusted).unwrap();
        let followed = async {
            while status(&mut open).await != wanted {
                tokio::task::yield_now().await;
            }
        };
        tests::soon("the authorities of the moment", followed).await;
    }
}
