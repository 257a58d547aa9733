//! A key server: it seals keys of values for others, behind a socket, in both versions that there are.
//!
//! It seals by putting `sealed:`, or what it is told to put, before what it is given.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use schema::proto::{Backward, DELIMITED, Reader};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// What a key server does.
#[derive(Debug, Clone)]
pub struct Manner {
    /// A code and a message to answer everything with.
    pub refuses: Option<(u16, &'static str)>,
    /// Never answers.
    pub hangs: bool,
    /// What is put before keys, and must stand before them to be opened.
    pub mark: &'static str,
    /// Of the second version: which key it uses, and how it says that it is.
    pub key_id: &'static str,
    pub health: &'static str,
    /// Which version of the first it says that it speaks.
    pub version: &'static str,
    /// Keys that it is asked to open become so short.
    pub cuts: Option<usize>,
}

impl Default for Manner {
    fn default() -> Self {
        Manner {
            refuses: None,
            hangs: false,
            mark: "sealed:",
            key_id: "k1",
            health: "ok",
            version: "v1beta1",
            cuts: None,
        }
    }
}

/// See the module. It ends when it is dropped.
pub struct KeyServer {
    manner: Arc<Mutex<Manner>>,
    asked: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl KeyServer {
    /// Listens at a path, which may be left over from another one.
    pub fn at(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let (manner, asked) = (Arc::<Mutex<Manner>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (manners, told) = (manner.clone(), asked.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (manners, told) = (manners.clone(), told.clone());
                let service = service_fn(move |request| answer(request, manners.clone(), told.clone()));
                connections.spawn(async move {
                    let serving = http2::Builder::new(TokioExecutor::new());
                    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        KeyServer { manner, asked, serving }
    }

    /// The same, once somebody has looked for it in vain.
    pub async fn late(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let looked = UnixListener::bind(path).unwrap().accept().await;
        drop(looked.unwrap());
        Self::at(path)
    }

    pub fn behave(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut self.manner.lock().unwrap());
    }

    /// How often a procedure, such as `v1beta1/Encrypt`, was called.
    pub fn asked(&self, procedure: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|it| *it == procedure).count()
    }
}

/// The fields of a message.
fn fields(message: &[u8]) -> Vec<(i32, Vec<u8>)> {
    let (mut reader, mut found) = (Reader::new(message), Vec::new());
    while let Some((number, wire)) = reader.tag("message").unwrap() {
        assert_eq!(wire, DELIMITED);
        found.push((number, reader.delimited().unwrap().to_vec()));
    }
    found
}

/// A message of these fields, which must be in order.
fn message(fields: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = Backward::new(64);
    fields.iter().rev().for_each(|(number, bytes)| out.bytes_field(*number, bytes));
    out.finish()
}

const NOTE: (&str, &str) = ("note.example.com", "n");

/// What is answered to a message, or a code and why there is nothing.
fn worked_out(procedure: &str, asked: &[u8], manner: &Manner) -> Result<Vec<u8>, (u16, &'static str)> {
    if let Some(refused) = manner.refuses {
        return Err(refused);
    }
    let asked = fields(asked);
    let field = |wanted: i32| asked.iter().find(|(number, _)| *number == wanted).map(|(_, it)| &**it);
    let seal = |number: i32| [manner.mark.as_bytes(), field(number).unwrap_or_default()].concat();
    let open = |number: i32| {
        let opened = field(number).unwrap_or_default().strip_prefix(manner.mark.as_bytes());
        let opened = opened.ok_or((3, "that is not mine"))?;
        Ok(&opened[..manner.cuts.unwrap_or(opened.len())])
    };
    let note = message(&[(1, NOTE.0.as_bytes()), (2, NOTE.1.as_bytes())]);
    Ok(match procedure {
        "v1beta1/Version" => message(&[(1, manner.version.as_bytes()), (2, b"tests")]),
        "v1beta1/Encrypt" => message(&[(1, &seal(2))]),
        "v1beta1/Decrypt" => message(&[(1, open(2)?)]),
        "v2alpha1/Status" => {
            message(&[(1, b"v2alpha1"), (2, manner.health.as_bytes()), (3, manner.key_id.as_bytes())])
        }
        "v2alpha1/Encrypt" => message(&[(1, &seal(1)), (2, manner.key_id.as_bytes()), (3, &note)]),
        "v2alpha1/Decrypt" => {
            assert_eq!(field(4), Some(&*note), "what it said is told again");
            assert!(field(2).is_some_and(|uid| uid.len() == 36) && field(3).is_some());
            message(&[(1, open(1)?)])
        }
        other => panic!("{other} is no procedure"),
    })
}

type Frames = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn answer(
    request: Request<Incoming>,
    manner: Arc<Mutex<Manner>>,
    told: Arc<Mutex<Vec<String>>>,
) -> Result<Response<Frames>, Infallible> {
    let procedure = request.uri().path().trim_start_matches('/').replace(".KeyManagementService", "");
    told.lock().unwrap().push(procedure.clone());
    let manner = manner.lock().unwrap().clone();
    if manner.hangs {
        std::future::pending::<()>().await;
    }
    let mut body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.get_u8(), 0);
    assert_eq!(body.get_u32() as usize, body.len());
    let (mut frames, mut trailers) = (Vec::new(), HeaderMap::new());
    let (code, why) = match worked_out(&procedure, &body, &manner) {
        Ok(message) => {
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(message.len() as u32);
            framed.put_slice(&message);
            frames.push(Ok(Frame::data(framed.freeze())));
            (0, "")
        }
        Err(refused) => refused,
    };
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static(why));
    frames.push(Ok(Frame::trailers(trailers)));
    Ok(Response::new(StreamBody::new(futures_util::stream::iter(frames))))
}
