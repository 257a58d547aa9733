//! A KMS plugin behind a Unix socket, for KMS v1 and v2.
//!
//! It encrypts by a prefix: `sealed:`, or another mark.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use schema::proto::{BackwardWriter, DELIMITED, Reader};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// The behavior of a KMS plugin.
#[derive(Debug, Clone)]
pub struct KmsBehavior {
    /// The error code and message of every response.
    pub refuses: Option<(u16, &'static str)>,
    /// Never responds.
    pub hangs: bool,
    /// The prefix of encrypted keys.
    pub mark: &'static str,
    /// KMS v2: the current key and the health.
    pub key_id: &'static str,
    pub health: &'static str,
    /// KMS v1: the reported version.
    pub version: &'static str,
    /// The length to which decrypted keys are truncated.
    pub cuts: Option<usize>,
}

impl Default for KmsBehavior {
    fn default() -> Self {
        KmsBehavior {
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

/// See the module. Dropping it stops the plugin.
pub struct KmsPlugin {
    behavior: Arc<Mutex<KmsBehavior>>,
    calls: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Drop for KmsPlugin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl KmsPlugin {
    /// Listens at a path, which may be left over from another one.
    pub fn at(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let (behavior, calls) = (Arc::<Mutex<KmsBehavior>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (shared_behavior, shared_calls) = (behavior.clone(), calls.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (behavior, calls) = (shared_behavior.clone(), shared_calls.clone());
                let service = service_fn(move |request| respond(request, behavior.clone(), calls.clone()));
                connections.spawn(async move {
                    let serving = http2::Builder::new(TokioExecutor::new());
                    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        KmsPlugin { behavior, calls, serving }
    }

    /// The same, after one connection attempt has failed.
    pub async fn late(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let looked = UnixListener::bind(path).unwrap().accept().await;
        drop(looked.unwrap());
        Self::at(path)
    }

    pub fn behave(&self, change: impl FnOnce(&mut KmsBehavior)) {
        change(&mut self.behavior.lock().unwrap());
    }

    /// How often a procedure, such as `v1beta1/Encrypt`, was called.
    pub fn calls(&self, procedure: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|it| *it == procedure).count()
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
    let mut out = BackwardWriter::new(64);
    fields.iter().rev().for_each(|(number, bytes)| out.bytes_field(*number, bytes));
    out.finish()
}

const NOTE: (&str, &str) = ("note.example.com", "n");

/// The response to a message, or an error code and message.
fn call(procedure: &str, request: &[u8], behavior: &KmsBehavior) -> Result<Vec<u8>, (u16, &'static str)> {
    if let Some(refused) = behavior.refuses {
        return Err(refused);
    }
    let request_fields = fields(request);
    let field =
        |wanted: i32| request_fields.iter().find(|(number, _)| *number == wanted).map(|(_, it)| &**it);
    let seal = |number: i32| [behavior.mark.as_bytes(), field(number).unwrap_or_default()].concat();
    let open = |number: i32| {
        let opened = field(number).unwrap_or_default().strip_prefix(behavior.mark.as_bytes());
        let opened = opened.ok_or((3, "that is not mine"))?;
        Ok(&opened[..behavior.cuts.unwrap_or(opened.len())])
    };
    let note = message(&[(1, NOTE.0.as_bytes()), (2, NOTE.1.as_bytes())]);
    Ok(match procedure {
        "v1beta1/Version" => message(&[(1, behavior.version.as_bytes()), (2, b"tests")]),
        "v1beta1/Encrypt" => message(&[(1, &seal(2))]),
        "v1beta1/Decrypt" => message(&[(1, open(2)?)]),
        "v2alpha1/Status" => {
            message(&[(1, b"v2alpha1"), (2, behavior.health.as_bytes()), (3, behavior.key_id.as_bytes())])
        }
        "v2alpha1/Encrypt" => message(&[(1, &seal(1)), (2, behavior.key_id.as_bytes()), (3, &note)]),
        "v2alpha1/Decrypt" => {
            assert_eq!(field(4), Some(&*note), "annotations are sent back");
            assert!(field(2).is_some_and(|uid| uid.len() == 36) && field(3).is_some());
            message(&[(1, open(1)?)])
        }
        other => panic!("{other} is no procedure"),
    })
}

type Frames = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn respond(
    request: Request<Incoming>,
    behavior: Arc<Mutex<KmsBehavior>>,
    calls: Arc<Mutex<Vec<String>>>,
) -> Result<Response<Frames>, Infallible> {
    let procedure = request.uri().path().trim_start_matches('/').replace(".KeyManagementService", "");
    calls.lock().unwrap().push(procedure.clone());
    let behavior = behavior.lock().unwrap().clone();
    if behavior.hangs {
        std::future::pending::<()>().await;
    }
    let mut body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.get_u8(), 0);
    assert_eq!(body.get_u32() as usize, body.len());
    let (mut frames, mut trailers) = (Vec::new(), HeaderMap::new());
    let (code, why) = match call(&procedure, &body, &behavior) {
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
