//! Networks and ranges of addresses, and their union and difference.
//!
//! Sets of ranges take no overlaps, so rules from overlapping networks are merged first.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::value::Value;

/// A network: an address and the number of bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    first: IpAddr,
    length: u8,
}

impl Prefix {
    /// The network that an address is in. A length beyond that of the address means the address alone.
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(width(address));
        let first = from_number(address, to_number(address) & mask(address, length));
        Self { first, length }
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn last(&self) -> IpAddr {
        let ones = !mask(self.first, self.length) & mask(self.first, width(self.first));
        from_number(self.first, to_number(self.first) | ones)
    }

    pub fn length(&self) -> u8 {
        self.length
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first == Self::new(address, self.length).first
    }

    pub(super) fn mask(&self) -> Value {
        from_number(self.first, mask(self.first, self.length)).into()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid network {text:?}");
        let (address, length) = text.trim().split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let length: u8 = length.parse().map_err(|_| invalid())?;
        if length > width(address) {
            return Err(invalid());
        }
        Ok(Self::new(address, length))
    }
}

/// An inclusive range of addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl From<Prefix> for AddressRange {
    fn from(prefix: Prefix) -> Self {
        Self { first: prefix.first(), last: prefix.last() }
    }
}

/// The same addresses in sorted ranges that neither overlap nor touch.
pub fn merge(ranges: impl IntoIterator<Item = AddressRange>) -> Vec<AddressRange> {
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let mut merged: Vec<AddressRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if touches(last.last, range.first) => last.last = last.last.max(range.last),
            _ => merged.push(range),
        }
    }
    merged
}

/// The addresses of some ranges without those of others, merged.
pub fn subtract(
    ranges: impl IntoIterator<Item = AddressRange>,
    without: impl IntoIterator<Item = AddressRange>,
) -> Vec<AddressRange> {
    let without = merge(without);
    let mut rest = Vec::new();
    for range in merge(ranges) {
        let mut first = Some(range.first);
        for hole in without.iter().filter(|hole| hole.first.is_ipv4() == range.first.is_ipv4()) {
            let Some(start) = first else { break };
            if hole.last < start || hole.first > range.last {
                continue;
            }
            if hole.first > start {
                let last = from_number(start, to_number(hole.first) - 1);
                rest.push(AddressRange { first: start, last });
            }
            first = (hole.last < range.last).then(|| from_number(start, to_number(hole.last) + 1));
        }
        rest.extend(first.map(|first| AddressRange { first, last: range.last }));
    }
    rest
}

/// Whether a range that starts at `next` continues one that ends at `last` and started before.
fn touches(last: IpAddr, next: IpAddr) -> bool {
    last.is_ipv4() == next.is_ipv4() && to_number(next) <= to_number(last).saturating_add(1)
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of a number in the family of another address.
fn from_number(family: IpAddr, number: u128) -> IpAddr {
    match family {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

fn mask(family: IpAddr, length: u8) -> u128 {
    let width = width(family);
    let all = u128::MAX >> (128 - u32::from(width));
    all & all.checked_shl(u32::from(width - length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddressRange {
        match text.split_once('-') {
            Some((first, last)) => {
                AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() }
            }
            None => text.parse::<Prefix>().unwrap().into(),
        }
    }

    fn ranges(text: &str) -> Vec<AddressRange> {
        text.split_whitespace().map(range).collect()
    }

    #[test]
    fn prefixes_have_first_and_last_addresses() {
        let ends = |text: &str| {
            let prefix: Prefix = text.parse().unwrap();
            format!("{prefix} {}", prefix.last())
        };
        assert_eq!(ends("10.1.2.3/8"), "10.0.0.0/8 10.255.255.255");
        assert_eq!(ends("0.0.0.0/0"), "0.0.0.0/0 255.255.255.255");
        assert_eq!(ends("fd00::1/64"), "fd00::/64 fd00::ffff:ffff:ffff:ffff");
        assert_eq!(ends("::/0"), "::/0 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert_eq!(ends("10.1.2.3/32"), "10.1.2.3/32 10.1.2.3");
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/-1"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
        let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
        assert!(prefix.contains([10, 9, 8, 7].into()) && !prefix.contains([11, 0, 0, 0].into()));
        assert!(!prefix.contains("::a00:1".parse().unwrap()));
    }

    #[test]
    fn overlapping_and_adjacent_ranges_are_merged() {
        assert_eq!(
            merge(ranges("10.0.0.0/9 10.128.0.0/9 10.3.0.0/16 11.0.0.0/8")),
            ranges("10.0.0.0-11.255.255.255")
        );
        assert_eq!(merge(ranges("::/0 255.0.0.0/8 0.0.0.0/8")), ranges("0.0.0.0/8 255.0.0.0/8 ::/0"));
    }

    #[test]
    fn exceptions_are_subtracted() {
        let check = |from: &str, without: &str, rest: &str| {
            assert_eq!(subtract(ranges(from), ranges(without)), ranges(rest), "{from} without {without}");
        };
        check("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/16 10.2.0.0-10.255.255.255");
        check("10.0.0.0/8", "10.0.0.0/8", "");
        check("0.0.0.0/0", "0.0.0.0/1 255.255.255.255/32", "128.0.0.0-255.255.255.254");
        check("10.0.0.0/8", "::/0 11.0.0.0/8", "10.0.0.0/8");
        check("fd00::/126", "fd00::1/128 fd00::2/128", "fd00::/128 fd00::3/128");
    }
}
