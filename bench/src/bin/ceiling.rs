//! The ceiling for reads: a bare HTTPS responder that does nothing but send bytes it has ready.
//!
//! | path | answer |
//! |---|---|
//! | `/one` | one object, from a file or made to a size |
//! | `…/pods` | a list of copies of it, as one body in pieces of 64 kB, with its length |
//! | `/readyz` | `ok` |
//!
//! What always holds: allocator, TLS and HTTP settings are those of the API server, so what differs between
//! the two is what the API server does with a request. What it does not do: look at anything but the path, or
//! gather the small writes of a connection.

use std::convert::Infallible;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::Parser;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much of a body is handed to the HTTP library at a time.
const PIECE: usize = 64 << 10;
/// More than any list worth measuring, less than would harm the machine.
const LARGEST_LIST: usize = 1 << 30;

/// A bare HTTPS responder: the most that an API server could do.
#[derive(Parser)]
#[command(name = "ceiling")]
struct Cli {
    /// Where to listen; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,
    /// The object as a file, such as one saved from the server to compare with
    #[arg(long, conflicts_with = "bytes")]
    body: Option<PathBuf>,
    /// The size of an object made up
    #[arg(long, default_value_t = 6700)]
    bytes: usize,
    /// How many copies of the object a list has
    #[arg(long, default_value_t = 10_000)]
    copies: usize,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let one = match &cli.body {
        Some(path) => std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => object(cli.bytes)?,
    };
    let bodies = Arc::new(Bodies::new(one, cli.copies)?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build()?;
    runtime.block_on(serve(cli.address, bodies))
}

/// What there is to send.
struct Bodies {
    one: Bytes,
    list: Bytes,
}

impl Bodies {
    fn new(one: Vec<u8>, copies: usize) -> anyhow::Result<Self> {
        let total = (one.len() + 1).checked_mul(copies).filter(|total| *total <= LARGEST_LIST);
        let total = total.with_context(|| format!("{copies} copies of {} bytes are too many", one.len()))?;
        let head = br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
        let mut list = Vec::with_capacity(head.len() + total + 2);
        list.extend_from_slice(head);
        for nth in 0..copies {
            if nth > 0 {
                list.push(b',');
            }
            list.extend_from_slice(&one);
        }
        list.extend_from_slice(b"]}");
        Ok(Self { one: one.into(), list: list.into() })
    }

    fn answer(&self, path: &str) -> Response<Pieces> {
        match path {
            "/one" => json(StatusCode::OK, self.one.clone()),
            "/readyz" => Response::new(Pieces(Bytes::from_static(b"ok"))),
            _ if path.ends_with("/pods") => json(StatusCode::OK, self.list.clone()),
            _ => json(StatusCode::NOT_FOUND, Bytes::from_static(b"{}")),
        }
    }
}

fn json(status: StatusCode, body: Bytes) -> Response<Pieces> {
    let mut response = Response::new(Pieces(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An object of exactly so many bytes that looks like a small pod with a long annotation.
fn object(bytes: usize) -> anyhow::Result<Vec<u8>> {
    let head = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"checkout","namespace":"bench","annotations":{"note":""#;
    let tail = r#""}},"spec":{"containers":[{"name":"api","image":"registry.example.com/shop/checkout:1"}]},"status":{"phase":"Pending"}}"#;
    let least = head.len() + tail.len();
    ensure!(bytes >= least && bytes <= LARGEST_LIST, "--bytes must be between {least} and {LARGEST_LIST}");
    let filling = "the quick brown fox jumps over the lazy dog, ".bytes().cycle().take(bytes - least);
    Ok(head.bytes().chain(filling).chain(tail.bytes()).collect())
}

/// A body that is in memory as a whole and leaves in pieces, none of them copied.
struct Pieces(Bytes);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.len().min(PIECE);
        let piece = self.0.split_to(next);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

async fn serve(address: SocketAddr, bodies: Arc<Bodies>) -> anyhow::Result<()> {
    let tls = acceptor()?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    writeln!(stdout(), "ceiling is ready on https://{}", listener.local_addr()?)?;
    loop {
        // a connection that could not be taken is the client's loss
        if let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(connection(tls.clone(), tcp, bodies.clone()));
        }
    }
}

fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let own = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves a connection to its end, however it comes.
async fn connection(tls: TlsAcceptor, tcp: TcpStream, bodies: Arc<Bodies>) {
    let _ = tcp.set_nodelay(true);
    let Ok(stream) = tls.accept(tcp).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = bodies.answer(request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let _ = if is_http2 {
        // as the API server has them
        http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(250)
            .max_frame_size(256 << 10)
            .max_send_buf_size(1 << 20)
            .serve_connection(TokioIo::new(stream), service)
            .await
    } else {
        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
    };
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn an_object_has_the_requested_size() {
        let made = object(6700).unwrap();
        assert_eq!(made.len(), 6700);
        let value: serde_json::Value = serde_json::from_slice(&made).unwrap();
        assert_eq!(value["kind"], "Pod");
        assert!(object(10).is_err());
    }

    #[tokio::test]
    async fn a_list_leaves_in_pieces_and_whole() {
        let bodies = Bodies::new(object(6700).unwrap(), 100).unwrap();
        let mut body = bodies.answer("/api/v1/namespaces/bench/pods").into_body();
        let expected = http_body::Body::size_hint(&body).exact().unwrap();
        let mut got = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            got.extend_from_slice(&piece);
        }
        assert_eq!(got.len() as u64, expected);
        let list: serde_json::Value = serde_json::from_slice(&got).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 100);
    }

    #[test]
    fn other_paths_are_not_found_and_too_much_is_refused() {
        let bodies = Bodies::new(b"{}".to_vec(), 0).unwrap();
        assert_eq!(bodies.answer("/two").status(), StatusCode::NOT_FOUND);
        assert_eq!(bodies.answer("/readyz").into_body().0, "ok");
        assert!(Bodies::new(vec![0; 1000], usize::MAX / 10).is_err());
    }
}
