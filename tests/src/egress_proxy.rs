//! An egress proxy that connects every destination to one local port, or misbehaves.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use outbound::{Dialer, Protocol, Proxy, Target};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use schema::proto::{BackwardWriter, DELIMITED, Reader, VARINT};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    Tcp,
    /// With TLS, for one trusted client certificate.
    Tls,
    Socket,
    Konnectivity,
}

impl ProxyKind {
    pub const ALL: [ProxyKind; 4] =
        [ProxyKind::Tcp, ProxyKind::Tls, ProxyKind::Socket, ProxyKind::Konnectivity];
}

/// The behavior of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyBehavior {
    Good,
    Refuse,
    Silent,
    /// Closes the connection.
    Cut,
    /// Closes the connection after so many bytes from upstream.
    CutAfter(usize),
    Nonsense,
    /// An endless response.
    Flood,
}

/// See the module. Dropping it stops the proxy.
pub struct EgressProxy {
    /// The URL and the trusted authorities.
    pub target: Target,
    pub protocol: Protocol,
    destinations: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Clone)]
struct ProxyState {
    behavior: ProxyBehavior,
    /// The local port of every destination.
    port: u16,
    destinations: Arc<Mutex<Vec<String>>>,
}

impl EgressProxy {
    pub async fn start(kind: ProxyKind, behavior: ProxyBehavior, port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let destinations = Arc::<Mutex<Vec<String>>>::default();
        let state = ProxyState { behavior, port, destinations: destinations.clone() };
        let protocol = if kind == ProxyKind::Konnectivity { Protocol::Grpc } else { Protocol::HttpConnect };
        let (target, serving) = match kind {
            ProxyKind::Socket | ProxyKind::Konnectivity => {
                let path = folder.path().join("proxy.sock");
                let listener = UnixListener::bind(&path).unwrap();
                let url = format!("unix:{}", path.display());
                let serving = tokio::spawn(async move {
                    let mut connections = JoinSet::new();
                    while let Ok((stream, _)) = listener.accept().await {
                        connections.spawn(serve(state.clone(), protocol, stream));
                    }
                });
                (Target { url, ..Target::default() }, serving)
            }
            ProxyKind::Tcp | ProxyKind::Tls => over_tcp(kind, state).await,
        };
        EgressProxy { target, protocol, destinations, serving, _folder: folder }
    }

    /// A dialer through the proxy.
    pub fn dialer(&self) -> Dialer {
        Dialer::Through(Arc::new(Proxy::new(self.protocol, &self.target).unwrap()))
    }

    /// The requested destinations.
    pub fn destinations(&self) -> Vec<String> {
        self.destinations.lock().unwrap().clone()
    }
}

async fn over_tcp(kind: ProxyKind, state: ProxyState) -> (Target, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let [own, client] =
        ["localhost", "caller"].map(|name| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap());
    let mut target = Target { url: format!("http://localhost:{port}"), ..Target::default() };
    let mut acceptor = None;
    if kind == ProxyKind::Tls {
        let mut believed = rustls::RootCertStore::empty();
        believed.add(client.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(believed), provider.clone());
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        acceptor = Some(TlsAcceptor::from(Arc::new(config)));
        let pem = |text: String| text.into_bytes();
        target = Target {
            url: format!("https://localhost:{port}"),
            authorities: Some(pem(own.cert.pem())),
            identity: Some((pem(client.cert.pem()), pem(client.signing_key.serialize_pem()))),
            ..Target::default()
        };
    }
    let serving = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (state, acceptor) = (state.clone(), acceptor.clone());
            connections.spawn(async move {
                match acceptor {
                    None => serve_connect(state, stream).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve_connect(state, stream).await;
                        }
                    }
                }
            });
        }
    });
    (target, serving)
}

async fn serve(
    state: ProxyState,
    protocol: Protocol,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    match protocol {
        Protocol::HttpConnect => serve_connect(state, stream).await,
        Protocol::Grpc => serve_konnectivity(state, stream).await,
    }
}

/// Copies both ways; with `CutAfter`, until so many bytes came from upstream.
async fn join(state: &ProxyState, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let Ok(mut upstream) = TcpStream::connect(("127.0.0.1", state.port)).await else { return };
    let ProxyBehavior::CutAfter(most) = state.behavior else {
        let mut stream = stream;
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
        return;
    };
    let ((mut read, mut write), (from, mut to)) = (tokio::io::split(stream), upstream.split());
    let mut some = from.take(most as u64);
    tokio::select! {
        _ = tokio::io::copy(&mut read, &mut to) => {}
        _ = tokio::io::copy(&mut some, &mut write) => {}
    }
}

async fn serve_connect(state: ProxyState, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => seen.push(byte),
            Err(_) => return,
        }
    }
    let text = String::from_utf8_lossy(&seen).into_owned();
    let to = text.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or("");
    state.destinations.lock().unwrap().push(to.to_owned());
    match state.behavior {
        ProxyBehavior::Good | ProxyBehavior::CutAfter(_) => {
            if stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
                join(&state, stream).await;
            }
        }
        ProxyBehavior::Refuse => {
            _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await
        }
        ProxyBehavior::Silent => std::future::pending().await,
        ProxyBehavior::Cut => {}
        ProxyBehavior::Nonsense => _ = stream.write_all(b"220 mail.example ESMTP\r\n\r\n").await,
        ProxyBehavior::Flood => while stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await.is_ok() {},
    }
}

/// The konnectivity protocol.
async fn serve_konnectivity(state: ProxyState, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    if state.behavior == ProxyBehavior::Nonsense {
        let mut stream = stream;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        return;
    }
    let service = service_fn(move |request| respond(state.clone(), request));
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Packets = mpsc::Sender<Result<Bytes, std::io::Error>>;

async fn respond(state: ProxyState, request: Request<Incoming>) -> Result<Response<Channel>, Infallible> {
    assert_eq!(request.uri().path(), "/ProxyService/Proxy");
    let (packets, sent) = mpsc::channel(4);
    tokio::spawn(tunnel(state, request.into_body(), packets));
    let mut response = Response::new(Channel(sent));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

struct Channel(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl Body for Channel {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|next| next.map(|part| part.map(Frame::data)))
    }
}

const ID: u64 = 7;

async fn tunnel(state: ProxyState, mut body: Incoming, packets: Packets) {
    let mut messages = BytesMut::new();
    let mut upstream = None;
    while let Some(Ok(frame)) = body.frame().await {
        messages.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(message) = whole(&mut messages) {
            match read(&message) {
                (2, fields) => {
                    state
                        .destinations
                        .lock()
                        .unwrap()
                        .push(String::from_utf8_lossy(&fields.texts[1]).into_owned());
                    match dial(&state, fields.numbers[2], &packets).await {
                        Some(stream) => upstream = Some(stream),
                        None => return,
                    }
                }
                (4, fields) => {
                    assert_eq!(fields.numbers[0], ID);
                    if let Some(upstream) = &mut upstream
                        && upstream.write_all(&fields.texts[2]).await.is_err()
                    {
                        return;
                    }
                }
                (5, _) => {
                    let mut out = BackwardWriter::new(64);
                    out.varint_field(2, ID);
                    out.enclose(6, 0);
                    out.varint_field(1, 3);
                    let _ = packets.send(Ok(framed(out))).await;
                    return;
                }
                (other, _) => panic!("a packet with {other}"),
            }
        }
    }
}

/// Responds to a dial request and copies packets from upstream.
async fn dial(state: &ProxyState, random: u64, packets: &Packets) -> Option<tokio::net::tcp::OwnedWriteHalf> {
    let response = |error: &str| {
        let mut out = BackwardWriter::new(64);
        out.varint_field(3, random);
        out.varint_field(2, ID);
        out.bytes_field(1, error.as_bytes());
        out.enclose(3, 0);
        out.varint_field(1, 1);
        framed(out)
    };
    let most = match state.behavior {
        ProxyBehavior::Good => usize::MAX,
        ProxyBehavior::CutAfter(most) => most,
        ProxyBehavior::Refuse => {
            let _ = packets.send(Ok(response("no backend"))).await;
            return None;
        }
        ProxyBehavior::Silent | ProxyBehavior::Nonsense => std::future::pending().await,
        ProxyBehavior::Cut => return None,
        ProxyBehavior::Flood => {
            // a packet of four gigabytes
            let _ = packets.send(Ok(Bytes::from_static(b"\0\xff\xff\xff\xff"))).await;
            while packets.send(Ok(Bytes::from_static(&[b'x'; 64 * 1024]))).await.is_ok() {}
            return None;
        }
    };
    let upstream = TcpStream::connect(("127.0.0.1", state.port)).await.unwrap();
    packets.send(Ok(response(""))).await.ok()?;
    let (mut from, to) = upstream.into_split();
    let packets = packets.clone();
    tokio::spawn(async move {
        let (mut part, mut passed) = (vec![0; 8 * 1024], 0);
        while let Ok(count @ 1..) = from.read(&mut part).await {
            passed += count;
            if passed > most {
                let _ = packets.send(Err(std::io::Error::other("cut"))).await;
                return;
            }
            let mut out = BackwardWriter::new(64 + count);
            out.bytes_field(3, &part[..count]);
            out.varint_field(1, ID);
            out.enclose(4, 0);
            out.varint_field(1, 4);
            if packets.send(Ok(framed(out))).await.is_err() {
                return;
            }
        }
    });
    Some(to)
}

fn framed(message: BackwardWriter) -> Bytes {
    let message = message.finish();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(&message);
    framed.freeze()
}

fn whole(read: &mut BytesMut) -> Option<Bytes> {
    let length = read.get(1..5)?.get_u32() as usize;
    if read.len() < 5 + length {
        return None;
    }
    read.advance(5);
    Some(read.split_to(length).freeze())
}

#[derive(Default)]
struct Fields {
    numbers: [u64; 3],
    texts: [Vec<u8>; 3],
}

/// The number of the packet's field and the fields inside.
fn read(message: &[u8]) -> (i32, Fields) {
    let mut reader = Reader::new(message);
    while let Some((number, wire)) = reader.tag("packet").unwrap() {
        if wire != DELIMITED {
            reader.skip(wire).unwrap();
            continue;
        }
        let mut part = Reader::new(reader.delimited().unwrap());
        let mut fields = Fields::default();
        while let Some((at, wire)) = part.tag("part").unwrap() {
            let at = usize::try_from(at).unwrap() - 1;
            match wire {
                VARINT => fields.numbers[at] = part.varint().unwrap(),
                _ => fields.texts[at] = part.delimited().unwrap().to_vec(),
            }
        }
        return (number, fields);
    }
    panic!("an empty packet");
}
