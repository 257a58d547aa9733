//! The server under load: its address and the credentials.

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The arguments that name the server and the credentials.
#[derive(Debug, Clone, Args)]
pub struct TargetArgs {
    /// The server, as https://HOST:PORT
    #[arg(long)]
    pub server: String,
    /// A client certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// A bearer token
    #[arg(long)]
    pub token: Option<String>,
}

/// One connection's sending half.
pub type Sender = http2::SendRequest<Full<Bytes>>;

/// The server under load, with the credentials.
pub struct Target {
    host: String,
    port: u16,
    authority: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Option<HeaderValue>,
}

impl Target {
    pub fn new(args: &TargetArgs) -> anyhow::Result<Self> {
        let uri: Uri = args.server.parse().context("--server")?;
        ensure!(uri.scheme_str() == Some("https"), "--server: give it as https://HOST:PORT");
        let authority = uri.authority().context("--server: there is no host in it")?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let token = args.token.as_ref().map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        Ok(Self {
            name: ServerName::try_from(host.clone()).context("--server")?,
            host,
            port: authority.port_u16().unwrap_or(443),
            authority: authority.to_string(),
            tls: connector(args.cert.as_deref().zip(args.key.as_deref()))?,
            token: token.transpose().context("--token")?,
        })
    }

    pub async fn connect(&self) -> anyhow::Result<Sender> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await;
        let tcp = tcp.with_context(|| format!("cannot connect to {}", self.authority))?;
        tcp.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), tcp).await.context("no TLS connection")?;
        ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not speak HTTP/2");
        // the windows that Go's clients open, and so those most servers meet
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(1 << 30)
            .handshake(TokioIo::new(stream))
            .await?;
        // its end shows in the requests
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// One sender for each request at a time.
    pub async fn senders(&self, concurrency: usize, connections: usize) -> anyhow::Result<Vec<Sender>> {
        let mut opened = Vec::with_capacity(connections);
        for _ in 0..connections {
            opened.push(self.connect().await?);
        }
        Ok(opened.iter().cycle().take(concurrency).cloned().collect())
    }

    pub fn uri(&self, path: &str) -> anyhow::Result<Uri> {
        ensure!(path.starts_with('/'), "the path {path:?} does not begin with a slash");
        format!("https://{}{path}", self.authority).parse().with_context(|| format!("bad path {path:?}"))
    }

    pub fn request(&self, method: Method, uri: Uri, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let json = HeaderValue::from_static("application/json");
        let mut request = Request::new(Full::new(body));
        if method != Method::GET {
            request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        }
        request.headers_mut().insert(header::ACCEPT, json);
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("pintle-load"));
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        Ok(request)
    }
}

fn connector(identity: Option<(&Path, &Path)>) -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(schemes)));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_file_iter(cert).and_then(|chain| chain.collect());
            let chain = chain.with_context(|| format!("cannot read {}", cert.display()))?;
            let key = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("cannot read {}", key.display()))?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Believes every server: those measured are on the same machine, with certificates of their own making.
#[derive(Debug)]
struct AnyServer(Vec<SignatureScheme>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(server: &str, token: Option<&str>) -> anyhow::Result<Target> {
        let token = token.map(str::to_owned);
        Target::new(&TargetArgs { server: server.to_owned(), cert: None, key: None, token })
    }

    #[test]
    fn servers_are_taken_apart() {
        let six = target("https://[::1]:6443", None).unwrap();
        assert_eq!((six.host.as_str(), six.port, six.authority.as_str()), ("::1", 6443, "[::1]:6443"));
        assert_eq!(six.uri("/a?b=c").unwrap().to_string(), "https://[::1]:6443/a?b=c");
        assert!(six.uri("a").is_err());
        assert_eq!(target("https://localhost", None).unwrap().port, 443);
        assert!(target("http://localhost:1", None).is_err());
        assert!(target("https://a:1", Some("a\nb")).is_err());
    }
}
