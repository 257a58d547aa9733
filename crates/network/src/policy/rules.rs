//! The tables of network policies.
//!
//! ```text
//! map ingress-pods { 10.1.0.2 : goto ingress-pods-4f2a… }
//! chain ingress-pods-4f2a… {      for each combination of policies that select a pod
//!     jump ingress-91c0…
//!     drop
//! }
//! chain ingress-91c0… {           for each policy
//!     ip saddr @pods-77aa… meta l4proto . th dport @ports-03bd… accept
//! }
//! ```
//!
//! The two directions have base chains of their own, so a packet that one accepts goes on to the other. Sets of pods are
//! named after their selection and not after its pods: a pod more is an element more, and no rule changes. Policies
//! with the same selection share its set. Sets of networks and of ports are named after their content.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use client::Key;

use super::objects::{
    Direction, NamespaceSelection, Peer, PodInfo, PodSelection, PolicyInfo, PolicyPort, PolicyRule, PortMatch,
};
use crate::netfilter::statement::ConnectionState;
use crate::netfilter::{
    AddressRange, AddressSide, BaseChain, Chain, Data, Element, Family, Field, FieldType, Hook, Name,
    Protocol, Rule, Selector, SetType, Statement, TableId, Value, Verdict, merge, subtract,
};

/// The name of the tables, one of each family.
pub const TABLE: &str = "pintle-policy";

/// After the filters of the proxy, which reject services without endpoints.
const EGRESS_PRIORITY: i32 = 10;
const INGRESS_PRIORITY: i32 = 11;

pub fn table_id(family: Family) -> TableId {
    TableId::new(family, TABLE)
}

/// The map from addresses of pods to chains.
pub fn pod_map(direction: Direction) -> Name {
    format!("{}-pods", prefix(direction)).into()
}

pub fn pod_map_type(family: Family) -> SetType {
    SetType::verdict_map(&[address_type(family)])
}

fn prefix(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

fn address_type(family: Family) -> FieldType {
    if family == Family::Ipv6 { FieldType::Ipv6Address } else { FieldType::Ipv4Address }
}

/// The chains that hooks call.
pub fn base_chains(family: Family) -> [(Name, Chain); 3] {
    let accept = || {
        Rule::new([
            Statement::connection_state(ConnectionState::ESTABLISHED | ConnectionState::RELATED),
            Statement::Verdict(Verdict::Accept),
        ])
    };
    let by = |side, direction| {
        Rule::new([Statement::verdict_map([Selector::address(family, side)], &pod_map(direction))])
    };
    let egress = || by(AddressSide::Source, Direction::Egress);
    let ingress = by(AddressSide::Destination, Direction::Ingress);
    let base = |hook, priority, rules| Chain::base(BaseChain::filter(hook).with_priority(priority), rules);
    [
        ("forward-egress".into(), base(Hook::Forward, EGRESS_PRIORITY, [accept(), egress()])),
        ("forward-ingress".into(), base(Hook::Forward, INGRESS_PRIORITY, [accept(), ingress])),
        // from pods to the node itself; packets of the node to its pods take neither of these ways
        ("input".into(), base(Hook::Input, EGRESS_PRIORITY, [accept(), egress()])),
    ]
}

/// The chain of pods that these policies select in a direction, by the names of their chains.
pub fn combined_chain(direction: Direction, policies: &[Name]) -> (Name, Chain) {
    let name = named(&format!("{}-pods", prefix(direction)), &policies);
    let jumps = policies.iter().map(|policy| Rule::new([Statement::jump(policy)]));
    (name, Chain::new(jumps.chain([Rule::new([Statement::Verdict(Verdict::Drop)])])))
}

/// The chain of a policy.
pub fn policy_chain_name(policy: &Key, direction: Direction) -> Name {
    named(prefix(direction), policy)
}

/// A set whose elements follow pods.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSet {
    pub selection: PodSelection,
    pub content: PodSetContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodSetContent {
    Addresses,
    /// Addresses with the numbers of the ports of this name.
    Ports {
        name: String,
        protocol: Protocol,
    },
}

impl PodSet {
    pub fn set_type(&self, family: Family) -> SetType {
        let address = address_type(family);
        match self.content {
            PodSetContent::Addresses => SetType::set(&[address]),
            PodSetContent::Ports { .. } => SetType::set(&[address, FieldType::Protocol, FieldType::Port]),
        }
    }

    /// The elements of a pod in a family.
    pub fn elements(&self, pod: &PodInfo, family: Family) -> Vec<Element> {
        let addresses = pod.addresses.iter().copied().filter(|address| Family::of(*address) == family);
        match &self.content {
            PodSetContent::Addresses => addresses.map(|address| Element::value(address.into())).collect(),
            PodSetContent::Ports { name, protocol } => {
                let ports = pod.named_ports.iter();
                let ports = ports.filter(|port| port.name == *name && port.protocol == *protocol);
                let element = |address: IpAddr, port: u16| {
                    let fields = [Field::Address(address), Field::Protocol(*protocol), Field::Port(port)];
                    Element::value(Value::new(&fields))
                };
                let pairs = addresses.flat_map(|address| ports.clone().map(move |port| (address, port.port)));
                let mut elements: Vec<_> = pairs.map(|(address, port)| element(address, port)).collect();
                elements.sort_unstable();
                elements.dedup();
                elements
            }
        }
    }
}

/// A set whose elements follow from the policy alone.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedSet {
    pub set_type: SetType,
    pub elements: Vec<Element>,
}

/// The rules of a policy in one direction and family, and the sets that they refer to.
#[derive(Debug, Default)]
pub struct PolicyRules {
    pub rules: Vec<Rule>,
    pub pod_sets: BTreeMap<Name, PodSet>,
    pub fixed_sets: BTreeMap<Name, FixedSet>,
}

/// What a rule compares, and with which set.
type Condition = Statement;

impl PolicyRules {
    pub fn new(policy: &PolicyInfo, direction: Direction, family: Family, comment: &str) -> Self {
        let mut built = Self::default();
        for rule in policy.directions.get(&direction).into_iter().flatten() {
            built.add(rule, policy, direction, family, comment);
        }
        built
    }

    fn add(
        &mut self,
        rule: &PolicyRule,
        policy: &PolicyInfo,
        direction: Direction,
        family: Family,
        comment: &str,
    ) {
        let numbers = rule.ports.as_ref().and_then(|ports| self.numbers(ports));
        // named ports of destinations come with their addresses
        let has_peers = rule.ports.is_none() || numbers.is_some() || direction == Direction::Ingress;
        let peers = if has_peers { self.peers(rule, policy, direction, family) } else { Some(Vec::new()) };
        let mut conditions: Vec<Vec<Condition>> = Vec::new();
        let mut with_peers = |port: Option<&Condition>| match &peers {
            None => conditions.push(port.cloned().into_iter().collect()),
            Some(peers) => {
                conditions.extend(peers.iter().map(|peer| [peer].into_iter().chain(port).cloned().collect()));
            }
        };
        match &rule.ports {
            None => with_peers(None),
            Some(ports) => {
                if let Some(numbers) = &numbers {
                    with_peers(Some(numbers));
                }
                let named = ports.iter().filter_map(|port| match &port.port {
                    PortMatch::Named(name) => Some((name, port.protocol)),
                    PortMatch::All | PortMatch::Range { .. } => None,
                });
                for (name, protocol) in named {
                    match direction {
                        // the destination names its ports
                        Direction::Ingress => {
                            let ports = self.named_ports(policy.target(), name, protocol, family);
                            with_peers(Some(&ports));
                        }
                        Direction::Egress => {
                            for peer in pod_peers(rule, policy) {
                                let ports = self.named_ports(peer, name, protocol, family);
                                self.rules.push(accept([ports], comment));
                            }
                        }
                    }
                }
            }
        }
        self.rules.extend(conditions.into_iter().map(|conditions| accept(conditions, comment)));
    }

    /// Comparisons with the peers, of which one must hold; all packets match if there are none.
    fn peers(
        &mut self,
        rule: &PolicyRule,
        policy: &PolicyInfo,
        direction: Direction,
        family: Family,
    ) -> Option<Vec<Condition>> {
        let side = match direction {
            Direction::Ingress => AddressSide::Source,
            Direction::Egress => AddressSide::Destination,
        };
        let peers = rule.peers.as_ref()?;
        let mut conditions = Vec::new();
        let ranges = merge(peers.iter().flat_map(|peer| networks(peer, family)));
        if !ranges.is_empty() {
            let set_type = SetType::set(&[address_type(family)]).intervals();
            let set = self.fixed_set("networks", set_type, ranges.iter().map(range_element).collect());
            conditions.push(Statement::in_set([Selector::address(family, side)], &set));
        }
        for selection in pod_peers(rule, policy) {
            let set = self.pod_set("pods", PodSet { selection, content: PodSetContent::Addresses });
            conditions.push(Statement::in_set([Selector::address(family, side)], &set));
        }
        Some(conditions)
    }

    /// A comparison with the ports that have numbers.
    fn numbers(&mut self, ports: &[PolicyPort]) -> Option<Condition> {
        let ranges = merge_ports(ports.iter().filter_map(|port| match port.port {
            PortMatch::All => Some((port.protocol, 0, u16::MAX)),
            PortMatch::Range { first, last } => Some((port.protocol, first, last)),
            PortMatch::Named(_) => None,
        }));
        let elements = ranges.into_iter().map(|(protocol, first, last)| {
            let value = |number| Value::new(&[Field::Protocol(protocol), Field::Port(number)]);
            Element { from: value(first), to: (first != last).then(|| value(last)) }
        });
        let elements: Vec<_> = elements.collect();
        let set_type = SetType::set(&[FieldType::Protocol, FieldType::Port]).intervals();
        (!elements.is_empty()).then(|| {
            let set = self.fixed_set("ports", set_type, elements);
            Statement::in_set([Selector::l4_protocol(), Selector::destination_port()], &set)
        })
    }

    /// A comparison with the ports of a name that the destination has, if it is one of these pods.
    fn named_ports(
        &mut self,
        selection: PodSelection,
        name: &str,
        protocol: Protocol,
        family: Family,
    ) -> Condition {
        let content = PodSetContent::Ports { name: name.to_owned(), protocol };
        let set = self.pod_set("endpoints", PodSet { selection, content });
        let destination = Selector::address(family, AddressSide::Destination);
        Statement::in_set([destination, Selector::l4_protocol(), Selector::destination_port()], &set)
    }

    fn pod_set(&mut self, prefix: &str, set: PodSet) -> Name {
        let name = named(prefix, &(&set.selection, &set.content));
        self.pod_sets.insert(name.clone(), set);
        name
    }

    fn fixed_set(&mut self, prefix: &str, set_type: SetType, elements: Vec<Element>) -> Name {
        let name = named(prefix, &elements);
        self.fixed_sets.insert(name.clone(), FixedSet { set_type, elements });
        name
    }
}

fn accept(conditions: impl IntoIterator<Item = Condition>, comment: &str) -> Rule {
    let verdict = Statement::Verdict(Verdict::Accept);
    Rule::new(conditions.into_iter().chain([verdict])).with_comment(comment)
}

/// The verdict for packets of a pod.
pub fn pod_verdict(chain: &Name) -> Data {
    Data::Verdict(Verdict::Goto(chain.clone()))
}

/// The pods of a rule's peers; all pods if the rule has no peers.
fn pod_peers(rule: &PolicyRule, policy: &PolicyInfo) -> Vec<PodSelection> {
    let all = || PodSelection {
        namespaces: NamespaceSelection::Labels(apimachinery::labels::Selector::default()),
        pods: apimachinery::labels::Selector::default(),
    };
    let Some(peers) = &rule.peers else { return vec![all()] };
    let of_peer = |peer: &Peer| match peer {
        Peer::Addresses { .. } => None,
        Peer::Pods { pods, namespaces } => Some(PodSelection {
            namespaces: match namespaces {
                Some(selector) => NamespaceSelection::Labels(selector.clone()),
                None => NamespaceSelection::Name(policy.namespace.clone()),
            },
            pods: pods.clone(),
        }),
    };
    peers.iter().filter_map(of_peer).collect()
}

/// The addresses of a peer that is a network, in a family.
fn networks(peer: &Peer, family: Family) -> Vec<AddressRange> {
    match peer {
        Peer::Pods { .. } => Vec::new(),
        Peer::Addresses { network, except } => {
            let network = Some(*network).filter(|network| Family::of(network.first()) == family);
            subtract(network.map(AddressRange::from), except.iter().copied().map(AddressRange::from))
        }
    }
}

fn range_element(range: &AddressRange) -> Element {
    let to = (range.first != range.last).then(|| range.last.into());
    Element { from: range.first.into(), to }
}

/// The same ports in sorted ranges that neither overlap nor touch.
fn merge_ports(ranges: impl Iterator<Item = (Protocol, u16, u16)>) -> Vec<(Protocol, u16, u16)> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable();
    let mut merged: Vec<(Protocol, u16, u16)> = Vec::new();
    for (protocol, first, end) in ranges {
        match merged.last_mut() {
            Some((known, _, last)) if *known == protocol && first <= last.saturating_add(1) => {
                *last = (*last).max(end);
            }
            _ => merged.push((protocol, first, end)),
        }
    }
    merged
}

/// A name for some content, which users of the API choose: two hashes, so that none finds two with the same name.
fn named(prefix: &str, content: &impl Hash) -> Name {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        content.hash(&mut hasher);
        hasher.finish()
    };
    format!("{prefix}-{:016x}{:016x}", hash(0), hash(1)).into()
}
