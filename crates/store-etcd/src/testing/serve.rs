//! The fake etcd's gRPC server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use grpc::Message;
use grpc::etcd::auth_server::{Auth, AuthServer};
use grpc::etcd::compare::{CompareResult, TargetUnion};
use grpc::etcd::event::EventType;
use grpc::etcd::kv_server::{Kv, KvServer};
use grpc::etcd::lease_server::{Lease, LeaseServer};
use grpc::etcd::maintenance_server::{Maintenance, MaintenanceServer};
use grpc::etcd::request_op::Request as Op;
use grpc::etcd::response_op::Response as OpResponse;
use grpc::etcd::watch_request::RequestUnion;
use grpc::etcd::watch_server::{Watch, WatchServer};
use grpc::etcd::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, CompactionResponse, Event, KeyValue,
    LeaseGrantRequest, LeaseGrantResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest,
    RangeResponse, RequestOp, ResponseHeader, ResponseOp, StatusRequest, StatusResponse, TxnRequest,
    TxnResponse, WatchRequest, WatchResponse,
};
use grpc::tonic::codegen::{BoxStream, Service};
use grpc::tonic::{Request, Response, Status, Streaming};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::data::{Data, HistoryEntry, StoredValue};
use super::state::{FakeServer, Faults, Inner, OVERTAKING};

type CallResult<T> = Result<Response<T>, Status>;

/// Responses of a watch that may be queued for sending.
const MAX_QUEUED: usize = 16;

pub(super) async fn listen(listener: TcpListener, server: Arc<FakeServer>, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        if server.open.load(Ordering::SeqCst) {
            tokio::spawn(connection(stream, server.clone(), inner.clone()));
        }
    }
}

async fn connection(stream: TcpStream, server: Arc<FakeServer>, inner: Arc<Inner>) {
    let mut cuts = server.cuts.subscribe();
    let handler = Arc::new(Handler { server: server.clone(), inner });
    let service = service_fn(move |request| route(handler.clone(), request));
    let serve = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // the client may close the connection in any way
        _ = serve => (),
        _ = cuts.changed() => (),
    }
}

/// Passes a request to the service that its path names.
async fn route(
    handler: Arc<Handler>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<grpc::tonic::body::Body>, Infallible> {
    let service = request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
    match &*service {
        "etcdserverpb.KV" => KvServer::from_arc(handler).call(request).await,
        "etcdserverpb.Watch" => WatchServer::from_arc(handler).call(request).await,
        "etcdserverpb.Lease" => LeaseServer::from_arc(handler).call(request).await,
        "etcdserverpb.Maintenance" => MaintenanceServer::from_arc(handler).call(request).await,
        "etcdserverpb.Auth" => AuthServer::from_arc(handler).call(request).await,
        _ => Ok(Status::unimplemented("unknown service").into_http()),
    }
}

/// Handles the calls of one connection.
struct Handler {
    server: Arc<FakeServer>,
    inner: Arc<Inner>,
}

impl Handler {
    /// Injects the faults that every call may have, and checks the token if the cluster has a user.
    fn admit<M: Message>(&self, request: &Request<M>) -> Result<(), Status> {
        let faults = &self.inner.faults;
        if Faults::one_of(&faults.unavailable) {
            return Err(Status::unavailable("etcdserver: leader changed"));
        }
        self.authenticate(request)?;
        if request.get_ref().encoded_len() > faults.largest.load(Ordering::SeqCst) {
            return Err(Status::invalid_argument("etcdserver: request is too large"));
        }
        Ok(())
    }

    fn authenticate<M>(&self, request: &Request<M>) -> Result<(), Status> {
        let data = self.inner.data.lock();
        if data.user.is_none() {
            return Ok(());
        }
        match request.metadata().get("token").map(|token| token.as_bytes()) {
            None => Err(Status::invalid_argument("etcdserver: user name is empty")),
            Some(token) if token == data.token().as_bytes() => Ok(()),
            Some(_) => Err(Status::unauthenticated("etcdserver: invalid auth token")),
        }
    }

    /// Cuts the connection instead of a response.
    async fn cut<T>(&self) -> CallResult<T> {
        self.server.cuts.send_modify(|cuts| *cuts += 1);
        std::future::pending().await
    }
}

#[grpc::tonic::async_trait]
impl Kv for Handler {
    async fn range(&self, request: Request<RangeRequest>) -> CallResult<RangeResponse> {
        self.admit(&request)?;
        self.inner.faults.range_requests.fetch_add(1, Ordering::SeqCst);
        range(&self.inner.data.lock(), request.get_ref()).map(Response::new)
    }

    async fn txn(&self, request: Request<TxnRequest>) -> CallResult<TxnResponse> {
        self.admit(&request)?;
        let faults = &self.inner.faults;
        if Faults::one_of(&faults.lose_questions) {
            return self.cut().await;
        }
        let done = txn(&self.inner, request.get_ref());
        if Faults::one_of(&faults.lose_answers) {
            return self.cut().await;
        }
        let _ = faults.hold_answers.subscribe().wait_for(|held| !held).await;
        done.map(Response::new)
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> CallResult<CompactionResponse> {
        self.admit(&request)?;
        let mut data = self.inner.data.lock();
        let revision = request.get_ref().revision as u64;
        if revision <= data.compacted {
            return Err(compacted());
        }
        data.compacted = revision;
        Ok(Response::new(CompactionResponse { header: header(&data) }))
    }
}

#[grpc::tonic::async_trait]
impl Lease for Handler {
    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> CallResult<LeaseGrantResponse> {
        self.admit(&request)?;
        let mut data = self.inner.data.lock();
        let ttl = request.get_ref().ttl;
        let id = data.grant(ttl);
        Ok(Response::new(LeaseGrantResponse { header: header(&data), id, ttl, error: String::new() }))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> CallResult<LeaseTimeToLiveResponse> {
        self.admit(&request)?;
        let data = self.inner.data.lock();
        let id = request.get_ref().id;
        let ttl = data.leases.get(&id).copied().unwrap_or(-1);
        let header = header(&data);
        Ok(Response::new(LeaseTimeToLiveResponse { header, id, ttl, ..Default::default() }))
    }
}

#[grpc::tonic::async_trait]
impl Maintenance for Handler {
    async fn status(&self, request: Request<StatusRequest>) -> CallResult<StatusResponse> {
        self.admit(&request)?;
        let data = self.inner.data.lock();
        let db_size = 4096 + data.keys.len() as i64;
        let (header, version) = (header(&data), data.version.clone());
        let has_alarm = self.inner.faults.no_space.load(Ordering::SeqCst);
        let errors = has_alarm.then(|| "memberID:1 alarm:NOSPACE ".to_owned()).into_iter().collect();
        Ok(Response::new(StatusResponse { header, version, db_size, errors, ..Default::default() }))
    }
}

#[grpc::tonic::async_trait]
impl Auth for Handler {
    async fn authenticate(&self, request: Request<AuthenticateRequest>) -> CallResult<AuthenticateResponse> {
        let data = self.inner.data.lock();
        let AuthenticateRequest { name, password } = request.into_inner();
        if data.user.as_ref() != Some(&(name, password)) {
            return Err(Status::invalid_argument(
                "etcdserver: authentication failed, invalid user ID or password",
            ));
        }
        Ok(Response::new(AuthenticateResponse { header: header(&data), token: data.token() }))
    }
}

#[grpc::tonic::async_trait]
impl Watch for Handler {
    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> CallResult<BoxStream<WatchResponse>> {
        self.authenticate(&request)?;
        let (responses, mut queued) = mpsc::channel(MAX_QUEUED);
        tokio::spawn(watch(request.into_inner(), responses, self.inner.clone()));
        let stream = futures_util::stream::poll_fn(move |context| queued.poll_recv(context));
        Ok(Response::new(Box::pin(stream)))
    }
}

fn compacted() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}

fn range(data: &Data, request: &RangeRequest) -> Result<RangeResponse, Status> {
    let (limit, revision) = (request.limit as usize, request.revision as u64);
    if revision > data.revision {
        return Err(Status::out_of_range("etcdserver: mvcc: required revision is a future revision"));
    }
    if revision > 0 && revision < data.compacted {
        return Err(compacted());
    }
    let then = (revision > 0).then(|| data.at(revision));
    let keys = then.as_ref().unwrap_or(&data.keys);
    let matches: Vec<_> =
        keys.iter().filter(|(it, _)| within(it, &request.key, &request.range_end)).collect();
    let taken = if limit == 0 { matches.len() } else { limit.min(matches.len()) };
    let pairs = matches[..taken].iter().map(|(key, stored)| {
        let pair = pair(key, stored);
        if request.keys_only { KeyValue { value: Default::default(), ..pair } } else { pair }
    });
    Ok(RangeResponse {
        header: header(data),
        kvs: pairs.collect(),
        more: taken < matches.len(),
        count: matches.len() as i64,
    })
}

fn within(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    match end {
        b"" => key == from,
        b"\0" => key >= from,
        end => (from..end).contains(&key),
    }
}

fn txn(inner: &Inner, request: &TxnRequest) -> Result<TxnResponse, Status> {
    let mut data = inner.data.lock();
    let holds = request.compare.iter().all(|compare| {
        let stored = data.keys.get(&compare.key);
        let (actual, expected) = match compare.target_union {
            Some(TargetUnion::Version(version)) => (stored.map_or(0, |it| it.version), version),
            Some(TargetUnion::CreateRevision(revision)) => (stored.map_or(0, |it| it.created), revision),
            Some(TargetUnion::ModRevision(revision)) => (stored.map_or(0, |it| it.modified), revision),
            Some(TargetUnion::Value(_) | TargetUnion::Lease(_)) | None => (0, 0),
        };
        match compare.result() {
            CompareResult::Greater => actual > expected as u64,
            _ => actual == expected as u64,
        }
    });
    let mut responses = Vec::new();
    let is_put = |it: &RequestOp| matches!(it.request, Some(Op::RequestPut(_)));
    // a transaction without puts, in either branch, needs no space
    if inner.faults.no_space.load(Ordering::SeqCst) && request.success.iter().any(is_put) {
        return Err(Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
    }
    if holds {
        let puts = request.success.iter().filter_map(|op| match &op.request {
            Some(Op::RequestPut(put)) => Some(put.lease),
            _ => None,
        });
        if puts.into_iter().any(|lease| lease != 0 && !data.leases.contains_key(&lease)) {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        let revision = data.change(|data| {
            for op in &request.success {
                match &op.request {
                    Some(Op::RequestPut(put)) => data.put(put.key.clone(), put.value.clone(), put.lease),
                    Some(Op::RequestDeleteRange(delete)) => data.delete(&delete.key),
                    Some(Op::RequestRange(_) | Op::RequestTxn(_)) | None => (),
                }
            }
        });
        inner.newest.send_replace(revision);
    } else {
        for op in &request.failure {
            if let Some(Op::RequestRange(read)) = &op.request {
                let response = OpResponse::ResponseRange(range(&data, read)?);
                responses.push(ResponseOp { response: Some(response) });
            }
        }
    }
    Ok(TxnResponse { header: header(&data), succeeded: holds, responses })
}

/// Serves a stream with one watch.
async fn watch(
    mut requests: Streaming<WatchRequest>,
    responses: mpsc::Sender<Result<WatchResponse, Status>>,
    inner: Arc<Inner>,
) {
    let Ok(Some(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) })) =
        requests.message().await
    else {
        return;
    };
    inner.faults.watches_opened.fetch_add(1, Ordering::SeqCst);
    let created =
        WatchResponse { header: header(&inner.data.lock()), created: true, ..WatchResponse::default() };
    if responses.send(Ok(created)).await.is_err() {
        return;
    }
    let (mut next, mut newest) = (create.start_revision as u64, inner.newest.subscribe());
    let mut held = inner.faults.hold_watches.subscribe();
    loop {
        let is_held = *held.borrow_and_update();
        if !is_held {
            newest.borrow_and_update();
            let (messages, goes_on) = watch_responses(&inner, &create.key, &create.range_end, &mut next);
            for message in messages {
                if responses.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            if !goes_on {
                // the stream stays open without a watch
                while let Ok(Some(_)) = requests.message().await {}
                return;
            }
        }
        tokio::select! {
            message = requests.message() => {
                if !matches!(message, Ok(Some(_))) {
                    return;
                }
                inner.faults.progress_requests.fetch_add(1, Ordering::SeqCst);
                let progress = {
                    let data = inner.data.lock();
                    // events in flight delay the progress response, except in versions that let it overtake
                    if (is_held || next <= data.revision) && data.version != OVERTAKING {
                        continue;
                    }
                    WatchResponse { header: header(&data), watch_id: -1, ..WatchResponse::default() }
                };
                if responses.send(Ok(progress)).await.is_err() {
                    return;
                }
            }
            () = responses.closed() => return,
            _ = newest.changed(), if !is_held => (),
            _ = held.changed() => (),
        }
    }
}

/// The responses for a watch from a revision on, and whether the watch continues.
fn watch_responses(inner: &Inner, key: &[u8], end: &[u8], next: &mut u64) -> (Vec<WatchResponse>, bool) {
    let data = inner.data.lock();
    if *next <= data.compacted && *next <= data.revision {
        let canceled = WatchResponse {
            header: header(&data),
            canceled: true,
            compact_revision: data.compacted as i64,
            ..WatchResponse::default()
        };
        return (vec![canceled], false);
    }
    let changes: Vec<_> =
        data.history.iter().filter(|it| it.revision >= *next && within(&it.key, key, end)).collect();
    *next = data.revision + 1;
    if changes.is_empty() {
        return (Vec::new(), true);
    }
    let size = if inner.faults.fragments.load(Ordering::SeqCst) { 1 } else { changes.len() };
    let pieces = changes.chunks(size);
    let last = pieces.len() - 1;
    let response = |(at, piece): (usize, &[&HistoryEntry])| WatchResponse {
        header: header(&data),
        fragment: at < last,
        events: piece.iter().map(|entry| event(entry)).collect(),
        ..WatchResponse::default()
    };
    (pieces.enumerate().map(response).collect(), true)
}

fn event(entry: &HistoryEntry) -> Event {
    let (kind, pair) = match &entry.stored {
        Some(stored) => (EventType::Put, pair(&entry.key, stored)),
        None => {
            let mod_revision = entry.revision as i64;
            (EventType::Delete, KeyValue { key: entry.key.clone(), mod_revision, ..KeyValue::default() })
        }
    };
    Event { r#type: kind.into(), kv: Some(pair), prev_kv: None }
}

fn pair(key: &bytes::Bytes, stored: &StoredValue) -> KeyValue {
    KeyValue {
        key: key.clone(),
        create_revision: stored.created as i64,
        mod_revision: stored.modified as i64,
        version: stored.version as i64,
        value: stored.value.clone(),
        lease: stored.lease,
    }
}

fn header(data: &Data) -> Option<ResponseHeader> {
    let revision = data.revision as i64;
    Some(ResponseHeader { cluster_id: data.cluster, revision, ..Default::default() })
}
