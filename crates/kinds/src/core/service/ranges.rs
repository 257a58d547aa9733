//! Ranges of numbers with at most one holder each: addresses of a network, ports.
//!
//! A range is a bitmap: taking a given number is one step, and finding a free one is a scan over words from a random
//! place. Requested numbers are mostly small, so free ones are taken from behind a reserved band at the start while any
//! are left.

use apimachinery::net::Network;
use rest::reserve::{Outcomes, Range};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The taken numbers out of `size`.
#[derive(Debug, Clone)]
struct Bits {
    words: Vec<u64>,
    size: u32,
    /// How many more times a taken number is held.
    again: BTreeMap<u32, u32>,
}

impl Bits {
    fn new(size: u32) -> Self {
        Bits { words: vec![0; size.div_ceil(64) as usize], size, again: BTreeMap::new() }
    }

    fn has(&self, at: u32) -> bool {
        self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Whether it was free.
    fn take(&mut self, at: u32) -> bool {
        let free = at < self.size && !self.has(at);
        if free && let Some(word) = self.words.get_mut(at as usize / 64) {
            *word |= 1 << (at % 64);
        }
        free
    }

    /// Takes a number, even a taken one; it is free after as many releases. Returns whether it was free.
    fn take_again(&mut self, at: u32) -> bool {
        let free = self.take(at);
        if !free && at < self.size {
            *self.again.entry(at).or_default() += 1;
        }
        free
    }

    /// The number of taken numbers.
    fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn give_back(&mut self, at: u32) {
        if let Some(more) = self.again.get_mut(&at) {
            *more -= 1;
            if *more == 0 {
                self.again.remove(&at);
            }
            return;
        }
        if let Some(word) = self.words.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// The first free number in `from..to`.
    fn free_in(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let taken = self.words.get(at as usize / 64)? >> (at % 64);
            let skipped = taken.trailing_ones().min(64 - at % 64);
            if skipped < 64 - at % 64 {
                return Some(at + skipped).filter(|found| *found < to);
            }
            at += skipped;
        }
        None
    }

    /// Takes a free number of `from..to`, beginning the search at a random place.
    fn take_any(&mut self, from: u32, to: u32, random: u64) -> Option<u32> {
        if from >= to {
            return None;
        }
        let start = from + (random % u64::from(to - from)) as u32;
        let number = self.free_in(start, to).or_else(|| self.free_in(from, start))?;
        self.take(number).then_some(number)
    }
}

/// The reason why a number cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Taken,
    OutOfRange,
    Full,
}

/// Addresses of a network and which of them are taken.
#[derive(Debug, Clone)]
pub struct Addresses {
    pub network: Network,
    taken: Bits,
    /// Outcomes for requested addresses, and for dynamic ones.
    named: Outcomes,
    any: Outcomes,
}

impl Addresses {
    pub fn new(network: Network) -> Self {
        let (named, any) = Default::default();
        Addresses { network, taken: Bits::new(network.size()), named, any }
    }

    /// The numbers for metrics.
    pub fn range(&self) -> Range {
        let taken = self.taken.count();
        let free = u64::from(self.taken.size).saturating_sub(taken);
        Range { name: self.network.to_string(), taken, free, named: self.named, any: self.any }
    }

    /// Whether the address is in the range.
    pub fn covers(&self, address: &IpAddr) -> bool {
        self.network.offset(address).is_some()
    }

    /// Takes an address that an object already holds; returns whether it was free, `None` outside of the range.
    pub fn recover(&mut self, address: &IpAddr) -> Option<bool> {
        self.network.offset(address).map(|offset| self.taken.take_again(offset))
    }

    pub fn take(&mut self, address: &IpAddr) -> Result<(), Refusal> {
        let offset = self.network.offset(address).ok_or(Refusal::OutOfRange);
        let taken = offset.and_then(|it| if self.taken.take(it) { Ok(()) } else { Err(Refusal::Taken) });
        self.named.count(taken.is_ok());
        taken
    }

    pub fn take_any(&mut self, random: u64) -> Result<IpAddr, Refusal> {
        let band = band(self.taken.size);
        let number = self.taken.take_any(band, self.taken.size, random);
        let number = number.or_else(|| self.taken.take_any(0, band, random));
        self.any.count(number.is_some());
        Ok(self.network.address(number.ok_or(Refusal::Full)?))
    }

    pub fn give_back(&mut self, address: &IpAddr) {
        if let Some(offset) = self.network.offset(address) {
            self.taken.give_back(offset);
        }
    }
}

/// The number of addresses at the start that are reserved for explicit requests: a sixteenth, within bounds.
fn band(size: u32) -> u32 {
    const LEAST: u32 = 16;
    const MOST: u32 = 256;
    if size < LEAST { 0 } else { (size / 16).clamp(LEAST, MOST) }
}

/// Ports from the first to the last, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    pub const DEFAULT: PortRange = PortRange { first: 30000, last: 32767 };

    /// Reads `30000-32767`, `30000+2767` or a single port.
    pub fn parse(text: &str) -> Option<Self> {
        let port = |text: &str| text.trim().parse::<u16>().ok();
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some((first, last)), _) => (port(first)?, port(last)?),
            (None, Some((first, more))) => (port(first)?, port(first)?.checked_add(port(more)?)?),
            (None, None) => (port(text)?, port(text)?),
        };
        (first > 0 && first <= last).then_some(PortRange { first, last })
    }

    fn size(&self) -> u32 {
        u32::from(self.last - self.first) + 1
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Ports and which of them are taken.
#[derive(Debug, Clone)]
pub struct Ports {
    pub range: PortRange,
    taken: Bits,
}

impl Ports {
    pub fn new(range: PortRange) -> Self {
        Ports { range, taken: Bits::new(range.size()) }
    }

    fn offset(&self, port: i64) -> Option<u32> {
        u32::try_from(port - i64::from(self.range.first)).ok().filter(|offset| *offset < self.taken.size)
    }

    pub fn has(&self, port: i64) -> bool {
        self.offset(port).is_some_and(|offset| self.taken.has(offset))
    }

    pub fn take(&mut self, port: i64) -> Result<(), Refusal> {
        let offset = self.offset(port).ok_or(Refusal::OutOfRange)?;
        if self.taken.take(offset) { Ok(()) } else { Err(Refusal::Taken) }
    }

    /// Takes a port that an object already holds; returns whether it was free, `None` outside of the range.
    pub fn recover(&mut self, port: i64) -> Option<bool> {
        self.offset(port).map(|offset| self.taken.take_again(offset))
    }

    pub fn take_any(&mut self, random: u64) -> Result<i64, Refusal> {
        let number = self.taken.take_any(0, self.taken.size, random).ok_or(Refusal::Full)?;
        Ok(i64::from(self.range.first) + i64::from(number))
    }

    pub fn give_back(&mut self, port: i64) {
        if let Some(offset) = self.offset(port) {
            self.taken.give_back(offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_address_is_given_once_and_the_band_last() {
        let mut addresses = Addresses::new(Network::parse("10.0.0.9/24").unwrap());
        assert_eq!(addresses.network.to_string(), "10.0.0.0/24");
        let mut order = Vec::new();
        while let Ok(address) = addresses.take_any(order.len() as u64 * 7919) {
            order.push(address);
        }
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 254);
        let banded = |it: &IpAddr| addresses.network.offset(it).unwrap() < 16;
        assert!(order[..238].iter().all(|it| !banded(it)) && order[238..].iter().all(banded));
        assert_eq!(addresses.take_any(1), Err(Refusal::Full));
        let one = order[100];
        assert_eq!(addresses.take(&one), Err(Refusal::Taken));
        addresses.give_back(&one);
        assert_eq!(addresses.take_any(5), Ok(one));
    }

    #[test]
    fn ends_of_a_network_are_not_given() {
        for (network, inside, outside) in [
            ("10.0.0.0/16", "10.0.0.1", "10.0.0.0"),
            ("10.0.0.0/16", "10.0.255.254", "10.0.255.255"),
            ("fd00::/112", "fd00::ffff", "fd00::"),
            ("fd00::/64", "fd00::1", "fd00::1:0"),
            ("10.0.0.0/16", "10.0.0.1", "fd00::1"),
        ] {
            let mut addresses = Addresses::new(Network::parse(network).unwrap());
            assert_eq!(addresses.take(&inside.parse().unwrap()), Ok(()), "{inside}");
            assert_eq!(addresses.take(&outside.parse().unwrap()), Err(Refusal::OutOfRange), "{outside}");
        }
    }

    #[test]
    fn ports_have_two_ends() {
        let mut ports = Ports::new(PortRange::parse("30000-30002").unwrap());
        assert_eq!(ports.take(29999), Err(Refusal::OutOfRange));
        assert_eq!(ports.take(30003), Err(Refusal::OutOfRange));
        let taken: BTreeSet<_> = (0..3).map(|random| ports.take_any(random).unwrap()).collect();
        assert_eq!(taken, BTreeSet::from([30000, 30001, 30002]));
        assert_eq!(ports.take_any(0), Err(Refusal::Full));
        for wrong in ["", "x", "5-4", "0-4", "1-70000", "65535+1"] {
            assert_eq!(PortRange::parse(wrong), None, "{wrong}");
        }
        for (text, last) in [("5", 5), ("5+3", 8), (" 5 - 9", 9)] {
            assert_eq!(PortRange::parse(text), Some(PortRange { first: 5, last }), "{text}");
        }
    }
}
