use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use super::conntrack::ConnectionFilter;
use super::statement::{
    AddressSide, Comparison, ConnectionKey, ConnectionState, ConnectionStatus, MetaKey, NETWORK_IPV4,
    Rejection,
};
use super::testing::{in_namespace, nft_ruleset, run};
use super::*;

const KEY: [FieldType; 3] = [FieldType::Ipv4Address, FieldType::Protocol, FieldType::Port];

fn id() -> TableId {
    TableId::new(Family::Ipv4, "test")
}

fn key(address: [u8; 4], port: u16) -> Element {
    let fields = [Field::Address(address.into()), Field::Protocol(Protocol::TCP), Field::Port(port)];
    Element::value(Value::new(&fields))
}

fn service_key() -> [Selector; 3] {
    let destination = Selector::address(Family::Ipv4, AddressSide::Destination);
    [destination, Selector::l4_protocol(), Selector::destination_port()]
}

fn elements(set_type: SetType, elements: impl IntoIterator<Item = (Element, Option<Data>)>) -> Set {
    Set { set_type, elements: elements.into_iter().collect() }
}

fn value_range(prefix: &str) -> Element {
    let range = AddressRange::from(prefix.parse::<Prefix>().unwrap());
    let to = (range.first != range.last).then(|| range.last.into());
    Element { from: range.first.into(), to }
}

/// A table with every kind of object, statement and element.
fn whole_table() -> Table {
    let source = || Selector::address(Family::Ipv4, AddressSide::Source);
    let mark = || Selector::Meta(MetaKey::Mark);
    let slot = service_key().into_iter().chain([Selector::Random { bound: 3 }]).collect();
    let endpoint = Selector::Map { key: slot, map: "endpoints".into() };
    let cluster: Prefix = "10.32.0.0/12".parse().unwrap();
    let chains = [
        (
            "prerouting",
            Chain::base(
                BaseChain::nat(Hook::Prerouting),
                [
                    Rule::new([Statement::verdict_map(service_key(), "services")]).with_comment("addresses"),
                    Rule::new([
                        Statement::is_local(AddressSide::Destination),
                        Statement::protocol(Protocol::TCP),
                        Statement::equal(Selector::destination_port(), Value::new(&[Field::Port(30000)])),
                        Statement::Redirect { port: 80 },
                    ]),
                    Rule::new([
                        Statement::in_set([source()], "networks"),
                        Statement::destination_nat(Family::Ipv4, [10, 1, 1, 1].into(), None),
                    ]),
                ],
            ),
        ),
        (
            "pick-3",
            Chain::new([
                Rule::new([
                    Statement::not_in_network(AddressSide::Source, &cluster),
                    Statement::set_mark_bits(0x4000),
                ]),
                Rule::new([Statement::DestinationNat { family: Family::Ipv4, to: endpoint, has_port: true }]),
            ]),
        ),
        (
            "affinity",
            Chain::new([
                Rule::new([
                    Statement::in_set([source()], "clients"),
                    Statement::destination_nat(Family::Ipv4, [10, 1, 1, 1].into(), Some(8080)),
                ]),
                Rule::new([Statement::Update {
                    set: "clients".into(),
                    key: vec![source()],
                    timeout: Some(Duration::from_secs(30)),
                }]),
            ]),
        ),
        (
            "postrouting",
            Chain::base(
                BaseChain::nat(Hook::Postrouting),
                [
                    Rule::new([
                        Statement::any_bit(
                            Selector::Connection(ConnectionKey::Status),
                            ConnectionStatus::DESTINATION_TRANSLATED,
                        ),
                        Statement::no_bit(mark(), 0x4000),
                        Statement::Verdict(Verdict::Return),
                    ]),
                    Rule::new([Statement::clear_mark_bits(0x4000), Statement::SetConnectionMark(mark())]),
                    Rule::new([
                        Statement::output_interface("lo"),
                        Statement::source_nat(Family::Ipv4, [10, 1, 1, 1].into()),
                    ]),
                    Rule::new([Statement::Masquerade { is_random: true }]),
                ],
            ),
        ),
        (
            "forward",
            Chain::base(
                BaseChain::filter(Hook::Forward).with_priority(10),
                [
                    Rule::new([
                        Statement::connection_state(ConnectionState::ESTABLISHED | ConnectionState::RELATED),
                        Statement::Counter,
                        Statement::Verdict(Verdict::Accept),
                    ]),
                    Rule::new([
                        Statement::in_set(service_key().into_iter().chain([source()]), "source-ranges"),
                        Statement::Limit { packets_per_second: 5, burst: 5 },
                        Statement::Verdict(Verdict::Drop),
                    ]),
                    Rule::new([
                        Statement::Compare {
                            selector: Selector::destination_port(),
                            comparison: Comparison::GreaterOrEqual,
                            value: Value::new(&[Field::Port(1024)]),
                        },
                        Statement::in_set([Selector::Meta(MetaKey::InputInterface)], "interfaces"),
                        Statement::goto("reject"),
                    ]),
                ],
            ),
        ),
        (
            "reject",
            Chain::new([
                Rule::new([
                    Statement::protocol(Protocol::TCP),
                    Statement::Reject { family: Family::Ipv4, with: Rejection::TcpReset },
                ]),
                Rule::new([Statement::Reject { family: Family::Ipv4, with: Rejection::PortUnreachable }]),
            ]),
        ),
    ];
    let endpoint = |slot: u32| {
        let fields = [
            Field::Address([10, 96, 0, 1].into()),
            Field::Protocol(Protocol::TCP),
            Field::Port(443),
            Field::Number(slot),
        ];
        let to = [Field::Address([10, 1, 0, slot as u8].into()), Field::Port(6443)];
        (Element::value(Value::new(&fields)), Some(Data::Value(Value::new(&to))))
    };
    let ranged = |prefix: &str| {
        let range = value_range(prefix);
        let concat = |address: &Value| {
            let mut bytes = key([10, 96, 0, 1], 443).from.as_bytes().to_vec();
            bytes.extend_from_slice(address.as_bytes());
            Value::from_bytes(&bytes)
        };
        (Element { from: concat(&range.from), to: range.to.as_ref().map(concat) }, None)
    };
    let endpoint_key = [FieldType::Ipv4Address, FieldType::Protocol, FieldType::Port, FieldType::Number];
    let range_key = [FieldType::Ipv4Address, FieldType::Protocol, FieldType::Port, FieldType::Ipv4Address];
    let sets = [
        (
            "services",
            elements(
                SetType::verdict_map(&KEY),
                [
                    (key([10, 96, 0, 1], 443), Some(Data::Verdict(Verdict::goto("pick-3")))),
                    (key([10, 96, 0, 2], 443), Some(Data::Verdict(Verdict::goto("affinity")))),
                    (key([10, 96, 0, 3], 443), Some(Data::Verdict(Verdict::Drop))),
                ],
            ),
        ),
        (
            "endpoints",
            elements(
                SetType::map(&endpoint_key, &[FieldType::Ipv4Address, FieldType::Port]),
                (0..3).map(endpoint),
            ),
        ),
        ("clients", Set::new(SetType::dynamic(&[FieldType::Ipv4Address], Duration::from_secs(60), 1000))),
        (
            "networks",
            elements(
                SetType::set(&[FieldType::Ipv4Address]).intervals(),
                ["10.0.0.0/9", "192.168.1.1/32", "240.0.0.0/4"].map(|prefix| (value_range(prefix), None)),
            ),
        ),
        (
            "source-ranges",
            elements(SetType::set(&range_key).intervals(), ["10.2.0.0/16", "10.4.0.1/32"].map(ranged)),
        ),
        (
            "interfaces",
            elements(
                SetType::set(&[FieldType::InterfaceName]),
                [(Element::value(Value::new(&[Field::InterfaceName("lo".to_owned())])), None)],
            ),
        ),
    ];
    Table {
        chains: chains.into_iter().map(|(name, chain)| (name.into(), chain)).collect(),
        sets: sets.into_iter().map(|(name, set)| (name.into(), set)).collect(),
    }
}

fn apply(connection: &mut Connection, desired: &Ruleset) {
    let (current, generation) = connection.read(&[id()]).unwrap();
    connection.commit_at(&diff(&current, desired), Some(generation)).unwrap();
    let (read, _) = connection.read(&[id()]).unwrap();
    // not printed, as it may be large
    assert!(&read == desired);
    assert!(diff(&read, desired).is_empty());
}

#[test]
fn a_ruleset_is_read_back_as_written() {
    in_namespace(module_path!(), "a_ruleset_is_read_back_as_written", || {
        let mut connection = Connection::open().unwrap();
        let desired = Ruleset::from([(id(), whole_table())]);
        apply(&mut connection, &desired);
        if let Some(text) = nft_ruleset() {
            for piece in [
                "10.96.0.1 . tcp . 443 : goto pick-3",
                "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints",
                "comment \"addresses\"",
                "10.0.0.0/9",
                "update @clients { ip saddr timeout 30s }",
                "masquerade fully-random",
                "reject with tcp reset",
                "10.96.0.1 . tcp . 443 . 10.2.0.0/16",
            ] {
                assert!(text.contains(piece), "{piece} in\n{text}");
            }
        }
        // other data, other rules, other chains and sets, another type of a set, nothing
        let mut next = desired.clone();
        let table = next.get_mut(&id()).unwrap();
        let services = &mut table.sets.get_mut("services").unwrap().elements;
        services.insert(key([10, 96, 0, 3], 443), Some(Data::Verdict(Verdict::goto("new"))));
        services.remove(&key([10, 96, 0, 2], 443));
        table.chains.remove("affinity");
        table.sets.remove("clients");
        table.chains.insert("new".into(), Chain::new([Rule::new([Statement::Counter])]));
        table.chains.get_mut("forward").unwrap().rules.remove(1);
        table.sets.remove("source-ranges");
        apply(&mut connection, &next);
        let interfaces = SetType::set(&[FieldType::Ipv6Address]);
        next.get_mut(&id()).unwrap().chains.get_mut("forward").unwrap().rules.pop();
        next.get_mut(&id()).unwrap().sets.insert("interfaces".into(), Set::new(interfaces));
        apply(&mut connection, &next);
        apply(&mut connection, &desired);
        apply(&mut connection, &Ruleset::new());
    });
}

#[test]
fn a_failed_change_is_named_and_undoes_the_batch() {
    in_namespace(module_path!(), "a_failed_change_is_named_and_undoes_the_batch", || {
        let mut connection = Connection::open().unwrap();
        let mut batch = Batch::default();
        batch.push(Change::AddTable(id()));
        batch.push(Change::AddChain { table: id(), chain: "one".into(), base: None });
        batch.push(Change::DeleteChain { table: id(), chain: "absent".into() });
        let rule = Rule::new([Statement::goto("absent")]);
        batch.push(Change::AddRule { table: id(), chain: "one".into(), rule });
        let Err(Error::Changes(errors)) = connection.commit(&batch) else { panic!("no error") };
        let at: Vec<_> = errors.iter().map(|error| (error.index, error.code)).collect();
        assert_eq!(at, [(Some(2), 2), (Some(3), 2)]);
        assert_eq!(connection.tables().unwrap(), []);
    });
}

#[test]
fn a_transaction_of_a_stale_generation_is_refused() {
    in_namespace(module_path!(), "a_transaction_of_a_stale_generation_is_refused", || {
        let (mut one, mut other) = (Connection::open().unwrap(), Connection::open().unwrap());
        let generation = one.generation().unwrap();
        let mut batch = Batch::default();
        batch.push(Change::AddTable(id()));
        other.commit(&batch).unwrap();
        assert!(matches!(one.commit_at(&batch, Some(generation)), Err(Error::GenerationChanged)));
        let generation = one.generation().unwrap();
        one.commit_at(&batch, Some(generation)).unwrap();
    });
}

#[test]
fn a_batch_larger_than_the_socket_buffer_is_one_transaction() {
    in_namespace(module_path!(), "a_batch_larger_than_the_socket_buffer_is_one_transaction", || {
        let count = 30_000_u32;
        let number = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            (key([10 + a, b, c, d], 80), Some(Data::Value(Value::new(&[Field::Port(80)]))))
        };
        let set = elements(SetType::map(&KEY, &[FieldType::Port]), (0..count).map(number));
        let table = Table { chains: BTreeMap::new(), sets: [("many".into(), set)].into() };
        let desired = Ruleset::from([(id(), table)]);
        let mut connection = Connection::open().unwrap();
        apply(&mut connection, &desired);
        // an error among many messages is found
        let mut batch = Batch::default();
        let set_type = std::sync::Arc::new(desired[&id()].sets["many"].set_type.clone());
        let other = |at: u32| (number(at).0, Some(Data::Value(Value::new(&[Field::Port(81)]))));
        batch.add_elements(&id(), &"many".into(), &set_type, (0..count).map(other).collect());
        let Err(Error::Changes(errors)) = connection.commit(&batch) else { panic!("no error") };
        assert_eq!(errors[0].index, Some(0));
        assert!(connection.read(&[id()]).unwrap().0 == desired);
    });
}

#[test]
fn tracked_connections_are_deleted_by_filter() {
    in_namespace(module_path!(), "tracked_connections_are_deleted_by_filter", || {
        let mut connection = Connection::open().unwrap();
        run("ip", "addr add 10.1.1.1/32 dev lo");
        run("ip", "addr add 10.1.1.2/32 dev lo");
        let rule = Rule::new([
            Statement::protocol(Protocol::UDP),
            Statement::equal(
                Selector::address(Family::Ipv4, AddressSide::Destination),
                Value::new(&[Field::Address([10, 96, 0, 1].into())]),
            ),
            Statement::destination_nat(Family::Ipv4, [10, 1, 1, 1].into(), Some(5300)),
        ]);
        let output = Chain::base(BaseChain::nat(Hook::Output), [rule]);
        let table = Table { chains: [("output".into(), output)].into(), sets: BTreeMap::new() };
        connection.commit(&diff(&Ruleset::new(), &Ruleset::from([(id(), table)]))).unwrap();
        run("ip", "route add 10.96.0.0/16 dev lo");

        let server = UdpSocket::bind("10.1.1.1:5300").unwrap();
        let client = UdpSocket::bind("10.1.1.2:0").unwrap();
        client.send_to(b"question", "10.96.0.1:53").unwrap();
        let mut buffer = [0; 16];
        let (length, _) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"question");

        let tracked = |connection: &mut Connection| {
            let all = connection.tracked_connections(Family::Ipv4).unwrap();
            let port = client.local_addr().unwrap().port();
            all.into_iter().filter(|it| it.original.source_port == port).count()
        };
        assert_eq!(tracked(&mut connection), 1);
        let filter = ConnectionFilter {
            protocol: Protocol::UDP,
            destination: Some([10, 96, 0, 1].into()),
            destination_port: Some(53),
            reply_source: Some([10, 1, 1, 1].into()),
        };
        let others = [
            ConnectionFilter { protocol: Protocol::TCP, ..filter },
            ConnectionFilter { destination: Some([10, 96, 0, 2].into()), ..filter },
            ConnectionFilter { destination_port: Some(54), ..filter },
            ConnectionFilter { reply_source: Some([10, 1, 1, 2].into()), ..filter },
        ];
        assert_eq!(connection.delete_tracked(Family::Ipv4, &others).unwrap(), 0);
        assert_eq!(tracked(&mut connection), 1);
        assert_eq!(connection.delete_tracked(Family::Ipv4, &[filter]).unwrap(), 1);
        assert_eq!(tracked(&mut connection), 0);
    });
}

#[test]
fn both_families_share_an_inet_table() {
    in_namespace(module_path!(), "both_families_share_an_inet_table", || {
        let mut connection = Connection::open().unwrap();
        let table = TableId::new(Family::Inet, "both");
        let ipv4 = Value::from_bytes(&[NETWORK_IPV4]);
        let network: Prefix = "fd00::/64".parse().unwrap();
        let rules = [
            Rule::new([
                Statement::equal(Selector::Meta(MetaKey::NetworkFamily), ipv4),
                Statement::protocol(Protocol::UDP),
                Statement::Reject { family: Family::Inet, with: Rejection::PortUnreachable },
            ]),
            Rule::new([
                Statement::in_network(AddressSide::Destination, &network),
                Statement::Verdict(Verdict::Drop),
            ]),
        ];
        let input = Chain::base(BaseChain::filter(Hook::Input), rules);
        let desired = Ruleset::from([(
            table.clone(),
            Table { chains: [("input".into(), input)].into(), sets: BTreeMap::new() },
        )]);
        connection.commit(&diff(&Ruleset::new(), &desired)).unwrap();
        assert_eq!(connection.read(&[table]).unwrap().0, desired);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        // the rejection arrives as an error of the next call
        let _ = client.send(b"one");
        assert!(client.send(b"two").is_err());
    });
}
