use super::*;
use crate::testing::object;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};

/// A request of this subject with these alternative names, in PEM.
pub(crate) fn request(name: &str, organization: &str, hosts: &[&str]) -> String {
    let hosts: Vec<String> = hosts.iter().map(|it| (*it).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

#[test]
fn requests_are_parsed() {
    let parsed = parse_signed(request("jane", "dev", &["a.example", "10.0.0.1", "::1"]).as_bytes()).unwrap();
    assert_eq!(
        (&*parsed.subject.common_name, &parsed.subject.organizations[..]),
        ("jane", &["dev".to_owned()][..])
    );
    assert_eq!(parsed.dns_names, ["a.example"]);
    assert_eq!(parsed.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
    assert!(!parsed.public_key.is_empty());
    for junk in ["", "junk", "-----BEGIN CERTIFICATE REQUEST-----\nYQ==\n-----END CERTIFICATE REQUEST-----\n"]
    {
        assert!(parse(junk.as_bytes()).is_err(), "{junk}");
    }
}

#[test]
fn a_request_must_be_signed_by_its_own_key() {
    let pem = request("jane", "", &[]);
    let mut der = pem_block(pem.as_bytes()).unwrap().to_vec();
    // the last byte belongs to the signature
    *der.last_mut().unwrap() ^= 1;
    let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der);
    let forged = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
    assert!(parse(forged.as_bytes()).is_ok());
    let why = parse_signed(forged.as_bytes()).unwrap_err();
    assert!(why.contains("unable to verify"), "{why}");
}

#[test]
fn addresses_have_four_or_sixteen_bytes() {
    // a subject alternative name with an address of three bytes
    let mut params = CertificateParams::default();
    let odd = CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![0x30, 5, 0x87, 3, 1, 2, 3]);
    params.custom_extensions = vec![odd];
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    assert!(parse(pem.as_bytes()).is_err());
}

#[test]
fn requests_of_kubelets_are_checked() {
    let client = BTreeSet::from(["client auth", "digital signature", "key encipherment"]);
    let serving = BTreeSet::from(["server auth", "digital signature", "key encipherment"]);
    let of = |name: &str, organization: &str, hosts: &[&str]| {
        parse(request(name, organization, hosts).as_bytes()).unwrap()
    };
    let good = of("system:node:a", NODES, &[]);
    assert_eq!(agent_client_problem(&good, &client), None);
    assert_eq!(agent_client_problem(&good, &BTreeSet::from(["client auth", "digital signature"])), None);
    for (parsed, part) in [
        (of("system:node:a", "others", &[]), "organization"),
        (of("system:node:a", "", &[]), "organization"),
        (of("a", NODES, &[]), "common name"),
        (of("system:node:a", NODES, &["a"]), "DNS"),
        (of("system:node:a", NODES, &["1.2.3.4"]), "IP"),
    ] {
        let why = agent_client_problem(&parsed, &client).unwrap();
        assert!(why.contains(part), "{why}");
    }
    let why = agent_client_problem(&good, &serving).unwrap();
    assert_eq!(why, "usages did not match [client auth digital signature key encipherment]");
    let named = of("system:node:a", NODES, &["a", "10.0.0.1"]);
    assert_eq!(agent_serving_problem(&named, &serving), None);
    assert_eq!(agent_serving_problem(&good, &serving).unwrap(), "DNS or IP subjectAltName is required");
    assert!(agent_serving_problem(&named, &client).is_some());
}

#[test]
fn client_certificates_have_client_usages_only() {
    assert_eq!(client_problem(&BTreeSet::from(["client auth"])), None);
    let why = client_problem(&BTreeSet::from(["client auth", "server auth"])).unwrap();
    assert_eq!(why, "invalid usage for client certificate: server auth");
    let why = client_problem(&BTreeSet::from(["digital signature"])).unwrap();
    assert_eq!(why, "missing required usage for client certificate: client auth");
}

#[test]
fn decisions_are_conditions() {
    let with = |kinds: &[&str]| -> CertificateSigningRequest {
        let conditions: Vec<_> =
            kinds.iter().map(|kind| serde_json::json!({"type": kind, "status": "True"})).collect();
        object(serde_json::json!({"metadata": {}, "spec": {"request": "", "signerName": "a/b"},
            "status": {"conditions": conditions}}))
    };
    assert!(!is_decided(&with(&[])) && !is_decided(&with(&[FAILED])));
    assert!(is_decided(&with(&[DENIED])) && !is_approved(&with(&[DENIED])));
    assert!(is_approved(&with(&[APPROVED])) && !is_approved(&with(&[APPROVED, DENIED])));
}
