//! The table of the proxy: its sets, the chains that all services share, and the chains by number of endpoints.
//!
//! The way of a packet to a service:
//!
//! ```text
//! prerouting, output ─► services: chains[services[address . protocol . port]]   ─► a chain for the address
//!                                 chains[node-ports[protocol . port]]           ─► a chain for the node port
//!   cluster-N         mark traffic that does not come from pods, choose one of N endpoints
//!   external-N        mark, choose one of N endpoints
//!   external-local    policy Local: clients of this node as short-circuit[...] says, others as local-services[...] says
//!   firewall          sources in source-ranges go on as others do
//! input, forward, output ─► what was not translated: dropped, or rejected if the service has no endpoints
//! postrouting ─► marked packets, and those from an endpoint to itself, get the node's address
//! ```
//!
//! Maps of addresses have numbers of chains rather than verdicts: whenever a verdict map changes, the kernel walks over all
//! elements of all verdict maps of the table, to find loops. So the verdict maps are small: `chains` has an element for
//! each chain, and the maps of affinity one for each address of services with affinity.
//!
//! Each table is of one family. Chains and sets of node ports have the same shape with shorter keys.

use std::net::IpAddr;
use std::sync::Arc;

use crate::netfilter::statement::{ConnectionKey, ConnectionState, ConnectionStatus, MetaKey, Rejection};
use crate::netfilter::{
    AddressSide, BaseChain, Chain, Data, Element, Family, Field, FieldType, Hook, Name, Prefix, Rule,
    Selector, Set, SetType, Statement, Table, TableId, Value, Verdict, merge,
};

/// The name of the tables, one of each family.
pub const TABLE: &str = "pintle-proxy";

const REJECT: &str = "reject";
const FIREWALL: &str = "firewall";
const SERVICES: &str = "services";
const FILTER: &str = "filter";
const NODE_PORT_NETWORKS: &str = "node-port-networks";
/// The verdicts that numbers of refusals mean.
const REFUSALS: &str = "refusals";

pub fn table_id(family: Family) -> TableId {
    TableId::new(family, TABLE)
}

/// Settings of the rules of one family.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleOptions {
    pub family: Family,
    /// Give the node's address to all traffic to cluster IPs.
    pub has_masquerade_all: bool,
    /// The bit of the packet mark for traffic that gets the node's address.
    pub masquerade_mark: u32,
    /// How traffic of pods on this node is recognized.
    pub local_source: Option<LocalSource>,
    /// Networks of the node's addresses at which node ports are served; all if empty.
    pub node_port_networks: Vec<Prefix>,
    /// Whether node ports are served at 127.0.0.0/8.
    pub has_localhost_node_ports: bool,
    /// Endpoints that terminate are used if there are no others.
    pub has_terminating_fallback: bool,
}

impl RuleOptions {
    pub fn new(family: Family) -> Self {
        Self {
            family,
            has_masquerade_all: false,
            masquerade_mark: 1 << 14,
            local_source: None,
            node_port_networks: Vec::new(),
            has_localhost_node_ports: true,
            has_terminating_fallback: true,
        }
    }
}

/// How traffic of pods on this node is recognized.
#[derive(Debug, Clone, PartialEq)]
pub enum LocalSource {
    Network(Prefix),
    Interface(String),
    InterfacePrefix(String),
}

impl LocalSource {
    fn matches(&self, is_negated: bool) -> Statement {
        let interface = |value| match is_negated {
            true => Statement::not_equal(Selector::Meta(MetaKey::InputInterface), value),
            false => Statement::equal(Selector::Meta(MetaKey::InputInterface), value),
        };
        match self {
            Self::Network(network) if is_negated => Statement::not_in_network(AddressSide::Source, network),
            Self::Network(network) => Statement::in_network(AddressSide::Source, network),
            Self::Interface(name) => interface(Value::new(&[Field::InterfaceName(name.clone())])),
            // compared without the bytes that follow
            Self::InterfacePrefix(prefix) => interface(Value::from_bytes(prefix.as_bytes())),
        }
    }
}

/// The sets of a table, in the order of their elements in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetId {
    /// The verdicts that numbers of chains mean.
    Chains,
    /// Numbers of the chains of addresses.
    Services,
    NodePorts,
    /// Addresses with the policy Local.
    ExternalLocal,
    NodePortExternalLocal,
    /// Numbers of the chains of addresses with the policy Local, for clients of this node.
    ShortCircuit,
    NodePortShortCircuit,
    /// The same for clients elsewhere.
    LocalServices,
    NodePortLocal,
    /// Endpoints by address and number.
    Endpoints,
    NodePortEndpoints,
    LocalEndpoints,
    NodePortLocalEndpoints,
    /// Chains that choose an endpoint by the client, by address.
    Affinity,
    NodePortAffinity,
    LocalAffinity,
    NodePortLocalAffinity,
    /// Addresses whose traffic is dropped or rejected.
    NoEndpoints,
    NodePortNoEndpoints,
    SourceRanges,
    /// Addresses with source ranges.
    Firewalled,
    /// Endpoints, paired with themselves.
    Hairpin,
}

impl SetId {
    pub const ALL: [Self; 22] = [
        Self::Chains,
        Self::Services,
        Self::NodePorts,
        Self::ExternalLocal,
        Self::NodePortExternalLocal,
        Self::ShortCircuit,
        Self::NodePortShortCircuit,
        Self::LocalServices,
        Self::NodePortLocal,
        Self::Endpoints,
        Self::NodePortEndpoints,
        Self::LocalEndpoints,
        Self::NodePortLocalEndpoints,
        Self::Affinity,
        Self::NodePortAffinity,
        Self::LocalAffinity,
        Self::NodePortLocalAffinity,
        Self::NoEndpoints,
        Self::NodePortNoEndpoints,
        Self::SourceRanges,
        Self::Firewalled,
        Self::Hairpin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Chains => "chains",
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::ExternalLocal => "external-local",
            Self::NodePortExternalLocal => "node-port-external-local",
            Self::ShortCircuit => "short-circuit",
            Self::NodePortShortCircuit => "node-port-short-circuit",
            Self::LocalServices => "local-services",
            Self::NodePortLocal => "node-port-local",
            Self::Endpoints => "endpoints",
            Self::NodePortEndpoints => "node-port-endpoints",
            Self::LocalEndpoints => "local-endpoints",
            Self::NodePortLocalEndpoints => "node-port-local-endpoints",
            Self::Affinity => "affinity",
            Self::NodePortAffinity => "node-port-affinity",
            Self::LocalAffinity => "local-affinity",
            Self::NodePortLocalAffinity => "node-port-local-affinity",
            Self::NoEndpoints => "no-endpoints",
            Self::NodePortNoEndpoints => "node-port-no-endpoints",
            Self::SourceRanges => "source-ranges",
            Self::Firewalled => "firewalled",
            Self::Hairpin => "hairpin",
        }
    }

    pub fn set_type(self, family: Family) -> SetType {
        let address = address_type(family);
        let service = [address, FieldType::Protocol, FieldType::Port];
        let node_port = &service[1..];
        let with = |key: &[FieldType], last: FieldType| [key, &[last]].concat();
        let slot =
            |key: &[FieldType]| SetType::map(&with(key, FieldType::Number), &[address, FieldType::Port]);
        let number = |key: &[FieldType]| SetType::map(key, &[FieldType::Number]);
        match self {
            Self::Chains => SetType::verdict_map(&[FieldType::Number]),
            Self::Services | Self::ShortCircuit | Self::LocalServices | Self::NoEndpoints => number(&service),
            Self::NodePorts
            | Self::NodePortShortCircuit
            | Self::NodePortLocal
            | Self::NodePortNoEndpoints => number(node_port),
            Self::ExternalLocal | Self::Firewalled => SetType::set(&service),
            Self::NodePortExternalLocal => SetType::set(node_port),
            Self::Affinity | Self::LocalAffinity => SetType::verdict_map(&service),
            Self::NodePortAffinity | Self::NodePortLocalAffinity => SetType::verdict_map(node_port),
            Self::Endpoints | Self::LocalEndpoints => slot(&service),
            Self::NodePortEndpoints | Self::NodePortLocalEndpoints => slot(node_port),
            Self::SourceRanges => SetType::set(&with(&service, address)).intervals(),
            Self::Hairpin => SetType::set(&[address, address]),
        }
    }
}

pub fn address_type(family: Family) -> FieldType {
    if family == Family::Ipv6 { FieldType::Ipv6Address } else { FieldType::Ipv4Address }
}

/// Whether a chain is for addresses or for node ports, whose keys have no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    Address,
    NodePort,
}

impl KeyKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Address => "",
            Self::NodePort => "node-port-",
        }
    }

    fn selectors(self, family: Family) -> Vec<Selector> {
        let address = Selector::address(family, AddressSide::Destination);
        let port = [Selector::l4_protocol(), Selector::destination_port()];
        let address = (self == Self::Address).then_some(address);
        address.into_iter().chain(port).collect()
    }

    /// The set of this kind, of the two that have the same purpose.
    pub fn choose(self, address: SetId, node_port: SetId) -> SetId {
        match self {
            Self::Address => address,
            Self::NodePort => node_port,
        }
    }

    /// The chain for the policy Local.
    pub fn external_local_chain(self) -> Name {
        format!("{}external-local", self.prefix()).into()
    }
}

/// What a chain does before it chooses an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainClass {
    /// Traffic to a cluster IP.
    Cluster,
    /// External traffic with the policy Cluster.
    External,
    /// External traffic with the policy Local, from this node.
    ShortCircuit,
    /// External traffic with the policy Local, from elsewhere.
    Local,
}

/// How a chain chooses an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Picker {
    /// One of so many elements, at random.
    Slots(u32),
    /// By the chain of a service with affinity.
    Affinity,
}

/// A chain that is shared by all services which need the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedChain {
    pub class: ChainClass,
    pub kind: KeyKind,
    pub picker: Picker,
}

impl SharedChain {
    pub fn name(&self) -> Name {
        let class = match self.class {
            ChainClass::Cluster => "cluster",
            ChainClass::External => "external",
            ChainClass::ShortCircuit => "short-circuit",
            ChainClass::Local => "local",
        };
        let prefix = self.kind.prefix();
        match &self.picker {
            Picker::Slots(count) => format!("{prefix}{class}-{count}").into(),
            Picker::Affinity => format!("{prefix}{class}-affinity").into(),
        }
    }

    /// The number of the chain in maps of addresses.
    pub fn number(&self) -> u32 {
        let count = match self.picker {
            Picker::Slots(count) => count,
            Picker::Affinity => 0,
        };
        (self.class as u32) << 29 | (self.kind as u32) << 28 | count & 0x0fff_ffff
    }

    pub fn rules(&self, options: &RuleOptions) -> Vec<Rule> {
        let mark = Statement::set_mark_bits(options.masquerade_mark);
        let mut rules = Vec::new();
        match self.class {
            ChainClass::Cluster if options.has_masquerade_all => rules.push(Rule::new([mark])),
            ChainClass::Cluster => {
                let source = options.local_source.as_ref().map(|source| source.matches(true));
                rules.extend(source.map(|is_elsewhere| Rule::new([is_elsewhere, mark])));
            }
            ChainClass::External => rules.push(Rule::new([mark])),
            ChainClass::ShortCircuit | ChainClass::Local => (),
        }
        rules.push(match &self.picker {
            Picker::Affinity => {
                let map = match self.class {
                    ChainClass::Local => self.kind.choose(SetId::LocalAffinity, SetId::NodePortLocalAffinity),
                    _ => self.kind.choose(SetId::Affinity, SetId::NodePortAffinity),
                };
                Rule::new([Statement::verdict_map(self.kind.selectors(options.family), map.name())])
            }
            Picker::Slots(count) => Rule::new([Statement::DestinationNat {
                family: options.family,
                to: self.endpoint(*count, options.family),
                has_port: true,
            }]),
        });
        rules
    }

    fn endpoint(&self, count: u32, family: Family) -> Selector {
        let map = match self.class {
            ChainClass::Local => self.kind.choose(SetId::LocalEndpoints, SetId::NodePortLocalEndpoints),
            _ => self.kind.choose(SetId::Endpoints, SetId::NodePortEndpoints),
        };
        let mut key = self.kind.selectors(family);
        key.push(Selector::Random { bound: count });
        Selector::Map { key, map: map.name().into() }
    }
}

/// The table without any service.
pub fn base_table(options: &RuleOptions) -> Table {
    let chains = [
        ("prerouting", Chain::base(BaseChain::nat(Hook::Prerouting), [jump(SERVICES)])),
        ("nat-output", Chain::base(BaseChain::nat(Hook::Output), [jump(SERVICES)])),
        ("postrouting", Chain::base(BaseChain::nat(Hook::Postrouting), postrouting(options))),
        ("input", Chain::base(BaseChain::filter(Hook::Input), input(options))),
        ("forward", Chain::base(BaseChain::filter(Hook::Forward), forward())),
        ("filter-output", Chain::base(BaseChain::filter(Hook::Output), [new_connections()])),
        (SERVICES, Chain::new(services(options))),
        (FILTER, Chain::new(filter(options))),
        (FIREWALL, Chain::new(firewall(options.family))),
        (
            REJECT,
            Chain::new([Rule::new([Statement::Reject {
                family: options.family,
                with: Rejection::PortUnreachable,
            }])]),
        ),
    ];
    let mut table = Table::default();
    table.chains.extend(chains.into_iter().map(|(name, chain)| (Name::from(name), chain)));
    for kind in [KeyKind::Address, KeyKind::NodePort] {
        table.chains.insert(kind.external_local_chain(), Chain::new(external_local(kind, options)));
    }
    for set in SetId::ALL {
        table.sets.insert(set.name().into(), Set::new(set.set_type(options.family)));
    }
    if !options.node_port_networks.is_empty() {
        let mut networks = Set::new(SetType::set(&[address_type(options.family)]).intervals());
        let ranges = merge(options.node_port_networks.iter().map(|network| (*network).into()));
        networks.elements.extend(ranges.into_iter().map(|range| {
            let to = (range.first != range.last).then(|| range.last.into());
            (Element { from: range.first.into(), to }, None)
        }));
        table.sets.insert(NODE_PORT_NETWORKS.into(), networks);
    }
    let mut refusals = Set::new(SetType::verdict_map(&[FieldType::Number]));
    refusals.elements.extend(Refusal::ALL.map(|refusal| {
        let verdict = match refusal {
            Refusal::Drop => Verdict::Drop,
            Refusal::Reject => Verdict::goto(REJECT),
        };
        (number_key(refusal as u32), Some(Data::Verdict(verdict)))
    }));
    table.sets.insert(REFUSALS.into(), refusals);
    table
}

/// What becomes of traffic to an address that was not translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Drop,
    Reject,
}

impl Refusal {
    const ALL: [Self; 2] = [Self::Drop, Self::Reject];
}

/// The key of a number in a verdict map.
pub fn number_key(number: u32) -> Element {
    Element::value(Value::new(&[Field::Number(number)]))
}

/// Goes on as the number says that a map has for an address or a node port.
fn dispatch(kind: KeyKind, family: Family, map: SetId) -> Statement {
    let number = Selector::Map { key: kind.selectors(family), map: map.name().into() };
    Statement::verdict_map([number], SetId::Chains.name())
}

/// Addresses with the policy Local have a chain of their own.
fn external_local_service(kind: KeyKind, family: Family) -> [Statement; 2] {
    let set = kind.choose(SetId::ExternalLocal, SetId::NodePortExternalLocal);
    [Statement::in_set(kind.selectors(family), set.name()), Statement::goto(&kind.external_local_chain())]
}

fn jump(chain: &str) -> Rule {
    Rule::new([Statement::jump(chain)])
}

fn services(options: &RuleOptions) -> Vec<Rule> {
    let family = options.family;
    let address = KeyKind::Address;
    let firewalled = Statement::in_set(address.selectors(family), SetId::Firewalled.name());
    let node_port =
        |statements: Vec<Statement>| Rule::new(node_port_destination(options).into_iter().chain(statements));
    vec![
        Rule::new([firewalled, Statement::goto(FIREWALL)]),
        Rule::new(external_local_service(address, family)),
        Rule::new([dispatch(address, family, SetId::Services)]),
        node_port(external_local_service(KeyKind::NodePort, family).into()),
        node_port(vec![dispatch(KeyKind::NodePort, family, SetId::NodePorts)]),
    ]
}

/// The destination is an address at which node ports are served.
fn node_port_destination(options: &RuleOptions) -> Vec<Statement> {
    let mut statements = vec![Statement::is_local(AddressSide::Destination)];
    let loopback = match options.family {
        // the kernel routes no packet from ::1 to another interface
        Family::Ipv6 => Some(Prefix::new(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128)),
        _ if options.has_localhost_node_ports => None,
        _ => Some(ipv4_loopback()),
    };
    statements.extend(loopback.map(|network| Statement::not_in_network(AddressSide::Destination, &network)));
    if !options.node_port_networks.is_empty() {
        let destination = Selector::address(options.family, AddressSide::Destination);
        statements.push(Statement::in_set([destination], NODE_PORT_NETWORKS));
    }
    statements
}

fn ipv4_loopback() -> Prefix {
    Prefix::new(IpAddr::from([127, 0, 0, 0]), 8)
}

/// The policy Local holds for traffic from elsewhere. Clients of this node reach all endpoints, as if their traffic had
/// gone to a load balancer outside and come back.
fn external_local(kind: KeyKind, options: &RuleOptions) -> Vec<Rule> {
    let family = options.family;
    let by = |set: SetId| dispatch(kind, family, set);
    let short_circuit = kind.choose(SetId::ShortCircuit, SetId::NodePortShortCircuit);
    let of_pods = options.local_source.as_ref().map(|source| source.matches(false));
    let of_pods = of_pods.map(|is_local| Rule::new([is_local, by(short_circuit)]));
    let of_node = [
        Statement::is_local(AddressSide::Source),
        Statement::set_mark_bits(options.masquerade_mark),
        by(short_circuit),
    ];
    let of_others = Rule::new([by(kind.choose(SetId::LocalServices, SetId::NodePortLocal))]);
    of_pods.into_iter().chain([Rule::new(of_node), of_others]).collect()
}

fn firewall(family: Family) -> [Rule; 2] {
    let in_ranges = || {
        let source = Selector::address(family, AddressSide::Source);
        let key = KeyKind::Address.selectors(family).into_iter().chain([source]);
        Statement::in_set(key, SetId::SourceRanges.name())
    };
    let [is_local, goto] = external_local_service(KeyKind::Address, family);
    [
        Rule::new([in_ranges(), is_local, goto]),
        Rule::new([in_ranges(), dispatch(KeyKind::Address, family, SetId::Services)]),
    ]
}

fn new_connections() -> Rule {
    Rule::new([Statement::connection_state(ConnectionState::NEW), Statement::jump(FILTER)])
}

/// Traffic to addresses of services that was not translated.
fn filter(options: &RuleOptions) -> Vec<Rule> {
    let family = options.family;
    let refuse = |kind: KeyKind| {
        let map = kind.choose(SetId::NoEndpoints, SetId::NodePortNoEndpoints);
        let refusal = Selector::Map { key: kind.selectors(family), map: map.name().into() };
        Statement::verdict_map([refusal], REFUSALS)
    };
    let firewalled = Statement::in_set(KeyKind::Address.selectors(family), SetId::Firewalled.name());
    vec![
        Rule::new([firewalled, Statement::Verdict(Verdict::Drop)]),
        Rule::new([refuse(KeyKind::Address)]),
        Rule::new(node_port_destination(options).into_iter().chain([refuse(KeyKind::NodePort)])),
    ]
}

fn input(options: &RuleOptions) -> Vec<Rule> {
    let mut rules = Vec::new();
    if options.family == Family::Ipv4 && options.has_localhost_node_ports {
        // packets to 127.0.0.0/8 are routed for the sake of node ports, so those of other machines are dropped here
        let loopback = ipv4_loopback();
        let status = Selector::Connection(ConnectionKey::Status);
        let state = Selector::Connection(ConnectionKey::State);
        rules.push(Rule::new([
            Statement::in_network(AddressSide::Destination, &loopback),
            Statement::not_in_network(AddressSide::Source, &loopback),
            Statement::no_bit(status, ConnectionStatus::DESTINATION_TRANSLATED),
            Statement::no_bit(state, ConnectionState::ESTABLISHED | ConnectionState::RELATED),
            Statement::Verdict(Verdict::Drop),
        ]));
    }
    rules.push(new_connections());
    rules
}

fn forward() -> [Rule; 2] {
    // a packet that belongs to no connection is not translated, and its receiver would reset the connection
    let invalid = Statement::connection_state(ConnectionState::INVALID);
    [Rule::new([invalid, Statement::Verdict(Verdict::Drop)]), new_connections()]
}

fn postrouting(options: &RuleOptions) -> Vec<Rule> {
    let mark = options.masquerade_mark;
    let masquerade = || Statement::Masquerade { is_random: true };
    let source = Selector::address(options.family, AddressSide::Source);
    let destination = Selector::address(options.family, AddressSide::Destination);
    vec![
        Rule::new([
            Statement::any_bit(Selector::Meta(MetaKey::Mark), mark),
            // the packet may come this way again
            Statement::clear_mark_bits(mark),
            masquerade(),
        ]),
        Rule::new([
            Statement::any_bit(
                Selector::Connection(ConnectionKey::Status),
                ConnectionStatus::DESTINATION_TRANSLATED,
            ),
            Statement::in_set([source, destination], SetId::Hairpin.name()),
            masquerade(),
        ])
        .with_comment("from an endpoint to itself"),
    ]
}

/// The types of all sets, shared by the changes of a batch.
pub fn set_types(family: Family) -> Vec<Arc<SetType>> {
    SetId::ALL.into_iter().map(|set| Arc::new(set.set_type(family))).collect()
}
