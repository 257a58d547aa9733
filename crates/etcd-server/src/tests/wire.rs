//! TLS with client certificates, and the pages beside gRPC.

use std::fs;

use grpc::etcd::auth_client::AuthClient;
use grpc::etcd::cluster_client::ClusterClient;
use grpc::etcd::{AuthStatusRequest, AuthenticateRequest, MemberListRequest, RangeRequest};
use outbound::{Channel, Target};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{channel, in_memory, options, start};
use crate::{Endpoint, Location, MemberInfo, Options, Server, TlsFiles};

async fn page(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn health_version_and_metrics_are_on_the_same_port() {
    let server = in_memory().await;
    super::Kv::new(&server).put("a", "1").await;
    let health = page(&server, "/health").await;
    assert!(
        health.starts_with("HTTP/1.1 200") && health.ends_with(r#"{"health":"true","reason":""}"#),
        "{health}"
    );
    let version = page(&server, "/version").await;
    assert!(version.contains(r#""etcdserver":"3.5."#), "{version}");
    let metrics = page(&server, "/metrics").await;
    for line in [
        "etcd_mvcc_put_total 1",
        "etcd_debugging_mvcc_current_revision 2",
        "etcd_server_has_leader 1",
        r#"grpc_server_handled_total{grpc_code="Ok",grpc_method="Put",grpc_service="etcdserverpb.KV"} 1"#,
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
    assert!(page(&server, "/v2/keys").await.starts_with("HTTP/1.1 404"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_its_only_member_and_has_no_users() {
    let member = MemberInfo {
        name: "one".to_owned(),
        peer_urls: vec!["http://a:1".to_owned()],
        client_urls: vec!["http://b:2".to_owned()],
    };
    let server = start(Options { member, ..options(Location::Memory) }, super::seeded()).await;
    let members =
        ClusterClient::new(channel(&server)).member_list(MemberListRequest::default()).await.unwrap();
    let members = members.into_inner();
    let own = &members.members[0];
    assert_eq!(
        (members.members.len(), own.name.as_str(), own.client_ur_ls.as_slice()),
        (1, "one", &["http://b:2".to_owned()][..])
    );
    assert_eq!(own.id, members.header.unwrap().member_id);
    let mut auth = AuthClient::new(channel(&server));
    let refused = auth.authenticate(AuthenticateRequest::default()).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: authentication is not enabled");
    assert!(!auth.auth_status(AuthStatusRequest {}).await.unwrap().into_inner().enabled);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_certificate_of_the_authority() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let issuer = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (authority, stranger) = (issuer("authority"), issuer("stranger"));
    let leaf = |issuer: &CertifiedIssuer<'_, KeyPair>, names: Vec<String>| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let (certificate, key) = leaf(&authority, vec!["127.0.0.1".to_owned()]);
    let tls = TlsFiles {
        certificate: write("server.crt", certificate),
        key: write("server.key", key),
        client_authorities: Some(write("ca.crt", authority.pem())),
    };
    let endpoints = vec![Endpoint { address: ([127, 0, 0, 1], 0).into(), is_tls: true }];
    let server =
        start(Options { endpoints, tls: Some(tls), ..options(Location::Memory) }, super::seeded()).await;
    for (issuer, is_accepted) in [(&authority, true), (&stranger, false)] {
        let (certificate, key) = leaf(issuer, Vec::new());
        let target = Target {
            url: format!("https://{}", server.addresses()[0]),
            authorities: Some(authority.pem().into()),
            identity: Some((certificate.into(), key.into())),
            ..Target::default()
        };
        let mut kv = grpc::etcd::kv_client::KvClient::new(Channel::new(&target, &[]).unwrap());
        let result = kv.range(RangeRequest { key: "a".into(), ..Default::default() }).await;
        assert_eq!(result.is_ok(), is_accepted, "{result:?}");
    }
    server.stop().await;
}
