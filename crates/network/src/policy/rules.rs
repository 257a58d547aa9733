//! The tables of network policies.
//!
//! ```text
//! map ingress-pods { 10.1.0.2 : jump ingress-4f2a… }
//! chain ingress-4f2a… {
//!     ip saddr @peers-91c0… meta l4proto . th dport @ports-77aa… return
//!     drop
//! }
//! ```
//!
//! Chains and sets are named after their content, so that pods with the same rules share a chain.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::objects::{Direction, NamespaceLabels, PodInfo, PolicyInfo};
use super::resolve::{ClusterView, ResolvedRule};
use crate::netfilter::statement::ConnectionState;
use crate::netfilter::{
    AddressRange, AddressSide, BaseChain, Chain, Data, Element, Family, Field, FieldType, Hook, Name, Rule,
    Ruleset, Selector, Set, SetType, Statement, Table, TableId, Value, Verdict,
};

/// The name of the tables, one of each family.
pub const TABLE: &str = "pintle-policy";

/// After the filters of the proxy, which reject services without endpoints.
const PRIORITY: i32 = 10;

const INGRESS_PODS: &str = "ingress-pods";
const EGRESS_PODS: &str = "egress-pods";

pub fn table_id(family: Family) -> TableId {
    TableId::new(family, TABLE)
}

/// The tables for the pods of a node; none without policies.
pub fn ruleset(
    node: &str,
    families: &[Family],
    policies: &[&PolicyInfo],
    namespaces: &NamespaceLabels,
    pods: &[&PodInfo],
) -> Ruleset {
    if policies.is_empty() {
        return Ruleset::new();
    }
    let view = ClusterView { namespaces, pods };
    let local: Vec<&PodInfo> = pods.iter().copied().filter(|pod| pod.node == node).collect();
    families.iter().map(|family| (table_id(*family), table(*family, policies, &view, &local))).collect()
}

fn table(family: Family, policies: &[&PolicyInfo], view: &ClusterView<'_>, local: &[&PodInfo]) -> Table {
    let mut builder = Builder { family, table: Table::default() };
    let mut verdicts: BTreeMap<Direction, BTreeMap<Element, Option<Data>>> = BTreeMap::new();
    for pod in local {
        let addresses: Vec<IpAddr> =
            pod.addresses.iter().copied().filter(|address| Family::of(*address) == family).collect();
        for direction in [Direction::Ingress, Direction::Egress] {
            let policies = policies.iter().copied();
            let Some(rules) = view.rules_for(pod, direction, family, policies) else { continue };
            let chain = builder.add_chain(direction, &rules);
            for address in &addresses {
                let verdict = Data::Verdict(Verdict::Jump(chain.clone()));
                let elements = verdicts.entry(direction).or_default();
                elements.insert(Element::value((*address).into()), Some(verdict));
            }
        }
    }
    builder.add_base(verdicts)
}

struct Builder {
    family: Family,
    table: Table,
}

impl Builder {
    fn address_type(&self) -> FieldType {
        if self.family == Family::Ipv6 { FieldType::Ipv6Address } else { FieldType::Ipv4Address }
    }

    fn add_base(mut self, mut verdicts: BTreeMap<Direction, BTreeMap<Element, Option<Data>>>) -> Table {
        let accept = Rule::new([
            Statement::connection_state(ConnectionState::ESTABLISHED | ConnectionState::RELATED),
            Statement::Verdict(Verdict::Accept),
        ]);
        let by = |side, map| Rule::new([Statement::verdict_map([Selector::address(self.family, side)], map)]);
        let egress = by(AddressSide::Source, EGRESS_PODS);
        let ingress = by(AddressSide::Destination, INGRESS_PODS);
        let base = |hook| BaseChain::filter(hook).with_priority(PRIORITY);
        let forward = Chain::base(base(Hook::Forward), [accept.clone(), egress.clone(), ingress]);
        // from pods to the node itself; packets of the node to its pods take neither of these ways
        let input = Chain::base(base(Hook::Input), [accept, egress]);
        self.table.chains.insert("forward".into(), forward);
        self.table.chains.insert("input".into(), input);
        for (direction, name) in [(Direction::Ingress, INGRESS_PODS), (Direction::Egress, EGRESS_PODS)] {
            let set_type = SetType::verdict_map(&[self.address_type()]);
            let elements = verdicts.remove(&direction).unwrap_or_default();
            self.table.sets.insert(name.into(), Set { set_type, elements });
        }
        self.table
    }

    /// Adds the chain of a combination of rules, unless it is there.
    fn add_chain(&mut self, direction: Direction, rules: &BTreeSet<ResolvedRule>) -> Name {
        let prefix = if direction == Direction::Ingress { "ingress" } else { "egress" };
        let name = named(prefix, rules);
        if !self.table.chains.contains_key(&name) {
            let mut chain: Vec<Rule> = rules.iter().flat_map(|rule| self.allow(direction, rule)).collect();
            chain.push(Rule::new([Statement::Verdict(Verdict::Drop)]));
            self.table.chains.insert(name.clone(), Chain::new(chain));
        }
        name
    }

    /// The rules that let allowed packets return.
    fn allow(&mut self, direction: Direction, rule: &ResolvedRule) -> Vec<Rule> {
        let side = match direction {
            Direction::Ingress => AddressSide::Source,
            Direction::Egress => AddressSide::Destination,
        };
        let peer = || Selector::address(self.family, side);
        let port = || [Selector::l4_protocol(), Selector::destination_port()];
        let mut rules = Vec::new();
        let has_peers = rule.peers.as_ref().is_none_or(|peers| !peers.is_empty());
        let has_ports = rule.ports.as_ref().is_none_or(|ports| !ports.is_empty());
        if has_peers && has_ports {
            let mut statements = Vec::new();
            if let Some(peers) = &rule.peers {
                let set_type = SetType::set(&[self.address_type()]).intervals();
                let elements = peers.iter().map(range_element).collect();
                let name = add_set(&mut self.table, "peers", set_type, elements);
                statements.push(Statement::in_set([peer()], &name));
            }
            if let Some(ports) = &rule.ports {
                let set_type = SetType::set(&[FieldType::Protocol, FieldType::Port]).intervals();
                let elements = ports.iter().map(|range| {
                    let value = |number| Value::new(&[Field::Protocol(range.protocol), Field::Port(number)]);
                    let to = (range.first != range.last).then(|| value(range.last));
                    Element { from: value(range.first), to }
                });
                let elements = elements.collect();
                let name = add_set(&mut self.table, "ports", set_type, elements);
                statements.push(Statement::in_set(port(), &name));
            }
            statements.push(Statement::Verdict(Verdict::Return));
            rules.push(Rule::new(statements));
        }
        if !rule.endpoints.is_empty() {
            let key = [self.address_type(), FieldType::Protocol, FieldType::Port];
            let elements = rule.endpoints.iter().map(|(address, protocol, port)| {
                let fields = [Field::Address(*address), Field::Protocol(*protocol), Field::Port(*port)];
                Element::value(Value::new(&fields))
            });
            let elements = elements.collect();
            let name = add_set(&mut self.table, "endpoints", SetType::set(&key), elements);
            let key = [peer()].into_iter().chain(port());
            rules.push(Rule::new([Statement::in_set(key, &name), Statement::Verdict(Verdict::Return)]));
        }
        rules
    }
}

fn range_element(range: &AddressRange) -> Element {
    let to = (range.first != range.last).then(|| range.last.into());
    Element { from: range.first.into(), to }
}

/// Adds a set of this content, unless it is there.
fn add_set(table: &mut Table, prefix: &str, set_type: SetType, elements: Vec<Element>) -> Name {
    let name = named(prefix, &elements);
    let elements = elements.into_iter().map(|element| (element, None)).collect();
    table.sets.entry(name.clone()).or_insert(Set { set_type, elements });
    name
}

/// A name for some content.
fn named(prefix: &str, content: &impl Hash) -> Name {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{prefix}-{:016x}", hasher.finish()).into()
}
