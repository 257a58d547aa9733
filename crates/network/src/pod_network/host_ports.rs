//! Ports of the node that lead to pods, as packet filter rules.
//!
//! The rules are a pure function of the attachments. A packet to an address of the node, from outside or from the node
//! itself, is sent on to the pod whose element matches its protocol and port:
//!
//! ```text
//! ports-v4           tcp . 8080                  -> 10.244.0.7 . 80       any address of the node
//! address-ports-v4   192.168.0.1 . udp . 53      -> 10.244.0.9 . 5353     one address
//! hairpins-v4        10.244.0.7 . 10.244.0.7                              a pod that calls its own host port
//! ```
//!
//! The source address stays, except where the answer would not come back: a pod that calls itself, and a client on
//! 127.0.0.1. For the latter the links of pods with host ports route packets to 127.0.0.0/8, so those that come from
//! anywhere but the node itself are dropped first.

use super::attachments::{Attachment, HostPort};
use crate::netfilter::conntrack::ConnectionFilter;
use crate::netfilter::statement::{ConnectionKey, ConnectionStatus, MetaKey, NETWORK_IPV4, NETWORK_IPV6};
use crate::netfilter::{
    AddressSide, BaseChain, Chain, ChainType, Connection, Data, Element, Error, Family, Field, FieldType,
    Hook, Prefix, Priority, Protocol, Rule, Ruleset, Selector, Set, SetType, Statement, Table, TableId,
    Value, Verdict, diff,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));

fn table_id() -> TableId {
    TableId::new(Family::Inet, "pintle_pods")
}

/// Writes the host ports of all attachments, as far as they differ. Without any, the table goes.
pub fn write(attachments: &[Attachment]) -> Result<(), Error> {
    let mut connection = Connection::open()?;
    let id = table_id();
    let (current, _) = connection.read(std::slice::from_ref(&id))?;
    let desired: Ruleset = table(attachments).into_iter().map(|table| (id.clone(), table)).collect();
    let batch = diff(&current, &desired);
    if batch.is_empty() {
        return Ok(());
    }
    connection.commit(&batch)?;
    let stale = stale_connections(current.get(&id), desired.get(&id));
    for family in [Family::Ipv4, Family::Ipv6] {
        connection.delete_tracked(family, &stale)?;
    }
    Ok(())
}

/// The host ports of a pod that the kernel does not have, as text.
pub fn missing(addresses: &[IpAddr], ports: &[HostPort]) -> Result<Vec<String>, Error> {
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    let id = table_id();
    let (current, _) = Connection::open()?.read(std::slice::from_ref(&id))?;
    let table = current.get(&id);
    let is_missing = |port: &&HostPort| {
        elements(addresses, port).any(|(set, key, data)| {
            let found =
                table.and_then(|table| table.sets.get(set.as_str())).and_then(|it| it.elements.get(&key));
            found != Some(&Some(data))
        })
    };
    Ok(ports.iter().filter(is_missing).map(|port| port.host_port.to_string()).collect())
}

/// The two families, with the ending of their sets' names.
const FAMILIES: [(Family, &str); 2] = [(Family::Ipv4, "v4"), (Family::Ipv6, "v6")];

fn suffix(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "v4" } else { "v6" }
}

fn address_type(family: Family) -> FieldType {
    if family == Family::Ipv4 { FieldType::Ipv4Address } else { FieldType::Ipv6Address }
}

/// The elements of a host port: the set's name, the key and the data, for each address of the pod.
fn elements(addresses: &[IpAddr], port: &HostPort) -> impl Iterator<Item = (String, Element, Data)> {
    let (protocol, host_port) = (Field::Protocol(port.protocol), Field::Port(port.host_port));
    let addresses =
        addresses.iter().filter(|it| port.host_ip.is_none_or(|host| host.is_ipv4() == it.is_ipv4()));
    addresses.map(move |address| {
        let target = Value::new(&[Field::Address(*address), Field::Port(port.container_port)]);
        let (set, key) = match port.host_ip {
            None => ("ports", vec![protocol.clone(), host_port.clone()]),
            Some(host) => ("address-ports", vec![Field::Address(host), protocol.clone(), host_port.clone()]),
        };
        let set = format!("{set}-{}", suffix(*address));
        (set, Element::value(Value::new(&key)), Data::Value(target))
    })
}

/// The table of the attachments' host ports, or `None` if there are none. Of two pods with one port the younger has it:
/// the other one is about to go.
fn table(attachments: &[Attachment]) -> Option<Table> {
    let attachments: Vec<_> = attachments.iter().filter(|it| !it.host_ports.is_empty()).collect();
    if attachments.is_empty() {
        return None;
    }
    let mut table = Table { chains: chains(), sets: BTreeMap::new() };
    for (family, suffix) in FAMILIES {
        let address = address_type(family);
        let target = [address, FieldType::Port];
        let ports = SetType::map(&[FieldType::Protocol, FieldType::Port], &target);
        let address_ports = SetType::map(&[address, FieldType::Protocol, FieldType::Port], &target);
        let hairpins = SetType::set(&[address, address]);
        for (name, set_type) in [("ports", ports), ("address-ports", address_ports), ("hairpins", hairpins)] {
            table.sets.insert(format!("{name}-{suffix}").into(), Set::new(set_type));
        }
    }
    let mut insert = |set: &str, key: Element, data: Option<Data>| {
        if let Some(set) = table.sets.get_mut(set) {
            set.elements.insert(key, data);
        }
    };
    for attachment in attachments {
        for address in &attachment.addresses {
            let pair = Value::new(&[Field::Address(*address), Field::Address(*address)]);
            insert(&format!("hairpins-{}", suffix(*address)), Element::value(pair), None);
        }
        for (set, key, data) in
            attachment.host_ports.iter().flat_map(|it| elements(&attachment.addresses, it))
        {
            insert(&set, key, Some(data));
        }
    }
    Some(table)
}

fn chains() -> BTreeMap<crate::netfilter::Name, Chain> {
    let loopback = Prefix::new(LOOPBACK, 8);
    let lo = || Value::new(&[Field::InterfaceName("lo".to_owned())]);
    let to_ports =
        || [Rule::new([Statement::is_local(AddressSide::Destination), Statement::jump("host-ports")])];
    let is_translated = || {
        let status = Selector::Connection(ConnectionKey::Status);
        Statement::any_bit(status, ConnectionStatus::DESTINATION_TRANSLATED)
    };
    let masquerade = || Statement::Masquerade { is_random: true };
    let from_loopback = Rule::new([
        is_family(Family::Ipv4),
        is_translated(),
        Statement::in_network(AddressSide::Source, &loopback),
        Statement::not_equal(Selector::Meta(MetaKey::OutputInterface), lo()),
        masquerade(),
    ]);
    let hairpin = |(family, suffix): (Family, &str)| {
        let pair =
            [AddressSide::Source, AddressSide::Destination].map(|side| Selector::address(family, side));
        let is_hairpin = Statement::in_set(pair, &format!("hairpins-{suffix}"));
        Rule::new([is_family(family), is_translated(), is_hairpin, masquerade()])
    };
    let foreign_loopback = Rule::new([
        is_family(Family::Ipv4),
        Statement::in_network(AddressSide::Destination, &loopback),
        Statement::not_equal(Selector::Meta(MetaKey::InputInterface), lo()),
        Statement::Verdict(Verdict::Drop),
    ]);
    let raw = BaseChain {
        chain_type: ChainType::Filter,
        hook: Hook::Prerouting,
        priority: Priority::RAW,
        is_drop_policy: false,
    };
    let postrouting = [from_loopback].into_iter().chain(FAMILIES.map(hairpin));
    [
        ("foreign-loopback", Chain::base(raw, [foreign_loopback])),
        ("prerouting", Chain::base(BaseChain::nat(Hook::Prerouting), to_ports())),
        ("output", Chain::base(BaseChain::nat(Hook::Output), to_ports())),
        ("postrouting", Chain::base(BaseChain::nat(Hook::Postrouting), postrouting)),
        ("host-ports", Chain::new(FAMILIES.into_iter().flat_map(translations))),
    ]
    .into_iter()
    .map(|(name, chain)| (name.into(), chain))
    .collect()
}

/// The rules that send packets to pods; a port of one address comes before that of all.
fn translations((family, suffix): (Family, &str)) -> [Rule; 2] {
    let destination = Selector::address(family, AddressSide::Destination);
    let port = || vec![Selector::l4_protocol(), Selector::destination_port()];
    let address_port = [destination].into_iter().chain(port()).collect();
    [("address-ports", address_port), ("ports", port())].map(|(map, key)| {
        let to = Selector::Map { key, map: format!("{map}-{suffix}").into() };
        Rule::new([is_family(family), Statement::DestinationNat { family, to, has_port: true }])
    })
}

fn is_family(family: Family) -> Statement {
    let number = if family == Family::Ipv4 { NETWORK_IPV4 } else { NETWORK_IPV6 };
    Statement::equal(Selector::Meta(MetaKey::NetworkFamily), Value::from_bytes(&[number]))
}

/// UDP connections that are still tracked with their former destination, although the port leads elsewhere now.
fn stale_connections(current: Option<&Table>, desired: Option<&Table>) -> Vec<ConnectionFilter> {
    let (current, desired) = (udp_ports(current), udp_ports(desired));
    let changed = |one: &BTreeMap<_, IpAddr>, two: &BTreeMap<_, IpAddr>| {
        let changed = one.iter().filter(|(key, target)| two.get(*key) != Some(*target));
        changed.map(|(key, target)| (*key, *target)).collect::<Vec<_>>()
    };
    let filter = |(host, port): (Option<IpAddr>, u16), reply_source| ConnectionFilter {
        protocol: Protocol::UDP,
        destination: host,
        destination_port: Some(port),
        reply_source,
    };
    let gone = changed(&current, &desired).into_iter().map(|(key, target)| filter(key, Some(target)));
    let new = changed(&desired, &current).into_iter().map(|(key, _)| filter(key, None));
    gone.chain(new).collect()
}

/// The pods behind UDP ports, by address and port of the node. Where both families have one port, one is enough to see
/// a change.
fn udp_ports(table: Option<&Table>) -> BTreeMap<(Option<IpAddr>, u16), IpAddr> {
    let sets = table.into_iter().flat_map(|table| table.sets.values());
    let elements = sets.flat_map(|set| set.elements.iter().map(|(key, data)| (&set.set_type.key, key, data)));
    let found = elements.filter_map(|(types, key, data)| {
        let Some(Data::Value(target)) = data else { return None };
        let (host, port) = match key.from.fields(types)?.as_slice() {
            [Field::Protocol(Protocol::UDP), Field::Port(port)] => (None, *port),
            [Field::Address(host), Field::Protocol(Protocol::UDP), Field::Port(port)] => (Some(*host), *port),
            _ => return None,
        };
        let address = match target.as_bytes() {
            [bytes @ .., _, _, _, _] => <[u8; 4]>::try_from(bytes)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)),
            _ => return None,
        };
        Some(((host, port), address.ok()?))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_network::namespace::NamespaceId;

    fn attachment(name: &str, addresses: &[&str], host_ports: Vec<HostPort>) -> Attachment {
        Attachment {
            container: name.to_owned(),
            interface: "eth0".to_owned(),
            pod: String::new(),
            namespace: NamespaceId { path: "/run/netns/a".into(), device: 0, inode: 0 },
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            host_ports,
        }
    }

    fn port(protocol: Protocol, host_ip: Option<&str>, host_port: u16) -> HostPort {
        let host_ip = host_ip.map(|it| it.parse().unwrap());
        HostPort { protocol, host_ip, host_port, container_port: 80 }
    }

    fn count(table: &Table, set: &str) -> usize {
        table.sets[set].elements.len()
    }

    #[test]
    fn the_table_is_there_while_there_are_host_ports() {
        assert_eq!(table(&[attachment("a", &["10.1.0.1"], Vec::new())]), None);
        let ports = vec![
            port(Protocol::TCP, None, 8080),
            port(Protocol::UDP, Some("192.168.0.1"), 53),
            port(Protocol::SCTP, Some("fd00::1"), 99),
        ];
        let table = table(&[attachment("a", &["10.1.0.1", "fd01::1"], ports)]).unwrap();
        let sets =
            ["ports-v4", "ports-v6", "address-ports-v4", "address-ports-v6", "hairpins-v4", "hairpins-v6"];
        assert_eq!(sets.map(|set| count(&table, set)), [1; 6]);
    }

    #[test]
    fn the_younger_pod_has_a_port() {
        let of = |address: &str| attachment(address, &[address], vec![port(Protocol::TCP, None, 80)]);
        let both = table(&[of("10.1.0.1"), of("10.1.0.2")]).unwrap();
        assert_eq!(both.sets["ports-v4"], table(&[of("10.1.0.2")]).unwrap().sets["ports-v4"]);
        assert_eq!(count(&both, "hairpins-v4"), 2);
    }

    #[test]
    fn udp_connections_of_changed_ports_are_stale() {
        let of = |address: &str, ports| table(&[attachment("a", &[address], ports)]);
        let udp = || vec![port(Protocol::UDP, None, 53), port(Protocol::TCP, None, 80)];
        assert_eq!(stale_connections(of("10.1.0.1", udp()).as_ref(), of("10.1.0.1", udp()).as_ref()), []);
        let filter = |reply_source: Option<&str>| ConnectionFilter {
            protocol: Protocol::UDP,
            destination: None,
            destination_port: Some(53),
            reply_source: reply_source.map(|it| it.parse().unwrap()),
        };
        let moved = stale_connections(of("10.1.0.1", udp()).as_ref(), of("10.1.0.2", udp()).as_ref());
        assert_eq!(moved, [filter(Some("10.1.0.1")), filter(None)]);
        assert_eq!(stale_connections(of("10.1.0.1", udp()).as_ref(), None), [filter(Some("10.1.0.1"))]);
    }
}
