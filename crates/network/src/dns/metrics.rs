//! Metrics of the server, under the names and labels of CoreDNS, which dashboards know.
//!
//! Series appear with their first query. Each is looked up once: a query then costs a few atomic additions.

use super::reply::Transport;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use metrics::{Counter, Descriptor, Family, Gauge, Histogram, Registry, counts, seconds};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const DURATION_BOUNDS: &[u64] = &seconds([
    0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048,
    4.096, 8.192,
]);
const SIZE_BOUNDS: &[u64] = &counts::<10>(100, 2);

const REQUESTS: Descriptor =
    Descriptor::stable("coredns_dns_requests_total", "Queries, by protocol and type.")
        .by(&["server", "zone", "proto", "family", "type"]);
const RESPONSES: Descriptor = Descriptor::stable("coredns_dns_responses_total", "Answers, by response code.")
    .by(&["server", "zone", "rcode", "plugin"]);
const DURATION: Descriptor =
    Descriptor::stable("coredns_dns_request_duration_seconds", "Time from query to answer.")
        .by(&["server", "zone"])
        .seconds(DURATION_BOUNDS);
const REQUEST_SIZE: Descriptor = Descriptor::stable(
    "coredns_dns_request_size_bytes",
    "Size of queries, without the length of TCP frames.",
)
.by(&["server", "zone", "proto"])
.sizes(SIZE_BOUNDS);
const RESPONSE_SIZE: Descriptor = Descriptor::stable(
    "coredns_dns_response_size_bytes",
    "Size of answers, without the length of TCP frames.",
)
.by(&["server", "zone", "proto"])
.sizes(SIZE_BOUNDS);
const CACHE_HITS: Descriptor =
    Descriptor::stable("coredns_cache_hits_total", "Forwarded queries that the cache answered.")
        .by(&["server", "type", "zones"]);
const CACHE_MISSES: Descriptor =
    Descriptor::stable("coredns_cache_misses_total", "Forwarded queries that the cache did not answer.")
        .by(&["server", "zones"]);
const CACHE_ENTRIES: Descriptor =
    Descriptor::stable("coredns_cache_entries", "Answers in the cache, of both types.")
        .by(&["server", "type", "zones"]);
const FORWARD_REQUESTS: Descriptor =
    Descriptor::stable("coredns_forward_requests_total", "Queries to each other server.").by(&["to"]);
const FORWARD_RESPONSES: Descriptor =
    Descriptor::stable("coredns_forward_responses_total", "Answers of each other server.")
        .by(&["to", "rcode"]);
const FORWARD_DURATION: Descriptor =
    Descriptor::stable("coredns_forward_request_duration_seconds", "Time that each other server took.")
        .by(&["to", "rcode"])
        .seconds(DURATION_BOUNDS);
const FORWARD_REJECTS: Descriptor = Descriptor::stable(
    "coredns_forward_max_concurrent_rejects_total",
    "Queries that were not forwarded because too many wait already.",
);

/// Types of queries with a label of their own.
const TYPES: &[RecordType] = &[
    RecordType::A,
    RecordType::AAAA,
    RecordType::SRV,
    RecordType::PTR,
    RecordType::CNAME,
    RecordType::TXT,
    RecordType::SOA,
    RecordType::NS,
    RecordType::MX,
    RecordType::HTTPS,
    RecordType::ANY,
];
const TYPE_COUNT: usize = TYPES.len() + 1;
/// Response codes with a label of their own, in the order of their numbers.
const CODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];

fn code_name(code: ResponseCode) -> (usize, &'static str) {
    let at = usize::from(u16::from(code));
    CODES.get(at).map_or((CODES.len(), "BADVERS"), |name| (at, name))
}

/// The labels of a query.
pub struct QueryLabels {
    is_tcp: bool,
    is_v6: bool,
    kind: usize,
    /// Whether the name is one of the cluster.
    pub is_local: bool,
}

impl QueryLabels {
    pub fn new(transport: Transport, source: &IpAddr, kind: RecordType) -> Self {
        QueryLabels {
            is_tcp: transport == Transport::Tcp,
            is_v6: source.is_ipv6(),
            kind: TYPES.iter().position(|it| *it == kind).unwrap_or(TYPES.len()),
            is_local: false,
        }
    }

    fn protocol(&self) -> &'static str {
        if self.is_tcp { "tcp" } else { "udp" }
    }
}

/// Two series, by whether the name is one of the cluster.
type ByZone<T> = [T; 2];

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    zone: String,
    requests: Family<Counter>,
    responses: Family<Counter>,
    duration: Family<Histogram>,
    request_size: Family<Histogram>,
    response_size: Family<Histogram>,
    hits: [Counter; 2],
    misses: Counter,
    entries: Gauge,
    forward_requests: Family<Counter>,
    forward_responses: Family<Counter>,
    forward_duration: Family<Histogram>,
    forward_rejects: Counter,
    known_requests: ByZone<[[[OnceLock<Counter>; TYPE_COUNT]; 2]; 2]>,
    known_responses: ByZone<[OnceLock<Counter>; CODES.len() + 1]>,
    known_durations: ByZone<OnceLock<Histogram>>,
    known_sizes: ByZone<[OnceLock<(Histogram, Histogram)>; 2]>,
}

impl Metrics {
    /// `zone` is the domain of the cluster, `port` that of the server.
    pub fn new(registry: &Registry, zone: &str, port: u16) -> Self {
        let server = format!("dns://:{port}");
        let hits = registry.family::<Counter>(CACHE_HITS);
        let shared = Shared {
            requests: registry.family(REQUESTS),
            responses: registry.family(RESPONSES),
            duration: registry.family(DURATION),
            request_size: registry.family(REQUEST_SIZE),
            response_size: registry.family(RESPONSE_SIZE),
            hits: ["success", "denial"].map(|kind| hits.of(&[&server, kind, "."])),
            misses: registry.family::<Counter>(CACHE_MISSES).of(&[&server, "."]),
            entries: registry.family::<Gauge>(CACHE_ENTRIES).of(&[&server, "success", "."]),
            forward_requests: registry.family(FORWARD_REQUESTS),
            forward_responses: registry.family(FORWARD_RESPONSES),
            forward_duration: registry.family(FORWARD_DURATION),
            forward_rejects: registry.one(FORWARD_REJECTS),
            known_requests: Default::default(),
            known_responses: Default::default(),
            known_durations: Default::default(),
            known_sizes: Default::default(),
            zone: format!("{}.", zone.trim_end_matches('.')),
            server,
        };
        Metrics { shared: Arc::new(shared) }
    }

    /// Counts a query and its answer; `sizes` are those of both.
    pub fn answered(&self, labels: &QueryLabels, code: ResponseCode, sizes: (usize, usize), took: Duration) {
        let shared = &*self.shared;
        let (server, protocol) = (shared.server.as_str(), labels.protocol());
        let (zone, plugin) = match labels.is_local {
            true => (shared.zone.as_str(), "kubernetes"),
            false => (".", "forward"),
        };
        let (local, tcp, v6) =
            (usize::from(labels.is_local), usize::from(labels.is_tcp), usize::from(labels.is_v6));
        let request = shared.known_requests[local][tcp][v6][labels.kind].get_or_init(|| {
            let kind = TYPES.get(labels.kind).map_or("other".to_owned(), ToString::to_string);
            let family = if labels.is_v6 { "2" } else { "1" };
            shared.requests.of(&[server, zone, protocol, family, &kind])
        });
        request.inc();
        let (at, name) = code_name(code);
        let response = shared.known_responses[local][at]
            .get_or_init(|| shared.responses.of(&[server, zone, name, plugin]));
        response.inc();
        shared.known_durations[local].get_or_init(|| shared.duration.of(&[server, zone])).took(took);
        let (request_size, response_size) = shared.known_sizes[local][tcp].get_or_init(|| {
            let labels = [server, zone, protocol];
            (shared.request_size.of(&labels), shared.response_size.of(&labels))
        });
        request_size.observe(sizes.0 as u64);
        response_size.observe(sizes.1 as u64);
    }

    /// Counts a lookup in the cache: whether its answer has no records, or `None` if there is none.
    pub fn cache_lookup(&self, is_denial: Option<bool>) {
        match is_denial {
            Some(is_denial) => self.shared.hits[usize::from(is_denial)].inc(),
            None => self.shared.misses.inc(),
        }
    }

    pub fn cache_entries(&self, count: usize) {
        self.shared.entries.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a query to another server, and its answer if there was one.
    pub fn forwarded(&self, server: &str, code: Option<ResponseCode>, took: Duration) {
        self.shared.forward_requests.of(&[server]).inc();
        if let Some(code) = code {
            let labels = [server, code_name(code).1];
            self.shared.forward_responses.of(&labels).inc();
            self.shared.forward_duration.of(&labels).took(took);
        }
    }

    pub fn forward_rejected(&self) {
        self.shared.forward_rejects.inc();
    }
}
