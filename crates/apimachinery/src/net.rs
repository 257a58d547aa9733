//! IP networks and address families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The family of an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The length of addresses in bits.
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Family::V4, Family::V6].into_iter().find(|one| one.name() == name)
    }

    pub fn other(self) -> Self {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }
}

/// An IP network whose addresses are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// The limits of addresses that are allocated from a network, as powers of two.
const MOST_ADDRESS_BITS: u8 = 20;
const MOST_V6_ADDRESS_BITS: u8 = 16;

impl Network {
    /// The default network of services.
    pub const DEFAULT: Network = Network { base: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 16 };

    /// Reads `10.0.0.0/16`; the bits behind the prefix do not matter.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = schema::format::parse_cidr(text)?;
        (prefix <= Family::of(&address).bits()).then(|| Network::around(address, prefix))
    }

    /// The network of an address; a prefix that is too long is the longest there is.
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        let prefix = prefix.min(Family::of(&address).bits());
        let base = match address {
            IpAddr::V4(it) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & mask))
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask))
            }
        };
        Network { base, prefix }
    }

    pub fn family(&self) -> Family {
        Family::of(&self.base)
    }

    /// The address of the network itself.
    pub fn base(&self) -> IpAddr {
        self.base
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The first address that can be allocated.
    pub fn first(&self) -> IpAddr {
        self.address(0)
    }

    /// Why addresses cannot be allocated from it, if so.
    pub fn unusable(&self) -> Option<String> {
        let bits = self.host_bits();
        match self.family() {
            Family::V4 if bits > MOST_ADDRESS_BITS => {
                Some(format!("{self} is too large: the prefix must be at least /{}", 32 - MOST_ADDRESS_BITS))
            }
            _ if bits < 3 => Some(format!("{self} is too small: it must hold at least 8 addresses")),
            _ => None,
        }
    }

    fn host_bits(&self) -> u8 {
        self.family().bits() - self.prefix
    }

    /// How many addresses are allocated: all but that of the network and, for IPv4, the last.
    pub fn size(&self) -> u32 {
        match self.family() {
            Family::V4 => (1u32 << self.host_bits().min(MOST_ADDRESS_BITS)).saturating_sub(2),
            Family::V6 => (1u32 << self.host_bits().min(MOST_V6_ADDRESS_BITS)).saturating_sub(1),
        }
    }

    /// The address with this number, counted from the first that can be allocated.
    pub fn address(&self, offset: u32) -> IpAddr {
        match self.base {
            IpAddr::V4(it) => Ipv4Addr::from_bits(it.to_bits().wrapping_add(offset + 1)).into(),
            IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits().wrapping_add(u128::from(offset) + 1)).into(),
        }
    }

    /// The number of an address, if it can be allocated.
    pub fn offset(&self, address: &IpAddr) -> Option<u32> {
        let behind = match (address, self.base) {
            (IpAddr::V4(it), IpAddr::V4(base)) => u128::from(it.to_bits().checked_sub(base.to_bits())?),
            (IpAddr::V6(it), IpAddr::V6(base)) => it.to_bits().checked_sub(base.to_bits())?,
            _ => return None,
        };
        u32::try_from(behind.checked_sub(1)?).ok().filter(|offset| *offset < self.size())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_neither_too_large_nor_too_small() {
        let unusable = |text: &str| Network::parse(text).unwrap().unusable().is_some();
        assert!(unusable("10.0.0.0/8") && unusable("10.0.0.0/30") && !unusable("10.0.0.0/12"));
    }

    #[test]
    fn addresses_are_numbered() {
        let network = Network::parse("10.0.0.9/24").unwrap();
        assert_eq!((network.to_string(), network.size()), ("10.0.0.0/24".to_owned(), 254));
        assert_eq!(network.offset(&network.address(7)), Some(7));
        assert_eq!(network.offset(&network.base()), None);
    }
}
