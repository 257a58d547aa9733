//! Statements of rules, like those of the program `nft`.
//!
//! A [`Selector`] yields a value of the packet or of its connection; a [`Statement`] compares such values, changes the
//! packet or decides about it. No statement of a rule depends on a value that another one loaded.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::ranges::Prefix;
use super::value::{Field, Protocol, Value};

/// The name of a table, a chain or a set.
pub type Name = Arc<str>;

/// The packets that a table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Ipv4,
    Ipv6,
    /// Both families.
    Inet,
    Bridge,
}

impl Family {
    pub(super) const ALL: [Self; 4] = [Self::Ipv4, Self::Ipv6, Self::Inet, Self::Bridge];

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ipv4 => 2,
            Self::Bridge => 7,
            Self::Ipv6 => 10,
        }
    }

    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Accept,
    Drop,
    /// Continue after the rule that jumped to this chain.
    Return,
    /// Call a chain.
    Jump(Name),
    /// Continue in a chain and do not come back.
    Goto(Name),
}

impl Verdict {
    pub fn jump(chain: &str) -> Self {
        Self::Jump(chain.into())
    }

    pub fn goto(chain: &str) -> Self {
        Self::Goto(chain.into())
    }

    pub(super) fn code(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }

    pub(super) fn from_code(code: i32, chain: Option<&str>) -> Option<Self> {
        Some(match (code, chain) {
            (0, _) => Self::Drop,
            (1, _) => Self::Accept,
            (-3, Some(chain)) => Self::jump(chain),
            (-4, Some(chain)) => Self::goto(chain),
            (-5, _) => Self::Return,
            _ => return None,
        })
    }
}

/// A value of the packet, of its connection, or by chance.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    Meta(MetaKey),
    /// Bytes of a header.
    Payload {
        base: PayloadBase,
        offset: u32,
        length: u32,
    },
    /// A property of the connection.
    Connection(ConnectionKey),
    /// The kind of a packet's address in the routing table, see [`AddressType`].
    AddressType(AddressSide),
    /// A random number below a bound.
    Random {
        bound: u32,
    },
    Constant(Value),
    /// Some bits of another selector: `(value & mask) ^ xor`.
    Bits {
        of: Box<Selector>,
        mask: Value,
        xor: Value,
    },
    /// The data of a map at a key. Without such an element the rule does not match.
    Map {
        key: Vec<Selector>,
        map: Name,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaKey {
    Mark,
    L4Protocol,
    /// IPv4 or IPv6, for tables of both; see [`NETWORK_IPV4`] and [`NETWORK_IPV6`].
    NetworkFamily,
    InputInterface,
    OutputInterface,
}

/// Values of [`MetaKey::NetworkFamily`].
pub const NETWORK_IPV4: u8 = 2;
pub const NETWORK_IPV6: u8 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadBase {
    Link,
    Network,
    Transport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKey {
    /// Bits of [`ConnectionState`].
    State,
    /// Bits of [`ConnectionStatus`].
    Status,
    Mark,
    /// Zero for packets in the direction of the first one, one for answers.
    Direction,
}

/// Bits of a connection's state.
pub struct ConnectionState;

impl ConnectionState {
    pub const INVALID: u32 = 1;
    pub const ESTABLISHED: u32 = 2;
    pub const RELATED: u32 = 4;
    pub const NEW: u32 = 8;
    pub const UNTRACKED: u32 = 64;
}

/// Bits of a connection's status.
pub struct ConnectionStatus;

impl ConnectionStatus {
    pub const SOURCE_TRANSLATED: u32 = 0x10;
    pub const DESTINATION_TRANSLATED: u32 = 0x20;
}

/// The address that a selector looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSide {
    Source,
    Destination,
}

/// Kinds of addresses in the routing table.
pub struct AddressType;

impl AddressType {
    pub const UNICAST: u32 = 1;
    /// An address of this machine.
    pub const LOCAL: u32 = 2;
    pub const BROADCAST: u32 = 3;
    pub const MULTICAST: u32 = 5;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// How a rejected packet is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// By ICMP or ICMPv6.
    PortUnreachable,
    /// By ICMP or ICMPv6.
    AdministrativelyProhibited,
    TcpReset,
}

/// One step of a rule. A comparison that does not hold ends the rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    Compare {
        selector: Selector,
        comparison: Comparison,
        value: Value,
    },
    /// Whether a key is in a set.
    InSet {
        key: Vec<Selector>,
        set: Name,
        is_negated: bool,
    },
    Verdict(Verdict),
    /// The verdict of a map at a key; without such an element the rule does not match.
    VerdictMap {
        key: Vec<Selector>,
        map: Name,
    },
    SetMark(Selector),
    SetConnectionMark(Selector),
    /// Sends the connection to another address and, if the value has one, port.
    DestinationNat {
        family: Family,
        to: Selector,
        has_port: bool,
    },
    SourceNat {
        family: Family,
        to: Selector,
        has_port: bool,
    },
    /// Gives the connection the source address of the outgoing interface.
    Masquerade {
        is_random: bool,
    },
    /// Sends the connection to a port of this machine.
    Redirect {
        port: u16,
    },
    Reject {
        family: Family,
        with: Rejection,
    },
    /// Adds an element to a dynamic set, or renews its time.
    Update {
        set: Name,
        key: Vec<Selector>,
        timeout: Option<Duration>,
    },
    Counter,
    /// Holds for so many packets in a second.
    Limit {
        packets_per_second: u64,
        burst: u32,
    },
}

impl Statement {
    pub fn equal(selector: Selector, value: Value) -> Self {
        Self::Compare { selector, comparison: Comparison::Equal, value }
    }

    pub fn not_equal(selector: Selector, value: Value) -> Self {
        Self::Compare { selector, comparison: Comparison::NotEqual, value }
    }

    /// At least one of some bits is set.
    pub fn any_bit(selector: Selector, mask: u32) -> Self {
        Self::not_equal(selector.bits(mask), number(0))
    }

    /// None of some bits is set.
    pub fn no_bit(selector: Selector, mask: u32) -> Self {
        Self::equal(selector.bits(mask), number(0))
    }

    pub fn protocol(protocol: Protocol) -> Self {
        Self::equal(Selector::Meta(MetaKey::L4Protocol), Value::new(&[Field::Protocol(protocol)]))
    }

    pub fn in_set(key: impl IntoIterator<Item = Selector>, set: &str) -> Self {
        Self::InSet { key: key.into_iter().collect(), set: set.into(), is_negated: false }
    }

    pub fn not_in_set(key: impl IntoIterator<Item = Selector>, set: &str) -> Self {
        Self::InSet { key: key.into_iter().collect(), set: set.into(), is_negated: true }
    }

    pub fn verdict_map(key: impl IntoIterator<Item = Selector>, map: &str) -> Self {
        Self::VerdictMap { key: key.into_iter().collect(), map: map.into() }
    }

    pub fn jump(chain: &str) -> Self {
        Self::Verdict(Verdict::jump(chain))
    }

    pub fn goto(chain: &str) -> Self {
        Self::Verdict(Verdict::goto(chain))
    }

    pub fn destination_nat(family: Family, address: IpAddr, port: Option<u16>) -> Self {
        Self::DestinationNat { family, to: nat_target(address, port), has_port: port.is_some() }
    }

    pub fn source_nat(family: Family, address: IpAddr) -> Self {
        Self::SourceNat { family, to: nat_target(address, None), has_port: false }
    }

    /// Sets bits of the packet's mark.
    pub fn set_mark_bits(bits: u32) -> Self {
        let (mask, xor) = (number(!bits), number(bits));
        Self::SetMark(Selector::Bits { of: Selector::Meta(MetaKey::Mark).into(), mask, xor })
    }

    /// Clears bits of the packet's mark.
    pub fn clear_mark_bits(bits: u32) -> Self {
        Self::SetMark(Selector::Meta(MetaKey::Mark).bits(!bits))
    }

    /// The packet's address is in a network.
    pub fn in_network(side: AddressSide, network: &Prefix) -> Self {
        Self::network(side, network, Comparison::Equal)
    }

    /// The packet's address is not in a network.
    pub fn not_in_network(side: AddressSide, network: &Prefix) -> Self {
        Self::network(side, network, Comparison::NotEqual)
    }

    fn network(side: AddressSide, network: &Prefix, comparison: Comparison) -> Self {
        let first = network.first();
        let mask = network.mask();
        let selector = Selector::address(Family::of(first), side);
        let xor = Value::from_bytes(&vec![0; mask.as_bytes().len()]);
        let selector = Selector::Bits { of: selector.into(), mask, xor };
        Self::Compare { selector, comparison, value: first.into() }
    }

    /// The packet's address is one of this machine.
    pub fn is_local(side: AddressSide) -> Self {
        Self::equal(Selector::AddressType(side), number(AddressType::LOCAL))
    }

    /// The connection's state is one of some bits of [`ConnectionState`].
    pub fn connection_state(states: u32) -> Self {
        Self::any_bit(Selector::Connection(ConnectionKey::State), states)
    }

    pub fn input_interface(name: &str) -> Self {
        Self::equal(
            Selector::Meta(MetaKey::InputInterface),
            Value::new(&[Field::InterfaceName(name.to_owned())]),
        )
    }

    pub fn output_interface(name: &str) -> Self {
        Self::equal(
            Selector::Meta(MetaKey::OutputInterface),
            Value::new(&[Field::InterfaceName(name.to_owned())]),
        )
    }
}

impl Selector {
    /// The packet's source or destination address.
    pub fn address(family: Family, side: AddressSide) -> Self {
        let (offset, length) = match (family, side) {
            (Family::Ipv6, AddressSide::Source) => (8, 16),
            (Family::Ipv6, AddressSide::Destination) => (24, 16),
            (_, AddressSide::Source) => (12, 4),
            (_, AddressSide::Destination) => (16, 4),
        };
        Self::Payload { base: PayloadBase::Network, offset, length }
    }

    pub fn l4_protocol() -> Self {
        Self::Meta(MetaKey::L4Protocol)
    }

    pub fn source_port() -> Self {
        Self::Payload { base: PayloadBase::Transport, offset: 0, length: 2 }
    }

    pub fn destination_port() -> Self {
        Self::Payload { base: PayloadBase::Transport, offset: 2, length: 2 }
    }

    /// Some bits of a number.
    pub fn bits(self, mask: u32) -> Self {
        Self::Bits { of: self.into(), mask: number(mask), xor: number(0) }
    }
}

fn number(number: u32) -> Value {
    Value::new(&[Field::Number(number)])
}

fn nat_target(address: IpAddr, port: Option<u16>) -> Selector {
    let port = port.map(Field::Port);
    let fields: Vec<_> = [Field::Address(address)].into_iter().chain(port).collect();
    Selector::Constant(Value::new(&fields))
}
