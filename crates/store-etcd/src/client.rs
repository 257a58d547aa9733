//! Calls of an etcd that has one or several servers.
//!
//! What always holds: a call ends within its time. What only reads is asked again of the next server until then; what
//! writes is asked again only where the first question surely was not taken, since a write that was lost on its way
//! back has happened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use env::World;
use outbound::{BadTarget, Channel, Messages, RpcError, Sender, Target};
use schema::proto::ProtoError;
use tokio::time::{Instant, sleep};

use crate::messages::{Found, RANGE, Range};

/// How long a call may take, and for how long no server need take it.
pub(crate) const TIME: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(3);
/// The largest answer, and the largest message of a watch.
pub(crate) const LARGEST: usize = 64 << 20;

/// Codes of refusals.
const INVALID: u16 = 3;
const EXHAUSTED: u16 = 8;
const OUT_OF_RANGE: u16 = 11;
const UNAVAILABLE: u16 = 14;

/// A server without a leader is one that cannot tell what is the newest: it says so when it is told to.
const SAID: &[(&str, &str)] = &[("hasleader", "true")];
const NO_LEADER: &str = "etcdserver: no leader";
const NO_LEASE: &str = "etcdserver: requested lease not found";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{url}: {why}")]
    RpcError { url: String, why: RpcError },
    #[error("the answer cannot be read: {0}")]
    Unreadable(#[from] ProtoError),
}

impl Failure {
    /// Whether what was asked surely did not happen.
    pub(crate) fn surely_not(&self) -> bool {
        match self {
            Failure::RpcError { why: RpcError::Unsent(_), .. } => true,
            Failure::RpcError { why: RpcError::Refused { code, message }, .. } => {
                // of canceled (1), unknown (2), late (4), internal (13) and unavailable nobody knows
                message == NO_LEADER || ![1, 2, 4, 13, UNAVAILABLE].contains(code)
            }
            _ => false,
        }
    }

    fn refused(&self, with: u16) -> Option<&str> {
        match self {
            Failure::RpcError { why: RpcError::Refused { code, message }, .. } if *code == with => {
                Some(message)
            }
            _ => None,
        }
    }

    /// The answer would be larger than is read.
    pub(crate) fn too_large_an_answer(&self) -> bool {
        matches!(self, Failure::RpcError { why: RpcError::TooLarge(_), .. })
    }

    /// The question is larger than the etcd takes.
    pub(crate) fn too_large_a_question(&self) -> bool {
        self.refused(INVALID).is_some_and(|why| why.contains("request is too large"))
            || self.refused(EXHAUSTED).is_some_and(|why| why.contains("larger than max"))
    }

    /// The revision that was asked about is gone.
    pub(crate) fn compacted(&self) -> bool {
        self.refused(OUT_OF_RANGE).is_some_and(|why| why.contains("compacted"))
    }

    pub(crate) fn no_lease(&self) -> bool {
        matches!(self, Failure::RpcError { why: RpcError::Refused { message, .. }, .. } if message == NO_LEASE)
    }

    /// Whether another server may do better.
    pub(crate) fn is_of_the_server(&self) -> bool {
        match self {
            Failure::RpcError { why: RpcError::TooLarge(_), .. } | Failure::Unreadable(_) => false,
            Failure::RpcError { why: RpcError::Refused { code, .. }, .. } => *code == UNAVAILABLE,
            Failure::RpcError { .. } => true,
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

/// Whether it may be done twice.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Reads,
    Writes,
}

impl Client {
    /// There is at least one target.
    pub(crate) fn new(targets: &[Target], world: World) -> Result<Self, BadTarget> {
        let servers = targets.iter().map(|target| {
            Channel::new(target, SAID).map(|channel| Server { url: target.url.clone(), channel })
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(BadTarget::Url(String::new()));
        }
        Ok(Client { servers, current: AtomicUsize::new(0), world })
    }

    /// Calls a procedure of any server.
    pub(crate) async fn call(&self, path: &str, message: &[u8], ask: Ask) -> Result<Bytes, Failure> {
        let began = Instant::now();
        let mut pause = Pause::default();
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let left = TIME.saturating_sub(began.elapsed());
            let failure = match self.call_one(at, path, message, left).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if failure.is_of_the_server() {
                self.pass_over(at);
            }
            let again = failure.is_of_the_server() && (ask == Ask::Reads || failure.surely_not());
            if !again || began.elapsed() > TIMEOUT {
                return Err(failure);
            }
            // whoever has others to ask does so at once, the first time
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
    ) -> Result<Bytes, Failure> {
        let server = &self.servers[at % self.servers.len()];
        let answer = server.channel.call(path, message, time, LARGEST).await;
        answer.map_err(|why| Failure::RpcError { url: server.url.clone(), why })
    }

    /// Asks for keys.
    pub(crate) async fn range(&self, range: &Range) -> Result<Found, Failure> {
        Ok(Found::read(&self.call(RANGE, &range.encode(), Ask::Reads).await?)?)
    }

    /// The server of the moment, for several calls to the same one.
    pub(crate) fn one(&self) -> One<'_> {
        One { client: self, at: self.current.load(Ordering::Relaxed) }
    }

    /// Turns to the next server, unless somebody has done so already.
    fn pass_over(&self, at: usize) {
        let next = (at + 1) % self.servers.len();
        // whoever lost against another has the other's choice
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn servers(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(|server| server.url.as_str()).collect();
        urls.join(", ")
    }
}

/// One server of several.
pub(crate) struct One<'a> {
    client: &'a Client,
    at: usize,
}

impl One<'_> {
    pub(crate) async fn call(&self, path: &str, message: &[u8]) -> Result<Bytes, Failure> {
        self.client.call_one(self.at, path, message, TIME).await
    }

    pub(crate) async fn open(&self, path: &str, first: &[u8]) -> Result<(Sender, Messages), Failure> {
        let server = &self.client.servers[self.at % self.client.servers.len()];
        let opened = server.channel.open(path, first, TIME, LARGEST).await;
        opened.map_err(|why| Failure::RpcError { url: server.url.clone(), why })
    }

    /// Others are to be asked from now on.
    pub(crate) fn give_up(&self) {
        self.client.pass_over(self.at);
    }
}

/// How long to wait before trying again: longer each time, and not all at the same moment.
#[derive(Default)]
pub(crate) struct Pause {
    tries: usize,
}

impl Pause {
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
