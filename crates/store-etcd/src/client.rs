//! A client for the servers of one etcd cluster.
//!
//! Invariants: a call ends within its timeout. A read is retried on the next server until then. A write is retried
//! only if the first attempt certainly was not applied: a write whose response was lost may have been applied.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use env::World;
use env::io::{RealInstant, sleep};
use grpc::etcd::auth_client::AuthClient;
use grpc::etcd::kv_client::KvClient;
use grpc::etcd::lease_client::LeaseClient;
use grpc::etcd::maintenance_client::MaintenanceClient;
use grpc::etcd::watch_client::WatchClient;
use grpc::etcd::{
    AuthenticateRequest, CompactionRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, RangeRequest,
    RangeResponse, StatusRequest, StatusResponse, WatchRequest, WatchResponse,
};
use grpc::tonic::metadata::{Ascii, MetadataValue};
use grpc::tonic::{Code, Request, Response, Status, Streaming};
use outbound::{Channel, Credentials, InvalidTarget, RpcError, Target};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::txn::{Txn, TxnOutcome};

/// The timeout of one call, and the time within which a failed call is retried.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(3);
/// The largest response, and the largest message of a watch.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Requests of a watch that may be queued for sending.
const MAX_QUEUED_REQUESTS: usize = 16;

/// Metadata of every call: a member without a leader fails the call instead of serving stale data.
const METADATA: &[(&str, &str)] = &[("hasleader", "true")];
const NO_LEADER: &str = "etcdserver: no leader";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const NO_LEASE: &str = "etcdserver: requested lease not found";
/// The token is unknown to the server, or older than a change of users or roles.
const STALE_TOKEN: [&str; 2] =
    ["etcdserver: invalid auth token", "etcdserver: revision of auth store is old"];

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {why}")]
pub(crate) struct ClientError {
    url: String,
    why: RpcError,
}

impl ClientError {
    /// Whether the request certainly was not applied.
    pub(crate) fn is_not_applied(&self) -> bool {
        match &self.why {
            RpcError::Unsent(_) => true,
            RpcError::Refused { code, message } => {
                use Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown};
                message == NO_LEADER
                    || !matches!(code, Cancelled | Unknown | DeadlineExceeded | Internal | Unavailable)
            }
            _ => false,
        }
    }

    /// The message of a refusal with this code.
    fn refused(&self, with: Code) -> Option<&str> {
        match &self.why {
            RpcError::Refused { code, message } if *code == with => Some(message),
            _ => None,
        }
    }

    /// Whether the server refused the call.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.why, RpcError::Refused { .. })
    }

    fn has_stale_token(&self) -> bool {
        matches!(&self.why, RpcError::Refused { message, .. } if STALE_TOKEN.contains(&&**message))
    }

    /// Whether the response exceeds [`MAX_MESSAGE_BYTES`].
    pub(crate) fn is_response_too_large(&self) -> bool {
        matches!(self.why, RpcError::TooLarge)
    }

    /// Whether the request exceeds etcd's limit.
    pub(crate) fn is_request_too_large(&self) -> bool {
        self.refused(Code::InvalidArgument).is_some_and(|why| why.contains("request is too large"))
            || self.refused(Code::ResourceExhausted).is_some_and(|why| why.contains("larger than max"))
    }

    /// Whether the requested revision has been compacted.
    pub(crate) fn compacted(&self) -> bool {
        self.refused(Code::OutOfRange).is_some_and(|why| why.contains("compacted"))
    }

    /// Whether the request was refused because the database has reached its quota.
    pub(crate) fn is_without_space(&self) -> bool {
        self.refused(Code::ResourceExhausted) == Some(NO_SPACE)
    }

    pub(crate) fn is_lease_not_found(&self) -> bool {
        matches!(&self.why, RpcError::Refused { message, .. } if message == NO_LEASE)
    }

    /// Whether another server may succeed.
    pub(crate) fn is_retriable(&self) -> bool {
        match &self.why {
            RpcError::TooLarge => false,
            RpcError::Refused { code, .. } => *code == Code::Unavailable,
            RpcError::Unsent(_) | RpcError::Lost(_) | RpcError::Timeout(_) => true,
        }
    }
}

/// See the module.
pub(crate) struct Client {
    servers: Vec<Server>,
    current: AtomicUsize,
    /// The user and password, for clusters with authentication.
    login: Option<AuthenticateRequest>,
    /// The token that stands for them; servers of one cluster accept each other's.
    token: Mutex<Option<MetadataValue<Ascii>>>,
    world: World,
}

struct Server {
    url: String,
    channel: Channel,
}

impl Server {
    fn error(&self, why: RpcError) -> ClientError {
        ClientError { url: self.url.clone(), why }
    }
}

/// Whether a call may be sent twice.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    Repeatable,
    NonRepeatable,
}

impl Client {
    /// Fails without targets. User and password are the first target's basic credentials.
    pub(crate) fn new(targets: &[Target], world: World) -> Result<Self, InvalidTarget> {
        let servers = targets.iter().map(|target| {
            Channel::new(target, METADATA).map(|channel| Server { url: target.url.clone(), channel })
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let Some(first) = targets.first() else {
            return Err(InvalidTarget::Url(String::new()));
        };
        let login = match &first.credentials {
            Credentials::Basic { user, password } => {
                Some(AuthenticateRequest { name: user.clone(), password: password.clone() })
            }
            _ => None,
        };
        Ok(Client { servers, current: AtomicUsize::new(0), login, token: Mutex::new(None), world })
    }

    /// Calls a method on the current server, and on the next ones while retrying is allowed.
    async fn call<M, T, F>(
        &self,
        message: M,
        retry: RetryPolicy,
        method: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, ClientError>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let began = RealInstant::now();
        let mut pause = Backoff::default();
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let left = CALL_TIMEOUT.saturating_sub(began.elapsed());
            let failure = match self.call_one(at, &message, left, &method).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if failure.is_retriable() {
                self.rotate_from(at);
            }
            let again =
                failure.is_retriable() && (retry == RetryPolicy::Repeatable || failure.is_not_applied());
            if !again || began.elapsed() > TIMEOUT {
                return Err(failure);
            }
            // each other server is tried once without a delay
            if pause.tries >= self.servers.len() - 1 {
                sleep(pause.next(&self.world)).await;
            } else {
                pause.tries += 1;
            }
        }
    }

    /// Calls a method on one server; once more with a new token if the server rejects the token.
    async fn call_one<M, T, F>(
        &self,
        at: usize,
        message: &M,
        time: Duration,
        method: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<T, ClientError>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let server = self.server(at);
        let mut is_repeated = false;
        loop {
            let mut request = Request::new(message.clone());
            let token = self.token(server, time).await?;
            if let Some(token) = &token {
                request.metadata_mut().insert("token", token.clone());
            }
            let answer = server.channel.within(time, method(server.channel.clone(), request)).await;
            match answer.map_err(|why| server.error(why)) {
                Err(failure) if failure.has_stale_token() && token.is_some() && !is_repeated => {
                    is_repeated = true;
                    // unless another caller has already replaced it
                    self.token.lock().take_if(|current| Some(&*current) == token.as_ref());
                }
                answer => return answer,
            }
        }
    }

    /// The token of the configured user, if there is one.
    async fn token(
        &self,
        server: &Server,
        time: Duration,
    ) -> Result<Option<MetadataValue<Ascii>>, ClientError> {
        let Some(login) = &self.login else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let mut client = AuthClient::new(server.channel.clone());
        let answer = server.channel.within(time, client.authenticate(login.clone())).await;
        let token = answer.map_err(|why| server.error(why))?.token.parse::<MetadataValue<Ascii>>();
        let token = token.map_err(|_| {
            let message = "its token is not valid in a header".to_owned();
            server.error(RpcError::Refused { code: Code::Internal, message })
        })?;
        *self.token.lock() = Some(token.clone());
        Ok(Some(token))
    }

    fn server(&self, at: usize) -> &Server {
        &self.servers[at % self.servers.len()]
    }

    /// Reads a range of keys.
    pub(crate) async fn range(&self, range: &RangeRequest) -> Result<RangeResponse, ClientError> {
        let method = |channel, request| async move { kv(channel).range(request).await };
        self.call(range.clone(), RetryPolicy::Repeatable, method).await
    }

    pub(crate) async fn txn(&self, txn: &Txn) -> Result<TxnOutcome, ClientError> {
        let method = |channel, request| async move { kv(channel).txn(request).await };
        Ok(self.call(txn.message(), RetryPolicy::NonRepeatable, method).await?.into())
    }

    /// Compacts the history up to a revision.
    pub(crate) async fn compact(&self, revision: u64) -> Result<(), ClientError> {
        let method = |channel, request| async move { kv(channel).compact(request).await };
        let request = CompactionRequest { revision: revision as i64, physical: false };
        self.call(request, RetryPolicy::Repeatable, method).await.map(drop)
    }

    /// The id of a new lease.
    pub(crate) async fn grant(&self, seconds: i64) -> Result<i64, ClientError> {
        let method = |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
        let request = LeaseGrantRequest { ttl: seconds, id: 0 };
        Ok(self.call(request, RetryPolicy::Repeatable, method).await?.id)
    }

    /// The seconds that a lease lasts, unless it has ended.
    pub(crate) async fn time_to_live(&self, lease: i64) -> Result<Option<i64>, ClientError> {
        let method =
            |channel, request| async move { LeaseClient::new(channel).lease_time_to_live(request).await };
        let request = LeaseTimeToLiveRequest { id: lease, keys: false };
        let left = self.call(request, RetryPolicy::Repeatable, method).await?.ttl;
        Ok((left >= 0).then_some(left))
    }

    pub(crate) async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.call(StatusRequest {}, RetryPolicy::Repeatable, status).await
    }

    /// Reads from each server what only one with a leader knows.
    pub(crate) async fn members(&self) -> Vec<Result<(), ClientError>> {
        let range = RangeRequest { key: b"health".to_vec().into(), ..RangeRequest::default() };
        let method = |channel, request| async move { kv(channel).range(request).await };
        let checks = (0..self.servers.len()).map(|at| self.call_one(at, &range, TIMEOUT, method));
        let answers = futures_util::future::join_all(checks).await;
        // a user who may not read this key was answered, too
        let is_answer = |answer: Result<RangeResponse, ClientError>| match answer {
            Err(why) if why.refused(Code::PermissionDenied).is_some() => Ok(()),
            answer => answer.map(drop),
        };
        answers.into_iter().map(is_answer).collect()
    }

    /// The current server, for several calls to the same one.
    pub(crate) fn one(&self) -> PinnedServer<'_> {
        PinnedServer { client: self, at: self.current.load(Ordering::Relaxed) }
    }

    /// Makes the next server the current one, unless another caller has done so already.
    fn rotate_from(&self, at: usize) {
        let next = (at + 1) % self.servers.len();
        // losing the race means that another caller has already chosen
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn servers(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(|server| server.url.as_str()).collect();
        urls.join(", ")
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

async fn status(
    channel: Channel,
    request: Request<StatusRequest>,
) -> Result<Response<StatusResponse>, Status> {
    MaintenanceClient::new(channel).status(request).await
}

/// One server of the cluster.
pub(crate) struct PinnedServer<'a> {
    client: &'a Client,
    at: usize,
}

impl PinnedServer<'_> {
    pub(crate) async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.client.call_one(self.at, &StatusRequest {}, CALL_TIMEOUT, status).await
    }

    /// Opens a watch stream: the queue of its requests, and its responses.
    pub(crate) async fn watch(
        &self,
        first: WatchRequest,
    ) -> Result<(mpsc::Sender<WatchRequest>, Streaming<WatchResponse>), ClientError> {
        let method = async |channel: Channel, request: Request<WatchRequest>| {
            let (requests, mut queued) = mpsc::channel(MAX_QUEUED_REQUESTS);
            let (metadata, extensions, first) = request.into_parts();
            // the queue is empty, so this succeeds
            let _ = requests.try_send(first);
            let stream = futures_util::stream::poll_fn(move |context| queued.poll_recv(context));
            let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
            let responses = client.watch(Request::from_parts(metadata, extensions, stream)).await?;
            Ok(Response::new((requests, responses.into_inner())))
        };
        self.client.call_one(self.at, &first, CALL_TIMEOUT, method).await
    }

    /// Makes the client turn to the next server.
    pub(crate) fn give_up(&self) {
        self.client.rotate_from(self.at);
    }
}

/// Exponential backoff with jitter.
#[derive(Default)]
pub(crate) struct Backoff {
    tries: usize,
}

impl Backoff {
    pub(crate) fn is_first(&self) -> bool {
        self.tries == 0
    }

    pub(crate) fn next(&mut self, world: &World) -> Duration {
        let whole = Duration::from_millis(50 << self.tries.min(5));
        self.tries += 1;
        let share = env::random_u64(world) % 512;
        whole / 2 + whole * share as u32 / 1024
    }
}
