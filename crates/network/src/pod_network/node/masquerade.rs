//! Masquerade of packets that leave the cluster: machines outside know no way back to a pod.
//!
//! Packets from pods of this node to other addresses than those of pods get the address of the node.

use super::plan::NodeNetwork;
use crate::netfilter::statement::{MetaKey, NETWORK_IPV4, NETWORK_IPV6};
use crate::netfilter::{
    AddressRange, AddressSide, BaseChain, Chain, Connection, Element, Error, Family, FieldType, Hook, Prefix,
    Rule, Ruleset, Selector, Set, SetType, Statement, Table, TableId, Value, diff, merge,
};
use apimachinery::net::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Multicast stays as it is.
const MULTICAST: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

fn table_id() -> TableId {
    TableId::new(Family::Inet, "pintle_masquerade")
}

/// Writes the rules, as far as they differ.
pub fn write(own: &NodeNetwork, nodes: &[NodeNetwork]) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let id = table_id();
    let (current, _) = connection.read(std::slice::from_ref(&id))?;
    let desired = Ruleset::from([(id, table(own, nodes))]);
    let batch = diff(&current, &desired);
    if batch.is_empty() { Ok(()) } else { connection.commit(&batch) }
}

/// The table of a node with these ranges, and no others.
pub fn table_of_ranges(ranges: &[Network]) -> Table {
    table(&NodeNetwork { name: String::new(), addresses: Vec::new(), ranges: ranges.to_vec() }, &[])
}

fn prefix(network: &Network) -> Prefix {
    Prefix::new(network.base(), network.prefix())
}

fn table(own: &NodeNetwork, nodes: &[NodeNetwork]) -> Table {
    let mut table = Table::default();
    let mut rules = Vec::new();
    for range in &own.ranges {
        let family = Family::of(range.base());
        let (set_name, address_type, number) = match family {
            Family::Ipv4 => ("pods-v4", FieldType::Ipv4Address, NETWORK_IPV4),
            _ => ("pods-v6", FieldType::Ipv6Address, NETWORK_IPV6),
        };
        let mut set = Set::new(SetType::set(&[address_type]).intervals());
        let all = nodes.iter().chain([own]).flat_map(|node| &node.ranges);
        let of_family = all.filter(|it| it.family() == range.family());
        for AddressRange { first, last } in merge(of_family.map(|it| prefix(it).into())) {
            set.elements.insert(Element::range(first.into(), last.into()), None);
        }
        table.sets.insert(set_name.into(), set);
        let multicast = MULTICAST.into_iter().filter(|(it, _)| Family::of(*it) == family);
        let not_multicast = multicast
            .map(|(address, length)| Prefix::new(address, length))
            .map(|it| Statement::not_in_network(AddressSide::Destination, &it));
        let statements = [
            Statement::equal(Selector::Meta(MetaKey::NetworkFamily), Value::from_bytes(&[number])),
            Statement::in_network(AddressSide::Source, &prefix(range)),
            Statement::not_in_set([Selector::address(family, AddressSide::Destination)], set_name),
        ];
        let masquerade = Statement::Masquerade { is_random: true };
        rules.push(Rule::new(statements.into_iter().chain(not_multicast).chain([masquerade])));
    }
    table.chains.insert("postrouting".into(), Chain::base(BaseChain::nat(Hook::Postrouting), rules));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ranges: &[&str]) -> NodeNetwork {
        let ranges = ranges.iter().map(|it| Network::parse(it).unwrap()).collect();
        NodeNetwork { name: String::new(), addresses: Vec::new(), ranges }
    }

    #[test]
    fn pods_of_all_nodes_keep_their_addresses() {
        let own = node(&["10.244.0.0/24", "fd00::/64"]);
        let nodes = [own.clone(), node(&["10.244.1.0/24"]), node(&["10.244.9.0/24", "fd00:0:0:9::/64"])];
        let table = table(&own, &nodes);
        let range = |first: &str, last: &str| {
            let value = |text: &str| Value::from(text.parse::<IpAddr>().unwrap());
            Element::range(value(first), value(last))
        };
        let v4: Vec<_> = table.sets["pods-v4"].elements.keys().cloned().collect();
        assert_eq!(v4, [range("10.244.0.0", "10.244.1.255"), range("10.244.9.0", "10.244.9.255")]);
        assert_eq!(table.sets["pods-v6"].elements.len(), 2);
        assert_eq!(table.chains["postrouting"].rules.len(), 2);
    }

    #[test]
    fn a_family_without_pods_has_no_rule() {
        let own = node(&["10.244.0.0/24"]);
        let table = table(&own, &[node(&["10.244.1.0/24", "fd00::/64"])]);
        assert_eq!((table.sets.len(), table.chains["postrouting"].rules.len()), (1, 1));
    }
}
