//! Messages: a query as far as it is needed, and the encoding of an answer in the size that the client takes.
//!
//! Invariants: a packet is read only after its counts are known to be those of a query, so that the memory is bounded
//! by its length. An answer that is too long for UDP keeps as many records as fit, its OPT record, and has the bit TC:
//! some clients use what they get, others ask again over TCP.

use hickory_proto::op::{
    Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode, emit_message_parts,
};
use hickory_proto::rr::Record;
use hickory_proto::serialize::binary::BinEncoder;

/// The protocol of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// The length of a header.
pub const HEADER: usize = 12;
/// The largest answer over UDP: one that no common link fragments.
pub const MAX_UDP: u16 = 1232;
/// The largest answer over UDP to a client without EDNS.
const MIN_UDP: u16 = 512;
/// The most additional records of a query: OPT, and one for cookies or signatures.
const MAX_ADDITIONAL: u16 = 2;

/// A query for one name.
pub struct Request {
    pub metadata: Metadata,
    pub query: Query,
    /// The payload size and flags of a client with EDNS.
    pub edns: Option<ClientEdns>,
}

/// The parts of a client's OPT record that an answer depends on.
#[derive(Debug, Clone, Copy)]
pub struct ClientEdns {
    pub max_payload: u16,
    pub is_dnssec_ok: bool,
    pub version: u8,
}

/// A packet that is no query.
pub enum PacketError {
    /// It is not answered: it is too short, or an answer itself.
    Ignored,
    /// The header of the answer.
    Answered([u8; HEADER]),
}

impl Request {
    pub fn parse(packet: &[u8]) -> Result<Self, PacketError> {
        let Some(header) = packet.first_chunk::<HEADER>() else { return Err(PacketError::Ignored) };
        if header[2] & 0x80 != 0 {
            return Err(PacketError::Ignored);
        }
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let is_query = OpCode::from_u8(header[2] >> 3 & 0xf) == OpCode::Query;
        let is_plain = count(4) == 1 && count(6) == 0 && count(8) == 0 && count(10) <= MAX_ADDITIONAL;
        if !is_query || !is_plain {
            let code = if is_query { ResponseCode::FormErr } else { ResponseCode::NotImp };
            return Err(PacketError::Answered(error_header(header, code)));
        }
        let message = Message::from_vec(packet).ok();
        let read = message.and_then(|mut it| Some((it.metadata, it.queries.pop()?, it.edns)));
        let Some((metadata, query, edns)) = read else {
            return Err(PacketError::Answered(error_header(header, ResponseCode::FormErr)));
        };
        let edns = edns.map(|it| ClientEdns {
            max_payload: it.max_payload().clamp(MIN_UDP, MAX_UDP),
            is_dnssec_ok: it.flags().dnssec_ok,
            version: it.version(),
        });
        Ok(Request { metadata, query, edns })
    }
}

/// The header of an answer to a query that cannot be read.
fn error_header(query: &[u8; HEADER], code: ResponseCode) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&query[..2]);
    // the answer has the operation and the bit RD of the query
    header[2] = 0x80 | query[2] & 0x79;
    header[3] = code.low();
    header
}

/// An answer.
pub struct Response<'a> {
    pub code: ResponseCode,
    pub is_authoritative: bool,
    pub is_authentic: bool,
    pub answers: &'a [Record],
    pub authorities: &'a [Record],
    pub additionals: &'a [Record],
}

impl Response<'_> {
    pub fn error(code: ResponseCode) -> Self {
        Response {
            code,
            is_authoritative: false,
            is_authentic: false,
            answers: &[],
            authorities: &[],
            additionals: &[],
        }
    }

    /// Writes the answer to `out`, which is cleared first, in a size that the transport takes.
    pub fn encode(&self, request: &Request, transport: Transport, out: &mut Vec<u8>) {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = self.code;
        metadata.authoritative = self.is_authoritative;
        metadata.authentic_data = self.is_authentic;
        metadata.recursion_available = true;
        let edns = request.edns.map(|client| {
            let mut edns = Edns::new();
            edns.set_max_payload(MAX_UDP).set_dnssec_ok(client.is_dnssec_ok);
            edns
        });
        let limit = match request.edns {
            _ if transport == Transport::Tcp => u16::MAX,
            Some(edns) => edns.max_payload,
            None => MIN_UDP,
        };
        let mut emit = |metadata: &Metadata, answers: &[Record], additionals: &[Record]| {
            out.clear();
            let mut encoder = BinEncoder::new(out);
            encoder.set_max_size(limit);
            emit_message_parts(
                metadata,
                &mut [&request.query].into_iter(),
                &mut answers.iter(),
                &mut self.authorities.iter(),
                &mut additionals.iter(),
                edns.as_ref(),
                None,
                &mut encoder,
            )
            .ok()
        };
        let is_whole = |header: &Option<Header>| header.as_ref().is_some_and(|it| !it.metadata.truncation);
        let mut header = emit(&metadata, self.answers, self.additionals);
        // additional records are left out before answers are
        if !is_whole(&header) && !self.additionals.is_empty() {
            header = emit(&metadata, self.answers, &[]);
        }
        if is_whole(&header) {
            return;
        }
        metadata.truncation = true;
        let mut fitting = header.map_or(0, |it| usize::from(it.counts.answers)).min(self.answers.len());
        loop {
            let header = emit(&metadata, &self.answers[..fitting], &[]);
            let has_edns = |it: &Header| edns.is_none() || it.counts.additionals == 1;
            let fits = |it: &Header| usize::from(it.counts.answers) == fitting && has_edns(it);
            if header.as_ref().is_some_and(fits) || fitting == 0 {
                break;
            }
            fitting -= 1;
        }
    }
}

/// A query message to another server.
pub fn query_message(
    id: u16,
    query: &Query,
    is_dnssec_ok: bool,
    is_checking_disabled: bool,
) -> Option<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.checking_disabled = is_checking_disabled;
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_UDP).set_dnssec_ok(is_dnssec_ok);
    message.add_query(query.clone());
    message.set_edns(edns);
    message.to_vec().ok()
}
