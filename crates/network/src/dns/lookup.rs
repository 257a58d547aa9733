//! The answer to a question about a name of the cluster, as a function of a snapshot of the records.
//!
//! | name below the zone | records |
//! |---|---|
//! | `SERVICE.NS.svc` | A and AAAA: cluster addresses, or those of all endpoints; SRV of all ports; CNAME of an alias |
//! | `ENDPOINT.SERVICE.NS.svc` | A or AAAA of an endpoint of a headless service |
//! | `_PORT._PROTOCOL.SERVICE.NS.svc` | SRV |
//! | `1-2-3-4.NS.pod` | A or AAAA: the address that the name says |
//! | `dns-version` | TXT |
//! | (the zone) | SOA, NS |
//!
//! Reverse names have PTR records. Names exist if they have a record, or are above a name that has one; they differ from
//! names that do not exist in the response code alone. The case of a name does not matter, and is kept in the answer.

use super::records::{Port, ServiceRecords, Snapshot};
use super::{SPECIFICATION, TTL};
use apimachinery::net::{Family, Network};
use client::Key;
use hickory_proto::ProtoError;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest chain of aliases.
const MAX_ALIASES: usize = 8;
/// The labels of the longest name below the zone that has a record.
const MAX_LABELS: usize = 5;
/// Room for `service.namespace`.
const MAX_KEY: usize = 127;

/// The names that this server is the authority for.
pub struct Authority {
    zone: Name,
    name_server: Name,
    host_master: Name,
    in_addr: Name,
    ip6: Name,
    /// The ranges whose addresses have no names elsewhere: those of services and pods.
    reverse_ranges: Vec<Network>,
    /// `service.namespace` of the DNS service, for the address of the name server.
    dns_service: String,
}

/// The records of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupResult {
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    /// The SOA record of an answer without records.
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
    /// A name outside of the zone, at which a chain of aliases goes on.
    pub alias_target: Option<Name>,
}

/// A name within the zone.
enum Node<'s, 'n> {
    Missing,
    /// A name without records, above one with records.
    Empty,
    Apex,
    Version,
    NameServer,
    Service(&'s ServiceRecords),
    /// An endpoint, by its label in lower case and the length of that.
    Endpoint(&'s ServiceRecords, [u8; 63], usize),
    Ports {
        records: &'s ServiceRecords,
        name: &'n [u8],
        protocol: &'n [u8],
    },
    Pod(IpAddr),
}

impl Authority {
    pub fn new(zone: Name, reverse_ranges: Vec<Network>, dns_service: &Key) -> Result<Self, ProtoError> {
        let below = |labels: [&str; 2]| {
            Name::from_labels(labels.into_iter().filter(|it| !it.is_empty()).map(str::as_bytes))?
                .append_domain(&zone)
        };
        Ok(Authority {
            name_server: below(["ns", "dns"])?,
            host_master: below(["hostmaster", ""])?,
            in_addr: Name::from_ascii("in-addr.arpa.")?,
            ip6: Name::from_ascii("ip6.arpa.")?,
            reverse_ranges,
            dns_service: format!("{}.{}", dns_service.name, dns_service.namespace),
            zone,
        })
    }

    pub fn zone(&self) -> &Name {
        &self.zone
    }

    /// The answer to a question; `None` if it is for other servers.
    pub fn lookup(&self, snapshot: &Snapshot, name: &Name, kind: RecordType) -> Option<LookupResult> {
        if let Some(below) = labels_below(name, &self.zone) {
            return Some(self.lookup_in_zone(snapshot, name, below, kind));
        }
        let address = self.reverse_address(name)?;
        let answers: Vec<_> = snapshot.names_of(&address).map(|it| RData::PTR(PTR(it.clone()))).collect();
        if !answers.is_empty() {
            let answers =
                if matches!(kind, RecordType::PTR | RecordType::ANY) { answers } else { Vec::new() };
            return Some(self.answer(snapshot, name, answers));
        }
        let is_own = self.reverse_ranges.iter().any(|range| {
            range.family() == Family::of(&address)
                && Network::around(address, range.prefix()).base() == range.base()
        });
        is_own.then(|| self.failure(snapshot, name, ResponseCode::NXDomain))
    }

    fn lookup_in_zone(
        &self,
        snapshot: &Snapshot,
        name: &Name,
        below: usize,
        kind: RecordType,
    ) -> LookupResult {
        let mut aliases = Vec::new();
        let (mut owner, mut below) = (name.clone(), below);
        loop {
            let mut result = match self.node(snapshot, &owner, below) {
                Node::Missing => self.failure(snapshot, &owner, ResponseCode::NXDomain),
                Node::Service(ServiceRecords::Alias(target)) => {
                    aliases.push(Record::from_rdata(owner, TTL, RData::CNAME(CNAME(target.clone()))));
                    if kind == RecordType::CNAME {
                        return LookupResult::new(aliases);
                    }
                    if aliases.len() == MAX_ALIASES {
                        return LookupResult {
                            code: ResponseCode::ServFail,
                            ..LookupResult::new(Vec::new())
                        };
                    }
                    match labels_below(target, &self.zone) {
                        Some(labels) => (owner, below) = (target.clone(), labels),
                        None => {
                            let alias_target = Some(target.clone());
                            return LookupResult { alias_target, ..LookupResult::new(aliases) };
                        }
                    }
                    continue;
                }
                node => self.node_records(snapshot, &owner, &node, kind),
            };
            if !aliases.is_empty() {
                aliases.append(&mut result.answers);
                result.answers = aliases;
            }
            return result;
        }
    }

    /// The node of a name with so many labels below the zone.
    fn node<'s, 'n>(&self, snapshot: &'s Snapshot, name: &'n Name, below: usize) -> Node<'s, 'n> {
        if below > MAX_LABELS {
            return Node::Missing;
        }
        let mut labels: [&'n [u8]; MAX_LABELS] = [&[]; MAX_LABELS];
        for (slot, label) in labels.iter_mut().zip(name.iter().take(below)) {
            *slot = label;
        }
        let is = |label: &[u8], text: &str| label.eq_ignore_ascii_case(text.as_bytes());
        let service = |service: &[u8], namespace: &[u8]| {
            let mut buffer = [0; MAX_KEY];
            lower_key(&mut buffer, &[service, namespace]).and_then(|key| snapshot.service(key))
        };
        let has_namespace = |namespace: &[u8]| {
            let mut buffer = [0; MAX_KEY];
            lower_key(&mut buffer, &[namespace]).is_some_and(|it| snapshot.has_namespace(it))
        };
        match &labels[..below] {
            [] => Node::Apex,
            [top] if is(top, "dns-version") => Node::Version,
            [top] if is(top, "svc") || is(top, "pod") || is(top, "dns") => Node::Empty,
            [one, top] if is(top, "dns") && is(one, "ns") => Node::NameServer,
            [namespace, top] if (is(top, "svc") || is(top, "pod")) && has_namespace(namespace) => Node::Empty,
            [address, namespace, top] if is(top, "pod") && has_namespace(namespace) => {
                dashed_address(address).map_or(Node::Missing, Node::Pod)
            }
            [one, namespace, top] if is(top, "svc") => {
                service(one, namespace).map_or(Node::Missing, |it| Node::Service(it))
            }
            [one, two, namespace, top] if is(top, "svc") => match service(two, namespace) {
                Some(records) => below_service(records, one),
                None => Node::Missing,
            },
            [name, protocol, three, namespace, top] if is(top, "svc") => match service(three, namespace) {
                Some(records) => below_protocol(records, name, protocol),
                None => Node::Missing,
            },
            _ => Node::Missing,
        }
    }

    /// The records of a name that is no alias.
    fn node_records(
        &self,
        snapshot: &Snapshot,
        name: &Name,
        node: &Node<'_, '_>,
        kind: RecordType,
    ) -> LookupResult {
        let mut additionals = Vec::new();
        let is_address = |address: &IpAddr| match kind {
            RecordType::A => address.is_ipv4(),
            RecordType::AAAA => address.is_ipv6(),
            kind => kind == RecordType::ANY,
        };
        let data: Vec<RData> = match node {
            Node::Apex => match kind {
                RecordType::SOA | RecordType::ANY => vec![self.soa(snapshot)],
                RecordType::NS => vec![RData::NS(NS(self.name_server.clone()))],
                _ => Vec::new(),
            },
            Node::Version if matches!(kind, RecordType::TXT | RecordType::ANY) => {
                vec![RData::TXT(TXT::new(vec![SPECIFICATION.to_owned()]))]
            }
            Node::NameServer => match snapshot.service(&self.dns_service).map(|it| &**it) {
                Some(ServiceRecords::Cluster { addresses, .. }) => {
                    addresses.iter().filter(|it| is_address(it)).map(address_data).collect()
                }
                _ => Vec::new(),
            },
            Node::Pod(address) => {
                Some(address).filter(|it| is_address(it)).map(address_data).into_iter().collect()
            }
            Node::Service(records) if kind == RecordType::SRV => {
                service_locations(records, name, |_| true, &mut additionals)
            }
            Node::Service(ServiceRecords::Cluster { addresses, .. }) => {
                addresses.iter().filter(|it| is_address(it)).map(address_data).collect()
            }
            Node::Service(ServiceRecords::Headless(endpoints)) => {
                unique(endpoints.iter().map(|it| it.address).filter(|it| is_address(it)))
            }
            Node::Endpoint(ServiceRecords::Headless(endpoints), label, length) => {
                let label = &label[..*length];
                let found = endpoints.iter().filter(|it| it.label.as_bytes() == label);
                unique(found.map(|it| it.address).filter(|it| is_address(it)))
            }
            Node::Ports { records, name: port, protocol }
                if matches!(kind, RecordType::SRV | RecordType::ANY) =>
            {
                let service = name.trim_to(label_count(name).saturating_sub(2));
                let matches = |it: &Port| is_port(it, port, protocol);
                service_locations(records, &service, matches, &mut additionals)
            }
            _ => Vec::new(),
        };
        LookupResult { additionals, ..self.answer(snapshot, name, data) }
    }

    /// An answer with these records, or with none: the name exists.
    fn answer(&self, snapshot: &Snapshot, name: &Name, data: Vec<RData>) -> LookupResult {
        if data.is_empty() {
            return self.failure(snapshot, name, ResponseCode::NoError);
        }
        let record = |data| Record::from_rdata(name.clone(), TTL, data);
        LookupResult::new(data.into_iter().map(record).collect())
    }

    /// An answer without records, with the SOA record from which clients know how long it holds.
    fn failure(&self, snapshot: &Snapshot, name: &Name, code: ResponseCode) -> LookupResult {
        let zones = [&self.in_addr, &self.ip6];
        let zone = zones.into_iter().find(|zone| labels_below(name, zone).is_some()).unwrap_or(&self.zone);
        let soa = Record::from_rdata(zone.clone(), TTL, self.soa(snapshot));
        LookupResult { code, authorities: vec![soa], ..LookupResult::new(Vec::new()) }
    }

    fn soa(&self, snapshot: &Snapshot) -> RData {
        let (server, master) = (self.name_server.clone(), self.host_master.clone());
        RData::SOA(SOA::new(server, master, snapshot.serial, 7200, 1800, 86400, TTL))
    }

    /// The address of a reverse name.
    fn reverse_address(&self, name: &Name) -> Option<IpAddr> {
        let labels = |below: usize| name.iter().take(below);
        if labels_below(name, &self.in_addr) == Some(4) {
            let mut octets = [0; 4];
            for (octet, label) in octets.iter_mut().rev().zip(labels(4)) {
                *octet = std::str::from_utf8(label).ok()?.parse().ok()?;
            }
            return Some(Ipv4Addr::from(octets).into());
        }
        if labels_below(name, &self.ip6) == Some(32) {
            let mut bits = 0u128;
            for (at, label) in labels(32).enumerate() {
                let [digit] = label else { return None };
                let digit = char::from(*digit).to_digit(16)?;
                bits |= u128::from(digit) << (4 * at);
            }
            return Some(Ipv6Addr::from_bits(bits).into());
        }
        None
    }
}

impl LookupResult {
    fn new(answers: Vec<Record>) -> Self {
        LookupResult {
            code: ResponseCode::NoError,
            answers,
            authorities: Vec::new(),
            additionals: Vec::new(),
            alias_target: None,
        }
    }
}

/// The labels of a name. The count of the library leaves out a leading `*`.
fn label_count(name: &Name) -> usize {
    name.iter().count()
}

/// How many labels a name has below a zone; `None` if it is outside.
fn labels_below(name: &Name, zone: &Name) -> Option<usize> {
    let below = label_count(name).checked_sub(label_count(zone))?;
    let is_inside = name.iter().skip(below).zip(zone.iter()).all(|(a, b)| a.eq_ignore_ascii_case(b));
    is_inside.then_some(below)
}

/// The labels in lower case, with dots between them; `None` if they are not ASCII.
fn lower_key<'b>(buffer: &'b mut [u8; MAX_KEY], labels: &[&[u8]]) -> Option<&'b str> {
    let mut length = 0;
    for label in labels {
        if length > 0 {
            *buffer.get_mut(length)? = b'.';
            length += 1;
        }
        let part = buffer.get_mut(length..length + label.len())?;
        part.copy_from_slice(label);
        part.make_ascii_lowercase();
        length += label.len();
    }
    std::str::from_utf8(&buffer[..length]).ok().filter(|it| it.is_ascii())
}

fn is_port(port: &Port, name: &[u8], protocol: &[u8]) -> bool {
    let eq = |label: &[u8], text: &str| {
        !text.is_empty()
            && label.strip_prefix(b"_").is_some_and(|it| it.eq_ignore_ascii_case(text.as_bytes()))
    };
    eq(name, &port.name) && eq(protocol, &port.protocol)
}

fn ports(records: &ServiceRecords) -> Box<dyn Iterator<Item = &Port> + '_> {
    match records {
        ServiceRecords::Cluster { ports, .. } => Box::new(ports.iter()),
        ServiceRecords::Headless(endpoints) => Box::new(endpoints.iter().flat_map(|it| it.ports.iter())),
        ServiceRecords::Alias(_) => Box::new(std::iter::empty()),
    }
}

/// A name one label below a service: an endpoint, or the protocol of ports.
fn below_service<'s, 'n>(records: &'s ServiceRecords, label: &[u8]) -> Node<'s, 'n> {
    if let Some(protocol) = label.strip_prefix(b"_") {
        let mut named = ports(records).filter(|it| !it.name.is_empty());
        let has_protocol = named.any(|it| protocol.eq_ignore_ascii_case(it.protocol.as_bytes()));
        return if has_protocol { Node::Empty } else { Node::Missing };
    }
    let ServiceRecords::Headless(endpoints) = records else { return Node::Missing };
    let mut lower = [0; 63];
    let Some(part) = lower.get_mut(..label.len()) else { return Node::Missing };
    part.copy_from_slice(label);
    part.make_ascii_lowercase();
    match endpoints.iter().any(|it| it.label.as_bytes() == &*part) {
        true => Node::Endpoint(records, lower, label.len()),
        false => Node::Missing,
    }
}

fn below_protocol<'s, 'n>(records: &'s ServiceRecords, name: &'n [u8], protocol: &'n [u8]) -> Node<'s, 'n> {
    match ports(records).any(|it| is_port(it, name, protocol)) {
        true => Node::Ports { records, name, protocol },
        false => Node::Missing,
    }
}

/// The SRV records of the ports that match, with the addresses of their targets as additional records.
fn service_locations(
    records: &ServiceRecords,
    service: &Name,
    matches: impl Fn(&Port) -> bool,
    additionals: &mut Vec<Record>,
) -> Vec<RData> {
    let mut locations = Vec::new();
    match records {
        ServiceRecords::Cluster { addresses, ports } => {
            locations.extend(ports.iter().filter(|it| matches(it)).map(|it| (it.number, service.clone())));
            if !locations.is_empty() {
                let record = |it| Record::from_rdata(service.clone(), TTL, address_data(it));
                additionals.extend(addresses.iter().map(record));
            }
        }
        ServiceRecords::Headless(endpoints) => {
            for endpoint in endpoints {
                let Ok(target) = service.prepend_label(endpoint.label.as_bytes()) else { continue };
                let known = locations.len();
                for port in endpoint.ports.iter().filter(|it| matches(it)) {
                    let location = (port.number, target.clone());
                    if !locations.contains(&location) {
                        locations.push(location);
                    }
                }
                if locations.len() > known {
                    additionals.push(Record::from_rdata(target, TTL, address_data(&endpoint.address)));
                }
            }
        }
        ServiceRecords::Alias(_) => {}
    }
    // all targets have the same share of the weight
    let weight = u16::try_from(100 / locations.len().max(1)).unwrap_or(0).max(1);
    locations.into_iter().map(|(port, target)| RData::SRV(SRV::new(0, weight, port, target))).collect()
}

fn address_data(address: &IpAddr) -> RData {
    match address {
        IpAddr::V4(it) => RData::A(A(*it)),
        IpAddr::V6(it) => RData::AAAA(AAAA(*it)),
    }
}

/// The addresses without repetitions; they are sorted.
fn unique(addresses: impl Iterator<Item = IpAddr>) -> Vec<RData> {
    let mut last = None;
    let fresh = addresses.filter(|it| last.replace(*it) != Some(*it));
    fresh.map(|it| address_data(&it)).collect()
}

/// The address that a label with dashes says: `10-244-0-7`, `fd00--7`.
fn dashed_address(label: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(label).ok()?;
    let is_v4 = text.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    let v4 = is_v4.then(|| text.replace('-', ".").parse::<Ipv4Addr>().ok()).flatten();
    v4.map(IpAddr::from).or_else(|| text.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::from))
}
