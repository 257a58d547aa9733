//! Resolves names outside of the cluster: asks other servers, and keeps their answers for a while.
//!
//! Queries go to the servers of a stub domain, or to those of resolv.conf, one after the other, beginning with the one
//! that answered last. Invariants: a query has an end before clients stop waiting; equal queries at the same time are
//! one; the number of open queries, and the entries and bytes of the cache, are bounded; a server that leads back to this
//! one is not used.

mod exchange;
mod resolv_conf;
mod upstream;

use super::metrics::Metrics;
use env::io::RealInstant;
use env::{Interval, World};
pub(super) use exchange::exchange;
use exchange::{Answer, ExchangeError};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, Record, RecordType};
use outbound::{SingleFlight, TtlCache};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use upstream::{Upstream, UpstreamSet};

/// The time for all attempts: clients wait five seconds.
const TIMEOUT: Duration = Duration::from_millis(4500);
/// The time for one attempt, if others can follow.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often each server is tried.
const ROUNDS: usize = 2;
/// The most queries that wait for other servers.
const MAX_OPEN: usize = 1000;
/// The most entries and bytes of the cache.
const MAX_ENTRIES: usize = 10_000;
const MAX_BYTES: usize = 8 << 20;
/// The longest time that an answer is kept, as kubeadm configures it.
const MAX_TTL: Duration = Duration::from_secs(30);
/// How long a server's failure is kept, so that a storm of retries is answered here.
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// How often resolv.conf is read again.
const RELOAD: Duration = Duration::from_secs(5);

/// A domain whose names other servers resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubDomain {
    pub domain: Name,
    pub servers: Vec<SocketAddr>,
}

impl StubDomain {
    /// A domain with one server; `None` if it is no name.
    pub fn new(domain: &str, server: SocketAddr) -> Option<Self> {
        let mut domain = Name::from_ascii(domain).ok().filter(|it| it.num_labels() > 0)?;
        domain.set_fqdn(true);
        Some(StubDomain { domain, servers: vec![server] })
    }
}

/// The servers that queries go to.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The file with the servers for everything that is in no stub domain.
    pub resolv_conf: Option<PathBuf>,
    /// Servers instead of those of the file.
    pub servers: Vec<SocketAddr>,
    pub stub_domains: Vec<StubDomain>,
    /// Addresses of this server: a file that names them has a loop.
    pub own_addresses: Vec<IpAddr>,
}

/// The answer of another server.
#[derive(Debug, Clone)]
pub struct ForwardedResponse {
    pub code: ResponseCode,
    pub is_authentic: bool,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
    /// When it was received, by the clock of the world.
    received: Duration,
    /// About how much memory it takes.
    bytes: usize,
}

impl ForwardedResponse {
    fn new((message, length): Answer, now: Duration) -> Self {
        let records = message.answers.len() + message.authorities.len() + message.additionals.len();
        ForwardedResponse {
            bytes: length + (records + 1) * size_of::<Record>(),
            code: message.metadata.response_code,
            is_authentic: message.metadata.authentic_data,
            answers: message.answers,
            authorities: message.authorities,
            additionals: message.additionals,
            received: now,
        }
    }

    fn failure(now: Duration) -> Self {
        ForwardedResponse {
            code: ResponseCode::ServFail,
            is_authentic: false,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
            received: now,
            bytes: size_of::<Self>(),
        }
    }

    /// How long it may be kept: the smallest TTL of its records; without records, the smaller of the TTL of the SOA
    /// record and its minimum.
    fn time_to_live(&self) -> Duration {
        if !matches!(self.code, ResponseCode::NoError | ResponseCode::NXDomain) {
            return FAILURE_TTL;
        }
        let minimum = |record: &Record| match &record.data {
            hickory_proto::rr::RData::SOA(soa) => record.ttl.min(soa.minimum),
            _ => record.ttl,
        };
        let ttl = match self.answers.is_empty() {
            true => self.authorities.iter().map(minimum).min(),
            false => self.answers.iter().map(|it| it.ttl).min(),
        };
        Duration::from_secs(u64::from(ttl.unwrap_or(0))).min(MAX_TTL)
    }

    /// Lowers the TTL of all records by the time that the answer was kept.
    fn age(&mut self, now: Duration) {
        let age = u32::try_from(now.saturating_sub(self.received).as_secs()).unwrap_or(u32::MAX);
        let limit = u32::try_from(MAX_TTL.as_secs()).unwrap_or(u32::MAX);
        for record in self.answers.iter_mut().chain(&mut self.authorities).chain(&mut self.additionals) {
            record.ttl = record.ttl.min(limit).saturating_sub(age);
        }
    }
}

/// See the module.
pub struct Forwarder {
    default: UpstreamSet,
    stubs: Vec<(Name, UpstreamSet)>,
    resolv_conf: Option<PathBuf>,
    own_addresses: Vec<IpAddr>,
    cache: TtlCache<Arc<ForwardedResponse>>,
    open: SingleFlight<Arc<ForwardedResponse>>,
    permits: Semaphore,
    metrics: Metrics,
    world: World,
}

impl Forwarder {
    pub fn new(options: Options, metrics: Metrics, world: &World) -> Self {
        let upstreams = |servers: &[SocketAddr]| {
            let servers = servers.iter().map(|it| Upstream::new(*it, world));
            UpstreamSet::new(servers.collect())
        };
        // the longest domain first
        let mut stub_domains = options.stub_domains;
        stub_domains.sort_by_key(|it| std::cmp::Reverse(it.domain.num_labels()));
        let stubs = stub_domains.into_iter().map(|it| (it.domain, upstreams(&it.servers))).collect();
        let resolv_conf = options.resolv_conf.filter(|_| options.servers.is_empty());
        let forwarder = Forwarder {
            default: upstreams(&options.servers),
            stubs,
            resolv_conf,
            own_addresses: options.own_addresses,
            cache: TtlCache::new(world.clone(), MAX_ENTRIES, MAX_BYTES),
            open: SingleFlight::default(),
            permits: Semaphore::new(MAX_OPEN),
            metrics,
            world: world.clone(),
        };
        forwarder.reload();
        forwarder
    }

    /// Reads resolv.conf again from time to time, and looks for loops, for ever.
    pub async fn run(&self) {
        let mut interval = Interval::new(&self.world, RELOAD);
        loop {
            interval.tick().await;
            self.reload();
            for upstream in self.sets().flat_map(UpstreamSet::all) {
                if upstream.needs_probe() {
                    self.probe(&upstream).await;
                }
            }
        }
    }

    fn sets(&self) -> impl Iterator<Item = &UpstreamSet> {
        [&self.default].into_iter().chain(self.stubs.iter().map(|(_, set)| set))
    }

    fn reload(&self) {
        let Some(file) = &self.resolv_conf else { return };
        let servers = read_servers(file, &self.own_addresses);
        self.default.replace(&servers, &self.world);
    }

    /// Sends a query with a name that only this server knows. If it comes back here, the server is a loop.
    async fn probe(&self, upstream: &Upstream) {
        let query = Query::query(upstream.probe_name().clone(), RecordType::HINFO);
        let _ = self.exchange(upstream, &query, (false, false), ATTEMPT_TIMEOUT).await;
        if upstream.is_loop() {
            let server = upstream.address();
            tracing::error!(%server, "the DNS server forwards to this one: it is not used; see resolv.conf");
        }
    }

    /// Whether a query is the probe of a loop: then the server that it was sent to is not used any more.
    pub fn is_returned_probe(&self, query: &Query) -> bool {
        query.query_type == RecordType::HINFO
            && self.sets().flat_map(UpstreamSet::all).any(|it| it.take_probe(&query.name))
    }

    /// The answer of other servers; SERVFAIL if there is none.
    pub async fn resolve(
        &self,
        query: &Query,
        is_dnssec_ok: bool,
        is_checking_disabled: bool,
    ) -> ForwardedResponse {
        let name = query.name.to_lowercase();
        let kind = u16::from(query.query_type).to_be_bytes();
        let flags = [u8::from(is_dnssec_ok), u8::from(is_checking_disabled)];
        let key = self.cache.key(name.iter().chain([&kind[..], &flags[..]]));
        let cached = self.cache.get(&key);
        self.metrics.cache_lookup(cached.as_ref().map(|it| it.answers.is_empty()));
        self.metrics.cache_entries(self.cache.count());
        let response = match cached {
            Some(response) => response,
            None => {
                let fetch = async {
                    let response = Arc::new(self.fetch(query, (is_dnssec_ok, is_checking_disabled)).await);
                    self.cache.put(key, response.clone(), response.bytes, response.time_to_live());
                    response
                };
                self.open.ask(key, fetch).await
            }
        };
        let mut response = ForwardedResponse::clone(&response);
        response.age(self.world.elapsed());
        response
    }

    async fn fetch(&self, query: &Query, flags: (bool, bool)) -> ForwardedResponse {
        let failure = || ForwardedResponse::failure(self.world.elapsed());
        let Ok(_permit) = self.permits.try_acquire() else {
            self.metrics.forward_rejected();
            return failure();
        };
        let stub = self.stubs.iter().find(|(domain, _)| domain.zone_of(&query.name));
        let set = stub.map_or(&self.default, |(_, set)| set);
        let deadline = RealInstant::after(TIMEOUT);
        let mut last = None;
        for _ in 0..ROUNDS {
            for (at, upstream) in set.in_order() {
                let left = deadline.since(RealInstant::now()).min(ATTEMPT_TIMEOUT);
                if left.is_zero() {
                    return last.unwrap_or_else(failure);
                }
                match self.exchange(&upstream, query, flags, left).await {
                    Ok(answer) => {
                        let response = ForwardedResponse::new(answer, self.world.elapsed());
                        if matches!(response.code, ResponseCode::NoError | ResponseCode::NXDomain) {
                            set.prefer(at);
                            return response;
                        }
                        // another server may know more
                        last = Some(response);
                    }
                    Err(why) => {
                        tracing::debug!(%why, server = %upstream.address(), "a DNS server did not answer");
                    }
                }
            }
            // all have answered
            if last.is_some() {
                break;
            }
        }
        last.unwrap_or_else(failure)
    }

    async fn exchange(
        &self,
        upstream: &Upstream,
        query: &Query,
        flags: (bool, bool),
        limit: Duration,
    ) -> Result<Answer, ExchangeError> {
        let started = RealInstant::now();
        let id = env::random_u64(&self.world) as u16;
        let exchange = exchange::exchange(upstream.address(), id, query, flags);
        let result = match env::io::timeout(limit, exchange).await {
            Ok(result) => result,
            Err(_) => Err(ExchangeError::Timeout),
        };
        let code = result.as_ref().ok().map(|(message, _)| message.metadata.response_code);
        self.metrics.forwarded(upstream.label(), code, started.elapsed());
        result
    }
}

/// The servers of a file, without this one.
fn read_servers(file: &Path, own_addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(why) => {
            tracing::warn!(%why, file = %file.display(), "cannot read the DNS servers of this machine");
            return Vec::new();
        }
    };
    let (own, servers): (Vec<_>, Vec<_>) =
        resolv_conf::servers(&text).into_iter().partition(|it| own_addresses.contains(&it.ip()));
    if !own.is_empty() && servers.is_empty() {
        tracing::warn!(file = %file.display(), "the only DNS server of this machine is this one: names outside of the cluster are not resolved");
    }
    servers
}

#[cfg(test)]
mod tests;
