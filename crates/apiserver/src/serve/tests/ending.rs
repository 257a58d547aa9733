use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;

use super::setup::{Authority, serve};
use crate::serve::{Limits, ListenConfig, ServeError, TlsMaterial, bind};

#[tokio::test]
async fn a_watch_ends_cleanly_before_the_server_stops() {
    let served = serve(Limits::default()).await;
    let mut watches = Vec::new();
    for http2 in [false, true] {
        let mut client = served.client(http2, None).await;
        let mut body = client.post("/watch", "").await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first\n");
        watches.push((client, body));
    }
    let idle = served.client(true, None).await;
    served.shutdown.drain();
    assert!(!served.running.is_finished());
    let mut late = served.client(true, None).await;
    assert_eq!(late.get("/http2").await.0, 200, "draining still answers");

    served.shutdown.stop();
    for (client, body) in watches {
        assert_eq!(body.collect().await.unwrap().to_bytes(), "last\n");
        client.closed().await;
    }
    idle.closed().await;
    served.running.await.unwrap();
    assert!(tokio::net::TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn endless_requests_are_cut() {
    let limits = Limits { shutdown_grace: Duration::from_millis(50), ..Limits::default() };
    for http2 in [false, true] {
        let mut served = serve(limits.clone()).await;
        let mut client = served.client(http2, None).await;
        let body = client.post("/endless", "").await.unwrap().into_body();
        served.shutdown.stop();
        served.running.await.unwrap();
        assert!(body.collect().await.is_err());
        served.dropped.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_stop_during_the_handshake_does_not_wait_for_it() {
    let served = serve(Limits::default()).await;
    let silent = tokio::net::TcpStream::connect(served.address).await.unwrap();
    served.shutdown.stop();
    served.running.await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let served = serve(Limits::default()).await;
    let authority = Authority::new("cluster");
    let server = authority.server();
    let tls = TlsMaterial {
        certificate_chain: server.certificate.into_bytes(),
        private_key: server.key.into_bytes(),
        client_authorities: None,
        ..TlsMaterial::default()
    };
    let world: env::World = env::Simulated::new(0, 0);
    let listen =
        ListenConfig { address: served.address, tls, limits: Limits::default(), share_port: false, world };
    let error = bind(listen).await.err().unwrap();
    assert!(matches!(error, ServeError::AddressInUse(address) if address == served.address));
    assert_eq!(error.to_string(), format!("address {} is already in use", served.address));
}

#[tokio::test]
async fn a_port_is_shared_where_that_is_permitted() {
    let authority = Authority::new("cluster");
    let listen = |address: SocketAddr, share_port: bool| {
        let server = authority.server();
        let tls = TlsMaterial {
            certificate_chain: server.certificate.into_bytes(),
            private_key: server.key.into_bytes(),
            ..TlsMaterial::default()
        };
        let world: env::World = env::Simulated::new(0, 0);
        bind(ListenConfig { address, tls, limits: Limits::default(), share_port, world })
    };
    let first = listen(SocketAddr::from(([127, 0, 0, 1], 0)), true).await.unwrap();
    let second = listen(first.local_addr(), true).await.unwrap();
    assert_eq!(first.local_addr(), second.local_addr());
    let third = listen(first.local_addr(), false).await.err().unwrap();
    assert!(matches!(third, ServeError::AddressInUse(address) if address == first.local_addr()));
}
