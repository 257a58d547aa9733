//! The elements and chains of one service in one family.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::endpoint::{Target, UsableEndpoints};
use super::rules::{ChainClass, KeyKind, Picker, Refusal, RuleOptions, SetId, SharedChain, address_type};
use super::service::ServicePort;
use crate::netfilter::statement::Comparison;
use crate::netfilter::{
    AddressSide, Chain, Data, Element, Field, Name, Prefix, Protocol, Rule, Selector, SetType, Statement,
    Value, Verdict, merge,
};

/// Clients that a set of affinity remembers.
const MAX_CLIENTS: u32 = 65_536;
/// The time for which clients are remembered if the rule says nothing else. Each rule does.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10_800);

/// An address and port at which a service is reached; without an address, a node port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    pub address: Option<IpAddr>,
    pub protocol: Protocol,
    pub port: u16,
}

impl Frontend {
    fn kind(&self) -> KeyKind {
        if self.address.is_some() { KeyKind::Address } else { KeyKind::NodePort }
    }

    fn fields(&self) -> Vec<Field> {
        let port = [Field::Protocol(self.protocol), Field::Port(self.port)];
        self.address.map(Field::Address).into_iter().chain(port).collect()
    }

    fn key(&self) -> Element {
        Element::value(Value::new(&self.fields()))
    }
}

/// All frontends of a service port: the cluster IP, external addresses, those of the load balancer, the node port.
pub fn frontends(port: &ServicePort) -> impl Iterator<Item = Frontend> {
    let at =
        |address: &IpAddr| Frontend { address: Some(*address), protocol: port.protocol, port: port.port };
    let node_port =
        port.node_port.map(|number| Frontend { address: None, protocol: port.protocol, port: number });
    let addresses = [port.cluster_ip].into_iter().chain(port.external_ips.clone());
    addresses.chain(port.load_balancer_ips.clone()).map(move |address| at(&address)).chain(node_port)
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fragment {
    pub elements: BTreeMap<(SetId, Element), Option<Data>>,
    /// Chains that other services may use as well.
    pub shared_chains: BTreeSet<SharedChain>,
    /// Addresses of endpoints on this node, which other services may have as well.
    pub hairpin: BTreeSet<IpAddr>,
    /// Chains and sets of services with affinity.
    pub chains: BTreeMap<Name, Chain>,
    pub sets: BTreeMap<Name, SetType>,
    /// The endpoints behind frontends of UDP, whose tracked connections are deleted when they change.
    pub datagrams: BTreeMap<Frontend, BTreeSet<IpAddr>>,
    /// Ports with a policy Local and endpoints, but none on this node.
    pub no_local_internal: u32,
    pub no_local_external: u32,
}

/// The endpoints of a port in the order of their elements.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slots {
    pub cluster: Vec<Target>,
    pub local: Vec<Target>,
}

impl Slots {
    /// The slots of new endpoints: those that stay keep theirs, so that few elements change.
    pub fn next(&self, usable: &UsableEndpoints) -> Self {
        Self { cluster: assign(&self.cluster, &usable.cluster), local: assign(&self.local, &usable.local) }
    }
}

/// Puts targets into as many slots. The last ones fill the gaps of those that are gone.
fn assign(previous: &[Target], targets: &[Target]) -> Vec<Target> {
    let mut new: BTreeSet<Target> = targets.iter().copied().collect();
    let mut slots: Vec<Option<Target>> =
        previous.iter().map(|target| new.remove(target).then_some(*target)).collect();
    for slot in slots.iter_mut().take(targets.len()) {
        if slot.is_none() {
            *slot = new.pop_first();
        }
    }
    // fewer endpoints than before: those at the end move into gaps
    let moved: Vec<Target> = slots.iter().skip(targets.len()).filter_map(|slot| *slot).collect();
    let mut moved = moved.into_iter();
    slots.truncate(targets.len());
    for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
        *slot = moved.next();
    }
    slots.into_iter().flatten().chain(moved).chain(new).collect()
}

/// A service port with everything that its rules depend on.
pub struct PortRules<'a> {
    /// `namespace/name` of the service.
    pub service: &'a str,
    pub port: &'a ServicePort,
    pub slots: &'a Slots,
    pub has_endpoints: bool,
    /// Targets on this node.
    pub local_addresses: &'a BTreeSet<IpAddr>,
    pub options: &'a RuleOptions,
    /// The addresses of the node, for source ranges.
    pub node_addresses: &'a [IpAddr],
}

impl PortRules<'_> {
    /// Adds the port's elements and chains. `is_owner` says whether a frontend belongs to this service: if several
    /// services claim one, the first of them has it.
    pub fn add_to(&self, fragment: &mut Fragment, is_owner: impl Fn(&Frontend) -> bool) {
        let port = self.port;
        let internal = if port.is_internal_local { &self.slots.local } else { &self.slots.cluster };
        let has_internal = self.has_endpoints && !internal.is_empty();
        let has_external = match port.is_external_local {
            true => !self.slots.local.is_empty(),
            false => !self.slots.cluster.is_empty(),
        };
        if self.has_endpoints {
            fragment.no_local_internal += u32::from(port.is_internal_local && !has_internal);
            let is_external = port.is_external_local && port.is_externally_accessible();
            fragment.no_local_external += u32::from(is_external && !has_external);
        }
        for frontend in frontends(port).filter(is_owner) {
            if frontend.address == Some(port.cluster_ip) {
                if has_internal {
                    self.add_targets(ChainClass::Cluster, &frontend, internal, fragment);
                } else {
                    self.refuse(&frontend, fragment);
                }
            } else {
                self.add_external(&frontend, has_external, fragment);
            }
            if port.protocol == Protocol::UDP {
                let targets = self.slots.cluster.iter().chain(&self.slots.local);
                fragment.datagrams.insert(frontend, targets.map(|target| target.address).collect());
            }
        }
        let targets = self.slots.cluster.iter().chain(&self.slots.local).map(|target| target.address);
        fragment.hairpin.extend(targets.filter(|address| self.local_addresses.contains(address)));
    }

    fn add_external(&self, frontend: &Frontend, has_external: bool, fragment: &mut Fragment) {
        if !has_external {
            self.refuse(frontend, fragment);
        }
        if !self.has_endpoints {
            return;
        }
        if self.port.is_external_local {
            self.add_targets(ChainClass::ShortCircuit, frontend, &self.slots.cluster, fragment);
            self.add_targets(ChainClass::Local, frontend, &self.slots.local, fragment);
            let set = frontend.kind().choose(SetId::ExternalLocal, SetId::NodePortExternalLocal);
            fragment.elements.insert((set, frontend.key()), None);
        } else {
            self.add_targets(ChainClass::External, frontend, &self.slots.cluster, fragment);
        }
        if let Some(address) = frontend.address
            && self.has_source_ranges(address)
            && (self.port.is_external_local || !self.slots.cluster.is_empty())
        {
            self.add_source_ranges(frontend, address, fragment);
        }
    }

    /// Source ranges are for the load balancer's addresses, unless they are external addresses too.
    fn has_source_ranges(&self, address: IpAddr) -> bool {
        !self.port.source_ranges.is_empty()
            && self.port.load_balancer_ips.contains(&address)
            && !self.port.external_ips.contains(&address)
    }

    fn add_source_ranges(&self, frontend: &Frontend, address: IpAddr, fragment: &mut Fragment) {
        fragment.elements.insert((SetId::Firewalled, frontend.key()), None);
        let ranges = &self.port.source_ranges;
        // a load balancer's address is often one of the node, and then the source of the node's own requests
        let is_node_allowed =
            self.node_addresses.iter().any(|node| ranges.iter().any(|range| range.contains(*node)));
        let own = self.port.load_balancer_ips.iter().filter(|_| is_node_allowed);
        let own = own.map(|address| Prefix::new(*address, 128));
        debug_assert!(self.port.load_balancer_ips.contains(&address));
        for range in merge(ranges.iter().copied().chain(own).map(Into::into)) {
            let value = |source: IpAddr| {
                let mut fields = frontend.fields();
                fields.push(Field::Address(source));
                Value::new(&fields)
            };
            let to = (range.first != range.last).then(|| value(range.last));
            fragment.elements.insert((SetId::SourceRanges, Element { from: value(range.first), to }), None);
        }
    }

    /// Traffic that was not translated: rejected without any endpoint, dropped without one on this node.
    fn refuse(&self, frontend: &Frontend, fragment: &mut Fragment) {
        let set = frontend.kind().choose(SetId::NoEndpoints, SetId::NodePortNoEndpoints);
        let refusal = if self.has_endpoints { Refusal::Drop } else { Refusal::Reject };
        fragment.elements.insert((set, frontend.key()), Some(number_data(refusal as u32)));
    }

    /// Sends traffic of a class to one of some targets, if there are any.
    fn add_targets(
        &self,
        class: ChainClass,
        frontend: &Frontend,
        targets: &[Target],
        fragment: &mut Fragment,
    ) {
        if targets.is_empty() {
            return;
        }
        let kind = frontend.kind();
        let (chains, endpoints, affinity) = match class {
            ChainClass::Cluster | ChainClass::External => (
                kind.choose(SetId::Services, SetId::NodePorts),
                kind.choose(SetId::Endpoints, SetId::NodePortEndpoints),
                kind.choose(SetId::Affinity, SetId::NodePortAffinity),
            ),
            ChainClass::ShortCircuit => (
                kind.choose(SetId::ShortCircuit, SetId::NodePortShortCircuit),
                kind.choose(SetId::Endpoints, SetId::NodePortEndpoints),
                kind.choose(SetId::Affinity, SetId::NodePortAffinity),
            ),
            ChainClass::Local => (
                kind.choose(SetId::LocalServices, SetId::NodePortLocal),
                kind.choose(SetId::LocalEndpoints, SetId::NodePortLocalEndpoints),
                kind.choose(SetId::LocalAffinity, SetId::NodePortLocalAffinity),
            ),
        };
        let picker = match self.port.affinity {
            None => {
                self.add_slots(endpoints, frontend, targets, fragment);
                Picker::Slots(targets.len() as u32)
            }
            Some(timeout) => {
                let is_local = std::ptr::eq(targets, self.slots.local.as_slice());
                let chain = self.affinity_chain(targets, is_local, timeout, fragment);
                let verdict = Data::Verdict(Verdict::Goto(chain));
                fragment.elements.insert((affinity, frontend.key()), Some(verdict));
                Picker::Affinity
            }
        };
        let chain = SharedChain { class, kind, picker };
        fragment.elements.insert((chains, frontend.key()), Some(number_data(chain.number())));
        fragment.shared_chains.insert(chain);
    }

    fn add_slots(&self, set: SetId, frontend: &Frontend, targets: &[Target], fragment: &mut Fragment) {
        for (slot, target) in (0..).zip(targets) {
            let mut fields = frontend.fields();
            fields.push(Field::Number(slot));
            let value = Value::new(&[Field::Address(target.address), Field::Port(target.port)]);
            let key = Element::value(Value::new(&fields));
            fragment.elements.insert((set, key), Some(Data::Value(value)));
        }
    }

    fn port_name(&self) -> String {
        let protocol = match self.port.protocol {
            Protocol::UDP => "udp",
            Protocol::SCTP => "sctp",
            _ => "tcp",
        };
        format!("{}/{protocol}/{}", self.service, self.port.port)
    }

    /// A chain that sends clients to the endpoint that they had before, and others to one at random.
    fn affinity_chain(
        &self,
        targets: &[Target],
        is_local: bool,
        timeout: Duration,
        fragment: &mut Fragment,
    ) -> Name {
        let policy = if is_local { "local" } else { "cluster" };
        let name: Name = format!("affinity-{policy}-{}", self.port_name()).into();
        if fragment.chains.contains_key(&name) {
            return name;
        }
        let family = self.options.family;
        let source = || Selector::address(family, AddressSide::Source);
        let endpoints: Vec<Name> = targets.iter().map(|target| self.endpoint_chain(target)).collect();
        let known = endpoints.iter().map(|endpoint| {
            Rule::new([Statement::in_set([source()], &clients(endpoint)), Statement::goto(endpoint)])
        });
        // each rule takes its share of what the rules before it left
        let chosen = endpoints.iter().enumerate().map(|(at, endpoint)| {
            let bound = (endpoints.len() - at) as u32;
            let is_chosen = Statement::Compare {
                selector: Selector::Random { bound },
                comparison: Comparison::Equal,
                value: Value::new(&[Field::Number(0)]),
            };
            let is_chosen = (bound > 1).then_some(is_chosen);
            Rule::new(is_chosen.into_iter().chain([Statement::goto(endpoint)]))
        });
        fragment.chains.insert(name.clone(), Chain::new(known.chain(chosen)));
        for (target, endpoint) in targets.iter().zip(&endpoints) {
            let update =
                Statement::Update { set: clients(endpoint), key: vec![source()], timeout: Some(timeout) };
            let translate = Statement::destination_nat(family, target.address, Some(target.port));
            fragment.chains.insert(endpoint.clone(), Chain::new([Rule::new([update, translate])]));
            let set_type = SetType::dynamic(&[address_type(family)], CLIENT_TIMEOUT, MAX_CLIENTS);
            fragment.sets.insert(clients(endpoint), set_type);
        }
        name
    }

    fn endpoint_chain(&self, target: &Target) -> Name {
        // the program nft takes no colon in a name
        let address = target.address.to_string().replace(':', ".");
        format!("endpoint-{}/{address}/{}", self.port_name(), target.port).into()
    }
}

fn number_data(number: u32) -> Data {
    Data::Value(Value::new(&[Field::Number(number)]))
}

/// The set of clients of an endpoint.
fn clients(endpoint_chain: &str) -> Name {
    let suffix = endpoint_chain.strip_prefix("endpoint-").unwrap_or(endpoint_chain);
    format!("clients-{suffix}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_stay_keep_their_slots() {
        let target = |number: u8| Target { address: [10, 1, 0, number].into(), port: 80 };
        let check = |previous: &[u8], next: &[u8], slots: &[u8]| {
            let targets = |numbers: &[u8]| numbers.iter().map(|number| target(*number)).collect::<Vec<_>>();
            assert_eq!(
                assign(&targets(previous), &targets(next)),
                targets(slots),
                "{previous:?} to {next:?}"
            );
        };
        check(&[], &[1, 2, 3], &[1, 2, 3]);
        check(&[1, 2, 3], &[1, 2, 3, 4], &[1, 2, 3, 4]);
        check(&[1, 2, 3], &[2, 3], &[3, 2]);
        check(&[1, 2, 3], &[1, 2], &[1, 2]);
        check(&[3, 2, 1], &[1, 2, 4], &[4, 2, 1]);
        check(&[1, 2, 3], &[4, 5], &[4, 5]);
        check(&[1, 2, 3], &[3, 4], &[4, 3]);
        check(&[1, 2], &[], &[]);
        check(&[5], &[1, 2, 5], &[5, 1, 2]);
    }
}
