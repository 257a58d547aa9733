//! A client for the servers of one etcd cluster.
//!
//! Invariants: a call ends within its timeout. A read is retried on the next server until then. A write is retried
//! only if the first attempt certainly was not applied: a write whose response was lost may have been applied.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use env::World;
use outbound::{BadTarget, Channel, Messages, RpcError, Sender, Target};
use schema::proto::ProtoError;
use tokio::time::{Instant, sleep};

use crate::messages::{RANGE, RangeRequest, RangeResponse};

/// The timeout of one call, and the time within which a failed call is retried.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(3);
/// The largest response, and the largest message of a watch.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// gRPC status codes.
const INVALID: u16 = 3;
const EXHAUSTED: u16 = 8;
const OUT_OF_RANGE: u16 = 11;
const UNAVAILABLE: u16 = 14;

/// Metadata of every call: a member without a leader fails the call instead of serving stale data.
const METADATA: &[(&str, &str)] = &[("hasleader", "true")];
const NO_LEADER: &str = "etcdserver: no leader";
const NO_LEASE: &str = "etcdserver: requested lease not found";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("{url}: {why}")]
    RpcError { url: String, why: RpcError },
    #[error("the response cannot be decoded: {0}")]
    Unreadable(#[from] ProtoError),
}

impl ClientError {
    /// Whether the request certainly was not applied.
    pub(crate) fn is_not_applied(&self) -> bool {
        match self {
            ClientError::RpcError { why: RpcError::Unsent(_), .. } => true,
            ClientError::RpcError { why: RpcError::Refused { code, message }, .. } => {
                // canceled (1), unknown (2), deadline exceeded (4), internal (13) and unavailable leave it open
                message == NO_LEADER || ![1, 2, 4, 13, UNAVAILABLE].contains(code)
            }
            _ => false,
        }
    }

    fn refused(&self, with: u16) -> Option<&str> {
        match self {
            ClientError::RpcError { why: RpcError::Refused { code, message }, .. } if *code == with => {
                Some(message)
            }
            _ => None,
        }
    }

    /// Whether the response exceeds [`MAX_MESSAGE_BYTES`].
    pub(crate) fn is_response_too_large(&self) -> bool {
        matches!(self, ClientError::RpcError { why: RpcError::TooLarge(_), .. })
    }

    /// Whether the request exceeds etcd's limit.
    pub(crate) fn is_request_too_large(&self) -> bool {
        self.refused(INVALID).is_some_and(|why| why.contains("request is too large"))
            || self.refused(EXHAUSTED).is_some_and(|why| why.contains("larger than max"))
    }

    /// Whether the requested revision has been compacted.
    pub(crate) fn compacted(&self) -> bool {
        self.refused(OUT_OF_RANGE).is_some_and(|why| why.contains("compacted"))
    }

    pub(crate) fn is_lease_not_found(&self) -> bool {
        matches!(self, ClientError::RpcError { why: RpcError::Refused { message, .. }, .. } if message == NO_LEASE)
    }

    /// Whether another server may succeed.
    pub(crate) fn is_retriable(&self) -> bool {
        match self {
            ClientError::RpcError { why: RpcError::TooLarge(_), .. } | ClientError::Unreadable(_) => false,
            ClientError::RpcError { why: RpcError::Refused { code, .. }, .. } => *code == UNAVAILABLE,
            ClientError::RpcError { .. } => true,
        }
    }
}

pub(crate) struct Client {
    servers: Vec<Server>,
    current: AtomicUsize,
    world: World,
}

struct Server {
    url: String,
    channel: Channel,
}

/// Whether a call may be sent twice.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    Repeatable,
    NonRepeatable,
}

impl Client {
    /// Fails without targets.
    pub(crate) fn new(targets: &[Target], world: World) -> Result<Self, BadTarget> {
        let servers = targets.iter().map(|target| {
            Channel::new(target, METADATA).map(|channel| Server { url: target.url.clone(), channel })
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(BadTarget::Url(String::new()));
        }
        Ok(Client { servers, current: AtomicUsize::new(0), world })
    }

    /// Calls a method on the current server, and on the next ones while retrying is allowed.
    pub(crate) async fn call(
        &self,
        path: &str,
        message: &[u8],
        ask: RetryPolicy,
    ) -> Result<Bytes, ClientError> {
        let began = Instant::now();
        let mut pause = Backoff::default();
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let left = CALL_TIMEOUT.saturating_sub(began.elapsed());
            let failure = match self.call_one(at, path, message, left).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if failure.is_retriable() {
                self.rotate_from(at);
            }
            let again =
                failure.is_retriable() && (ask == RetryPolicy::Repeatable || failure.is_not_applied());
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

    async fn call_one(
        &self,
        at: usize,
        path: &str,
        message: &[u8],
        time: Duration,
    ) -> Result<Bytes, ClientError> {
        let server = &self.servers[at % self.servers.len()];
        let answer = server.channel.call(path, message, time, MAX_MESSAGE_BYTES).await;
        answer.map_err(|why| ClientError::RpcError { url: server.url.clone(), why })
    }

    /// Reads a range of keys.
    pub(crate) async fn range(&self, range: &RangeRequest) -> Result<RangeResponse, ClientError> {
        Ok(RangeResponse::read(&self.call(RANGE, &range.encode(), RetryPolicy::Repeatable).await?)?)
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

/// One server of the cluster.
pub(crate) struct PinnedServer<'a> {
    client: &'a Client,
    at: usize,
}

impl PinnedServer<'_> {
    pub(crate) async fn call(&self, path: &str, message: &[u8]) -> Result<Bytes, ClientError> {
        self.client.call_one(self.at, path, message, CALL_TIMEOUT).await
    }

    pub(crate) async fn open(&self, path: &str, first: &[u8]) -> Result<(Sender, Messages), ClientError> {
        let server = &self.client.servers[self.at % self.client.servers.len()];
        let opened = server.channel.open(path, first, CALL_TIMEOUT, MAX_MESSAGE_BYTES).await;
        opened.map_err(|why| ClientError::RpcError { url: server.url.clone(), why })
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
