use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use env::Simulated;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;
use names::Names;

const NOW: u64 = 1_700_000_000;
const DAY: u64 = 86_400;

fn world_at(days: u64) -> World {
    Simulated::new(NOW + days * DAY, days)
}

fn hosts(bind: &str) -> Hosts {
    Hosts::new(bind.parse().unwrap(), Some("Box"), &[], &Names::kubernetes()).unwrap()
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn roots(authority: &CertifiedKey) -> (Arc<RootCertStore>, Arc<rustls::crypto::CryptoProvider>) {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.certificate)).unwrap();
    (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()))
}

fn at(days: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW + days * DAY))
}

fn server_is_valid(pki: &Pki, host: &str, days: u64) -> bool {
    let (roots, provider) = roots(&pki.ca);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    verifier.verify_server_cert(&der(&pki.apiserver.certificate), &[], &name, &[], at(days)).is_ok()
}

fn client_is_valid(authority: &CertifiedKey, client: &CertifiedKey, days: u64) -> bool {
    let (roots, provider) = roots(authority);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
    verifier.verify_client_cert(&der(&client.certificate), &[], at(days)).is_ok()
}

#[test]
fn chains_verify_for_their_purpose() {
    let pki = Pki::in_memory(Vec::new(), &hosts("192.168.7.7"), &world_at(0)).unwrap();
    for host in [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "box",
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "192.168.7.7",
    ] {
        assert!(server_is_valid(&pki, host, 0), "{host}");
    }
    assert!(!server_is_valid(&pki, "elsewhere", 0));
    assert!(server_is_valid(&pki, "localhost", 364) && !server_is_valid(&pki, "localhost", 366));
    assert!(client_is_valid(&pki.ca, &pki.admin, 0));
    assert!(client_is_valid(&pki.front_proxy_ca, &pki.front_proxy_client, 0));
    assert!(!client_is_valid(&pki.ca, &pki.front_proxy_client, 0), "a proxy is not a user");
    assert!(!client_is_valid(&pki.ca, &pki.apiserver, 0), "a server is not a client");
}

#[test]
fn authorities_of_a_world_have_the_same_size_in_every_run() {
    let sizes = || {
        let pki = Pki::in_memory(Vec::new(), &hosts("127.0.0.1"), &world_at(0)).unwrap();
        [pki.ca, pki.front_proxy_ca].map(|it| it.certificate.len())
    };
    let first = sizes();
    // a signature has another size than the most frequent one every second time
    assert!((0..16).all(|_| sizes() == first));
}

#[test]
fn the_administrator_is_a_master() {
    let pki = Pki::in_memory(Vec::new(), &hosts("127.0.0.1"), &world_at(0)).unwrap();
    let user = auth::x509::identify(&der(&pki.admin.certificate)).unwrap();
    assert_eq!(user.name, ADMIN);
    assert!(user.is_in(auth::MASTERS));
}

#[test]
fn later_starts_keep_everything() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pki");
    let first = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [
            "admin.crt",
            "admin.key",
            "admin.token",
            "apiserver.crt",
            "apiserver.key",
            "ca.crt",
            "ca.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
            "front-proxy-client.crt",
            "front-proxy-client.key",
            "sa.key",
            "sa.pub"
        ]
    );
    for file in &files {
        let mode = fs::metadata(directory.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");

    let second = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(300)).unwrap();
    assert!(first.ca == second.ca && first.apiserver == second.apiserver && first.admin == second.admin);
    assert!(first.front_proxy_client == second.front_proxy_client);
    assert_eq!(first.service_account_key, second.service_account_key);
    let public = fs::read_to_string(directory.join("sa.pub")).unwrap();
    assert!(public.starts_with("-----BEGIN PUBLIC KEY-----"));
}

#[test]
fn a_certificate_is_issued_anew_before_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pki");
    let first = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    let second = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(336)).unwrap();
    assert!(first.ca == second.ca);
    assert!(first.admin.key == second.admin.key && first.admin.certificate != second.admin.certificate);
    assert!(server_is_valid(&second, "localhost", 600) && client_is_valid(&second.ca, &second.admin, 600));
    let third = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(337)).unwrap();
    assert!(third.apiserver == second.apiserver, "the new one was kept");
}

#[test]
fn no_certificate_outlives_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pki");
    Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    let late = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(3600)).unwrap();
    assert!(server_is_valid(&late, "localhost", 3649) && !server_is_valid(&late, "localhost", 3651));
    let expired = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(3651)).err().unwrap();
    assert!(expired.to_string().contains("ca.crt expired on"), "{expired}");
}

#[test]
fn a_new_address_is_covered() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pki");
    let first = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    assert!(!server_is_valid(&first, "192.168.7.7", 1));
    let second = Pki::in_directory(&directory, &hosts("192.168.7.7"), &world_at(1)).unwrap();
    assert!(server_is_valid(&second, "192.168.7.7", 1));
    assert!(
        first.ca == second.ca && first.admin == second.admin && first.apiserver.key == second.apiserver.key
    );
    let third = Pki::in_directory(&directory, &hosts("0.0.0.0"), &world_at(1)).unwrap();
    assert!(third.apiserver == second.apiserver, "more names than needed are no reason");
}

#[test]
fn derived_files_are_recreated() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pki");
    let first = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    let public = fs::read(directory.join("sa.pub")).unwrap();
    for file in ["admin.crt", "admin.key", "apiserver.crt", "sa.pub"] {
        fs::remove_file(directory.join(file)).unwrap();
    }
    let second = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    assert!(second.admin.key != first.admin.key && second.apiserver.key == first.apiserver.key);
    assert_eq!(second.admin_token, first.admin_token);
    assert_eq!(fs::read(directory.join("sa.pub")).unwrap(), public);
    assert!(server_is_valid(&second, "localhost", 0) && client_is_valid(&second.ca, &second.admin, 0));
}

#[test]
fn damage_is_named_and_left_alone() {
    for (file, content, part) in [
        ("ca.key", None, "is missing"),
        ("sa.key", None, "is missing"),
        ("ca.key", Some("nonsense"), "is damaged"),
        ("apiserver.key", Some(""), "is damaged"),
        ("admin.crt", Some("nonsense"), "is damaged"),
        ("admin.token", Some(""), "is damaged"),
        ("ca.crt", Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "is damaged"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("pki");
        Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
        match content {
            None => fs::remove_file(directory.join(file)).unwrap(),
            Some(content) => fs::write(directory.join(file), content).unwrap(),
        }
        let error = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).err();
        let message = format!("{:#}", error.expect(file));
        assert!(
            message.contains(file) && message.contains(part) && message.contains("remove"),
            "{file}: {message}"
        );
        let now = fs::read_to_string(directory.join(file)).ok();
        assert_eq!(now.as_deref(), content, "{file}");
    }
}

#[test]
fn files_that_do_not_fit_each_other_are_named() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, theirs) = (ours.path().join("pki"), theirs.path().join("pki"));
    for (files, part) in [
        (&["admin.key"][..], "does not belong to the key"),
        (&["admin.key", "admin.crt"], "was not issued by"),
        (&["ca.crt"], "does not belong to the key"),
    ] {
        for directory in [&ours, &theirs] {
            let _ = fs::remove_dir_all(directory);
            Pki::in_directory(directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
        }
        for file in files {
            fs::copy(theirs.join(file), ours.join(file)).unwrap();
        }
        let message = Pki::in_directory(&ours, &hosts("127.0.0.1"), &world_at(0)).err().unwrap().to_string();
        assert!(message.contains(part) && message.contains("remove"), "{files:?}: {message}");
    }
}

#[test]
fn an_interrupted_first_start_leaves_nothing_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let unfinished = folder.path().join("pki.new");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("ca.crt"), "half").unwrap();
    let directory = folder.path().join("pki");
    let pki = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    assert!(server_is_valid(&pki, "localhost", 0));
    assert!(!unfinished.exists());
}

#[test]
fn hosts_are_checked_and_spelled_one_way() {
    let with =
        |other: &str| Hosts::new("0.0.0.0".parse().unwrap(), None, &[other.to_owned()], &Names::kubernetes());
    assert!(with("Cluster.Example.org").unwrap().0.contains("cluster.example.org"));
    assert!(with("*.example.org").is_ok());
    assert_eq!(with("0:0:0:0:0:0:0:1").unwrap(), with("::1").unwrap());
    for invalid in ["", "a b", "a..b", "ä", "https://x"] {
        let message = with(invalid).unwrap_err().to_string();
        assert!(message.contains("--tls-san"), "{message}");
    }
    let odd = Hosts::new("0.0.0.0".parse().unwrap(), Some("no name"), &[], &Names::kubernetes()).unwrap();
    assert!(!odd.0.contains("no name"));
}

#[test]
fn a_node_has_certificates_of_the_cluster_and_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pki");
    let pki = Pki::in_directory(&directory, &hosts("127.0.0.1"), &world_at(0)).unwrap();
    let node = Hosts::of_node(&["10.1.2.3".to_owned(), "Box".to_owned()]);
    let issue =
        |days| issue_node_certificates(&directory, "system:node:box", &node, &world_at(days)).unwrap();
    let client = issue(0);
    assert!(client_is_valid(&pki.ca, &client, 1));
    let serving = fs::read_to_string(directory.join("node.crt")).unwrap();
    let (roots, provider) = roots(&pki.ca);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap();
    for (host, is_valid) in [("10.1.2.3", true), ("box", true), ("localhost", true), ("other", false)] {
        let name = ServerName::try_from(host).unwrap();
        assert_eq!(verifier.verify_server_cert(&der(&serving), &[], &name, &[], at(1)).is_ok(), is_valid);
    }
    assert_eq!(issue(1).certificate, client.certificate);
    assert_ne!(issue(350).certificate, client.certificate);
}
