//! Handles queries: those about the cluster at once, others through the forwarder.

use super::access::AllowedSources;
use super::forward::Forwarder;
use super::lookup::{Authority, LookupResult};
use super::metrics::{Metrics, QueryLabels};
use super::records::Records;
use super::reply::{PacketError, Request, Response, Transport};
use env::io::RealInstant;
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The outcome of a packet.
pub enum Reply {
    /// There is no answer.
    None,
    /// The answer is in the buffer.
    Ready,
    /// It waits for other servers.
    Pending(Box<PendingQuery>),
}

/// A query that waits for other servers.
pub struct PendingQuery {
    request: Request,
    /// The aliases that lead out of the cluster, and the name at their end.
    aliases: Vec<Record>,
    target: Option<Name>,
    exchange: Exchange,
}

/// A query and its answer, as metrics count them.
struct Exchange {
    labels: QueryLabels,
    transport: Transport,
    started: RealInstant,
    request_bytes: usize,
}

/// See the module.
pub struct Handler {
    authority: Authority,
    records: Arc<Records>,
    sources: Arc<AllowedSources>,
    forwarder: Arc<Forwarder>,
    metrics: Metrics,
    /// Answers of several records begin with another one each time.
    rotation: AtomicUsize,
}

impl Handler {
    pub fn new(
        authority: Authority,
        records: Arc<Records>,
        sources: Arc<AllowedSources>,
        forwarder: Arc<Forwarder>,
        metrics: Metrics,
    ) -> Self {
        Handler { authority, records, sources, forwarder, metrics, rotation: AtomicUsize::new(0) }
    }

    /// Handles a packet. The answer goes to `out`, which is cleared first.
    pub fn handle(&self, packet: &[u8], source: IpAddr, transport: Transport, out: &mut Vec<u8>) -> Reply {
        out.clear();
        let started = RealInstant::now();
        let source = source.to_canonical();
        let request = match Request::parse(packet) {
            Ok(request) => request,
            Err(PacketError::Ignored) => return Reply::None,
            Err(PacketError::Answered(header)) => {
                out.extend_from_slice(&header);
                return Reply::Ready;
            }
        };
        let labels = QueryLabels::new(transport, &source, request.query.query_type);
        let mut exchange = Exchange { labels, transport, started, request_bytes: packet.len() };
        if let Some(code) = self.refusal(&request, source) {
            self.encode(&Response::error(code), &request, &exchange, out);
            return Reply::Ready;
        }
        let snapshot = self.records.load();
        let found = self.authority.lookup(&snapshot, &request.query.name, request.query.query_type);
        drop(snapshot);
        exchange.labels.is_local = found.is_some();
        let pending = match found {
            Some(LookupResult { alias_target: None, mut answers, code, authorities, additionals }) => {
                self.rotate(&mut answers);
                let response = Response {
                    code,
                    is_authoritative: code != ResponseCode::ServFail,
                    is_authentic: false,
                    answers: &answers,
                    authorities: &authorities,
                    additionals: &additionals,
                };
                self.encode(&response, &request, &exchange, out);
                return Reply::Ready;
            }
            Some(LookupResult { alias_target, answers, .. }) => {
                PendingQuery { request, aliases: answers, target: alias_target, exchange }
            }
            None => PendingQuery { request, aliases: Vec::new(), target: None, exchange },
        };
        if self.forwarder.is_returned_probe(&pending.request.query) {
            self.encode(&Response::error(ResponseCode::ServFail), &pending.request, &pending.exchange, out);
            return Reply::Ready;
        }
        Reply::Pending(Box::new(pending))
    }

    /// Asks other servers. The answer goes to `out`.
    pub async fn finish(&self, pending: PendingQuery, out: &mut Vec<u8>) {
        let PendingQuery { request, mut aliases, target, exchange } = pending;
        let is_local = target.is_some();
        let query = match target {
            Some(target) => Query::query(target, request.query.query_type),
            None => request.query.clone(),
        };
        let is_dnssec_ok = request.edns.is_some_and(|it| it.is_dnssec_ok);
        let is_checking_disabled = request.metadata.checking_disabled;
        let mut response = self.forwarder.resolve(&query, is_dnssec_ok, is_checking_disabled).await;
        for record in response.answers.iter_mut().filter(|it| it.name == query.name) {
            // the case of the name is that of this query, not of an earlier one
            record.name = query.name.clone();
        }
        if !matches!(response.code, ResponseCode::NoError | ResponseCode::NXDomain) {
            aliases.clear();
        }
        aliases.append(&mut response.answers);
        self.rotate(&mut aliases);
        let response = Response {
            code: response.code,
            is_authoritative: is_local && !aliases.is_empty(),
            is_authentic: response.is_authentic && !is_local,
            answers: &aliases,
            authorities: &response.authorities,
            additionals: &response.additionals,
        };
        self.encode(&response, &request, &exchange, out);
    }

    /// Answers that the query cannot be handled now.
    pub fn fail(&self, pending: &PendingQuery, out: &mut Vec<u8>) {
        self.encode(&Response::error(ResponseCode::ServFail), &pending.request, &pending.exchange, out);
    }

    /// Why a query is not resolved.
    fn refusal(&self, request: &Request, source: IpAddr) -> Option<ResponseCode> {
        let query = &request.query;
        let is_transfer = matches!(query.query_type, RecordType::AXFR | RecordType::IXFR);
        if !self.sources.allows(source) {
            return Some(ResponseCode::Refused);
        }
        if request.edns.is_some_and(|it| it.version > 0) {
            return Some(ResponseCode::BADVERS);
        }
        (query.query_class != DNSClass::IN || is_transfer).then_some(ResponseCode::Refused)
    }

    /// Moves the first records to the end, so that clients that take the first are spread. Aliases stay in front.
    fn rotate(&self, answers: &mut [Record]) {
        let aliases = answers.iter().take_while(|it| it.record_type() == RecordType::CNAME).count();
        let answers = &mut answers[aliases..];
        if answers.len() > 1 {
            let turn = self.rotation.fetch_add(1, Ordering::Relaxed) % answers.len();
            answers.rotate_left(turn);
        }
    }

    fn encode(&self, response: &Response<'_>, request: &Request, exchange: &Exchange, out: &mut Vec<u8>) {
        response.encode(request, exchange.transport, out);
        let sizes = (exchange.request_bytes, out.len());
        self.metrics.answered(&exchange.labels, response.code, sizes, exchange.started.elapsed());
    }
}
