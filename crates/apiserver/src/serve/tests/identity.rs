use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::setup::{Authority, serve};
use crate::serve::{Limits, ListenConfig, ServeError, TlsMaterial, bind};

#[tokio::test]
async fn a_certificate_of_the_cluster_names_its_user() {
    let served = serve(Limits::default()).await;
    let jane = served.authority.client("jane", "dev");
    for http2 in [false, true] {
        let mut client = served.client(http2, Some(&jane)).await;
        assert_eq!(client.get("/whoami").await, (200, "jane dev,system:authenticated".to_owned()));
        let mut anonymous = served.client(http2, None).await;
        assert_eq!(anonymous.get("/whoami").await, (200, "anonymous".to_owned()));
    }
}

#[tokio::test]
async fn a_foreign_certificate_is_answered_not_cut() {
    let served = serve(Limits::default()).await;
    // the same name as the cluster's authority, but another key
    let foreign = Authority::new("cluster").client("jane", "system:masters");
    for http2 in [false, true] {
        let mut client = served.client(http2, Some(&foreign)).await;
        assert_eq!(client.get("/whoami").await.0, 401);
    }
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let served = serve(Limits::default()).await;
    let jane = served.authority.client("jane", "dev");
    served.world.advance(Duration::from_secs(366 * 86_400));
    let mut client = served.client(true, Some(&jane)).await;
    let (status, reason) = client.get("/whoami").await;
    assert_eq!(status, 401);
    assert!(reason.to_lowercase().contains("expired"), "{reason}");
}

#[tokio::test]
async fn a_certificate_of_a_server_is_not_one_of_a_client() {
    let served = serve(Limits::default()).await;
    let server = served.authority.server();
    let mut client = served.client(true, Some(&server)).await;
    assert_eq!(client.get("/whoami").await.0, 401);
}

#[tokio::test]
async fn a_stolen_certificate_without_its_key_fails_the_handshake() {
    let served = serve(Limits::default()).await;
    let mut stolen = served.authority.client("jane", "dev");
    stolen.key = served.authority.client("eve", "dev").key;
    let attempt = async {
        let mut stream = served.try_tls(Some(&stolen), &["http/1.1"]).await?;
        stream.write_all(b"GET /whoami HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        stream.read_u8().await
    };
    let refused = attempt.await.unwrap_err().to_string();
    assert!(refused.contains("DecryptError"), "{refused}");
}

#[tokio::test]
async fn unusable_material_is_named() {
    let authority = Authority::new("cluster");
    let (server, other) = (authority.server(), authority.server());
    let good = TlsMaterial {
        certificate_chain: server.certificate.into_bytes(),
        private_key: server.key.into_bytes(),
        client_authorities: Some(authority.pem().into_bytes()),
        ..TlsMaterial::default()
    };
    let world: env::World = env::Simulated::new(0, 0);
    for (tls, named) in [
        (TlsMaterial { certificate_chain: b"nonsense".to_vec(), ..good.clone() }, "server certificate"),
        (TlsMaterial { private_key: Vec::new(), ..good.clone() }, "server key"),
        (TlsMaterial { private_key: other.key.into_bytes(), ..good.clone() }, "server certificate"),
        (TlsMaterial { client_authorities: Some(Vec::new()), ..good.clone() }, "client authority"),
    ] {
        let address = ([127, 0, 0, 1], 0).into();
        let listen =
            ListenConfig { address, tls, limits: Limits::default(), share_port: false, world: world.clone() };
        match bind(listen).await {
            Err(ServeError::Tls { subject, .. }) => assert_eq!(subject, named),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{named} was accepted"),
        }
    }
}
