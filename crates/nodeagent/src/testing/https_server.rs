//! A server of HTTPS.

use rustls::crypto::ring;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A certificate of version 1 for `old.example`, signed by itself, and its key.
pub const VERSION_1: &[u8] = include_bytes!("version-1.pem");

/// Serves with the first certificate and key of a PEM text. `answer` makes the whole response to the head of a request.
pub async fn serve_https(pem: &[u8], answer: impl Fn(&str) -> String + Send + Sync + 'static) -> u16 {
    let certificate = CertificateDer::from_pem_slice(pem).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    // presented as it is, also if the library would not read it
    let certified = CertifiedKey::new(vec![certificate], ring::sign::any_supported_type(&key).unwrap());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|it| it > 0)
                {
                }
                let _ = stream.write_all(answer(&String::from_utf8_lossy(&head)).as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}
