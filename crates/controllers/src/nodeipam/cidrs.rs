//! CIDR ranges of equal size within a network, and which of them are allocated.
//!
//! Invariants: a range that was released is allocated again last. Memory grows with the number of allocated ranges,
//! not with the size of the network.

use apimachinery::net::{Family, Network};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network, and the prefix length of the ranges that are allocated from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    network: Network,
    prefix: u8,
}

/// The limit of ranges of an IPv6 network, as a power of two.
const MOST_V6_BITS: u8 = 16;

impl Pool {
    /// Fails if the network has no ranges of this size, or too many.
    pub fn new(network: Network, prefix: u8) -> Result<Self, String> {
        let longest = network.family().bits();
        if prefix > longest {
            return Err(format!(
                "the size of nodes' ranges is between 0 and {longest} for {}",
                network.family().name()
            ));
        }
        let Some(more) = prefix.checked_sub(network.prefix()) else {
            return Err(format!(
                "{network} is smaller than a range of a node, which has the prefix /{prefix}"
            ));
        };
        if network.family() == Family::V6 && more > MOST_V6_BITS {
            return Err(format!(
                "{network} has too many ranges with the prefix /{prefix}: at most 2^{MOST_V6_BITS}"
            ));
        }
        Ok(Pool { network, prefix })
    }

    /// Whether a network overlaps with it.
    pub fn overlaps(&self, other: &Network) -> bool {
        self.overlap(other).is_some()
    }

    fn size(&self) -> u64 {
        1 << (self.prefix - self.network.prefix())
    }

    /// The shift from an address to the number of its range.
    fn shift(&self) -> u32 {
        u32::from(self.network.family().bits() - self.prefix)
    }

    fn range(&self, number: u64) -> Network {
        let offset = u128::from(number).checked_shl(self.shift()).unwrap_or(0);
        let base = match self.network.base() {
            IpAddr::V4(base) => Ipv4Addr::from_bits(base.to_bits().wrapping_add(offset as u32)).into(),
            IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from_bits(base.to_bits().wrapping_add(offset))),
        };
        Network::around(base, self.prefix)
    }

    /// The numbers of the first and the last range that a network overlaps with.
    fn overlap(&self, other: &Network) -> Option<(u64, u64)> {
        if other.family() != self.network.family() {
            return None;
        }
        let ((first, last), (from, to)) = (span(&self.network), span(other));
        if to < first || last < from {
            return None;
        }
        let number = |address: u128| (address - first).checked_shr(self.shift()).unwrap_or(0) as u64;
        Some((number(from.max(first)), number(to.min(last))))
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.network.fmt(out)
    }
}

/// The first and the last address, as numbers.
fn span(network: &Network) -> (u128, u128) {
    let first = match network.base() {
        IpAddr::V4(base) => u128::from(base.to_bits()),
        IpAddr::V6(base) => base.to_bits(),
    };
    let hosts = u32::from(network.family().bits() - network.prefix());
    let more = 1u128.checked_shl(hosts).map_or(u128::MAX, |it| it - 1);
    (first, first.saturating_add(more))
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Cidrs {
    pub pool: Pool,
    /// Allocated ranges, with the number of their holders.
    single: BTreeMap<u64, usize>,
    /// Runs of allocated ranges, each from its first to its last.
    runs: Vec<(u64, u64)>,
    next: u64,
}

impl Cidrs {
    pub fn new(pool: Pool) -> Self {
        Cidrs { pool, single: BTreeMap::new(), runs: Vec::new(), next: 0 }
    }

    /// Allocates all ranges that a network overlaps with. Returns whether there are any.
    pub fn take(&mut self, network: &Network) -> bool {
        match self.pool.overlap(network) {
            None => return false,
            Some((first, last)) if first == last => *self.single.entry(first).or_default() += 1,
            Some(run) => self.runs.push(run),
        }
        true
    }

    pub fn release(&mut self, network: &Network) {
        match self.pool.overlap(network) {
            None => {}
            Some((first, last)) if first == last => {
                if let Some(holders) = self.single.get_mut(&first) {
                    *holders -= 1;
                    if *holders == 0 {
                        self.single.remove(&first);
                    }
                }
            }
            Some(run) => {
                if let Some(at) = self.runs.iter().position(|it| *it == run) {
                    self.runs.swap_remove(at);
                }
            }
        }
    }

    /// The next free range, and how many ranges were tried; it is not allocated yet.
    pub fn free(&self) -> Option<(Network, u64)> {
        let size = self.pool.size();
        let range = self.free_in(self.next, size).or_else(|| self.free_in(0, self.next));
        let tried =
            |number: u64| if number >= self.next { number - self.next } else { size - self.next + number };
        range.map(|number| (self.pool.range(number), tried(number) + 1))
    }

    /// The first free number from `from` on and before `end`.
    fn free_in(&self, from: u64, end: u64) -> Option<u64> {
        let mut number = from;
        loop {
            let run = self.runs.iter().filter(|(first, last)| (*first..=*last).contains(&number));
            if let Some(last) = run.map(|(_, last)| *last).max() {
                number = last + 1;
                continue;
            }
            if number >= end {
                return None;
            }
            // skip neighbours that are allocated
            let taken =
                self.single.range(number..).zip(number..).take_while(|((at, _), number)| *at == number);
            match taken.count() as u64 {
                0 => return Some(number),
                more => number += more,
            }
        }
    }

    /// Allocates the next free range.
    pub fn take_free(&mut self) -> Option<(Network, u64)> {
        let (range, tried) = self.free()?;
        if let Some((number, _)) = self.pool.overlap(&range) {
            self.next = (number + 1) % self.pool.size();
        }
        self.take(&range);
        Some((range, tried))
    }

    /// The share of ranges that are allocated.
    pub fn usage(&self) -> f64 {
        let in_runs = |number: &u64| self.runs.iter().any(|(first, last)| (first..=last).contains(&number));
        let alone = self.single.keys().filter(|it| !in_runs(it)).count() as u64;
        let mut runs = self.runs.clone();
        runs.sort_unstable();
        let (mut covered, mut end) = (0, 0);
        for (first, last) in runs {
            covered += (last + 1).saturating_sub(first.max(end));
            end = end.max(last + 1);
        }
        (alone + covered) as f64 / self.pool.size() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap()
    }

    fn cidrs(text: &str, prefix: u8) -> Cidrs {
        Cidrs::new(Pool::new(network(text), prefix).unwrap())
    }

    fn some(cidrs: &mut Cidrs, most: usize) -> Vec<String> {
        (0..most).map_while(|_| cidrs.take_free()).map(|(it, _)| it.to_string()).collect()
    }

    #[test]
    fn ranges_are_allocated_in_order_and_released_ones_last() {
        let mut all = cidrs("10.0.0.0/22", 24);
        assert_eq!(some(&mut all, 3), ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]);
        all.release(&network("10.0.0.0/24"));
        assert_eq!(all.usage(), 0.5);
        assert_eq!(some(&mut all, 9), ["10.0.3.0/24", "10.0.0.0/24"]);
        assert_eq!((all.free(), all.usage()), (None, 1.0));
        all.release(&network("10.0.2.0/24"));
        assert_eq!(some(&mut all, 9), ["10.0.2.0/24"]);
    }

    #[test]
    fn networks_of_other_sizes_and_places() {
        let mut all = cidrs("10.0.0.0/21", 24);
        // larger, smaller, elsewhere and of the other family
        assert!(all.take(&network("10.0.0.0/23")) && all.take(&network("10.0.3.128/25")));
        assert!(!all.take(&network("10.0.8.0/24")) && !all.take(&network("fd00::/64")));
        assert_eq!(some(&mut all, 2), ["10.0.2.0/24", "10.0.4.0/24"]);
        // two holders of one range
        assert!(all.take(&network("10.0.5.0/24")) && all.take(&network("10.0.5.64/26")));
        all.release(&network("10.0.5.0/24"));
        assert_eq!(some(&mut all, 1), ["10.0.6.0/24"]);
        assert!(all.take(&network("10.0.0.0/8")));
        assert_eq!((all.usage(), all.free()), (1.0, None));
        all.release(&network("10.0.0.0/8"));
        assert_eq!(some(&mut all, 9), ["10.0.7.0/24"]);
        // releasing what is not allocated changes nothing
        all.release(&network("10.0.0.0/22"));
        all.release(&network("10.0.1.0/25"));
        assert_eq!(all.free(), None);
    }

    #[test]
    fn both_families_and_their_limits() {
        let mut v6 = cidrs("fd00:1::/48", 64);
        assert_eq!(some(&mut v6, 2), ["fd00:1::/64", "fd00:1:0:1::/64"]);
        let mut one = cidrs("10.0.0.0/24", 24);
        assert_eq!(some(&mut one, 9), ["10.0.0.0/24"]);
        assert_eq!(
            some(&mut cidrs("255.255.255.254/31", 32), 9),
            ["255.255.255.254/32", "255.255.255.255/32"]
        );
        assert_eq!(some(&mut cidrs("0.0.0.0/0", 32), 2), ["0.0.0.0/32", "0.0.0.1/32"]);
        assert_eq!(some(&mut cidrs("0.0.0.0/0", 0), 2), ["0.0.0.0/0"]);
        let wrong = |text: &str, prefix| Pool::new(network(text), prefix).is_err();
        assert!(wrong("10.0.0.0/24", 16) && wrong("10.0.0.0/16", 33) && wrong("fd00::/47", 64));
        assert!(wrong("fd00::/8", 129) && !wrong("fd00::/48", 64));
    }

    #[test]
    fn behaves_like_a_set_of_numbers() {
        let seed = 7u64;
        let mut random = seed;
        let mut draw = move |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        let mut all = cidrs("10.0.0.0/19", 24);
        let mut held: Vec<Network> = Vec::new();
        for _ in 0..5000 {
            match draw(4) {
                0 if !held.is_empty() => {
                    let gone = held.swap_remove(draw(held.len() as u64) as usize);
                    all.release(&gone);
                }
                1 => {
                    let other = network(&format!("10.0.{}.0/{}", draw(40), 20 + draw(8)));
                    if all.take(&other) {
                        held.push(other);
                    }
                }
                _ => {
                    let taken: HashSet<u64> = held
                        .iter()
                        .filter_map(|it| all.pool.overlap(it))
                        .flat_map(|(first, last)| first..=last)
                        .collect();
                    assert_eq!(all.usage(), taken.len() as f64 / 32.0, "seed {seed}");
                    match all.take_free() {
                        None => assert_eq!(taken.len(), 32, "seed {seed}"),
                        Some((range, tried)) => {
                            let number = all.pool.overlap(&range).unwrap().0;
                            assert!(!taken.contains(&number) && (1..=32).contains(&tried), "seed {seed}");
                            held.push(range);
                        }
                    }
                }
            }
            if held.len() > 40 {
                held.drain(..).for_each(|it| all.release(&it));
            }
        }
    }
}
