//! The eviction rate of each zone, by how many of its nodes are ready.
//!
//! If a few nodes of a zone are not ready, their pods are evicted node by node at the usual rate. If most are not (a
//! partial disruption), a large zone is evicted at a reduced rate, and a small one not at all. A zone without any
//! ready node (a full disruption) is evicted at the usual rate, unless all zones are fully disrupted: then the fault
//! is likely with this loop, and nothing is evicted.
//!
//! Invariant: within a zone the node that has waited longest is next.

use std::collections::BTreeMap;
use std::time::Duration;

/// Eviction rates, in nodes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub usual: f64,
    /// In a large zone that is partially disrupted.
    pub reduced: f64,
    /// A zone with more nodes is large.
    pub large: usize,
    /// The share of nodes that are not ready from which on a zone is partially disrupted.
    pub most: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { usual: 0.1, reduced: 0.01, large: 50, most: 0.55 }
    }
}

/// The number of nodes of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub ready: usize,
    pub not_ready: usize,
}

impl Count {
    pub fn all(&self) -> usize {
        self.ready + self.not_ready
    }

    /// The percentage of ready nodes.
    pub fn health(&self) -> f64 {
        if self.all() == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.all() as f64 }
    }

    fn state(&self, rates: &Rates) -> State {
        let share = self.not_ready as f64 / self.all().max(1) as f64;
        match self.ready {
            0 if self.not_ready > 0 => State::FullDisruption,
            _ if self.not_ready > 2 && share >= rates.most => State::PartialDisruption,
            _ => State::Normal,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first count.
    New,
    Normal,
    PartialDisruption,
    FullDisruption,
}

/// A change of the cluster as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterChange {
    None,
    /// All zones are fully disrupted: evictions are taken back.
    Disrupted,
    /// Some nodes are ready again: all nodes have their whole grace period again.
    Recovered,
}

/// Admits one eviction per interval.
#[derive(Debug, Clone, PartialEq)]
struct RateLimiter {
    rate: f64,
    /// When the next eviction is admitted.
    next: Duration,
}

impl RateLimiter {
    fn interval(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.rate).unwrap_or(Duration::MAX)
    }

    fn is_open(&self, now: Duration) -> bool {
        self.rate > 0.0 && self.next <= now
    }

    fn take(&mut self, now: Duration) -> bool {
        let open = self.is_open(now);
        if open {
            self.next = now.saturating_add(self.interval());
        }
        open
    }

    /// Sets the rate. A limiter that is closed stays closed for one interval of the new rate.
    fn set(&mut self, rate: f64, now: Duration) {
        if rate != self.rate {
            let open = self.is_open(now);
            self.rate = rate;
            self.next = if open || rate <= 0.0 { now } else { now.saturating_add(self.interval()) };
        }
    }
}

struct Zone {
    state: State,
    limiter: RateLimiter,
    /// Nodes to be evicted, by ticket.
    waiting: BTreeMap<u64, String>,
}

pub(super) struct Zones {
    rates: Rates,
    zones: BTreeMap<String, Zone>,
}

impl Zones {
    pub fn new(rates: Rates) -> Self {
        Zones { rates, zones: BTreeMap::new() }
    }

    /// Updates the zones from a count of all nodes. A zone whose nodes are all excluded has a count of zero; a zone
    /// that is missing is removed.
    pub fn update(&mut self, counts: &BTreeMap<String, Count>, now: Duration) -> ClusterChange {
        self.zones.retain(|name, _| counts.contains_key(name));
        for name in counts.keys() {
            let rate = self.rates.usual;
            self.zones.entry(name.clone()).or_insert_with(|| Zone {
                state: State::New,
                limiter: RateLimiter { rate, next: now },
                waiting: BTreeMap::new(),
            });
        }
        let rates = self.rates;
        let is_disrupted = |count: &Count| count.state(&rates) == State::FullDisruption;
        let mut nonempty = counts.values().filter(|it| it.all() > 0).peekable();
        if nonempty.peek().is_none() {
            return ClusterChange::None;
        }
        let all_disrupted = nonempty.all(is_disrupted);
        let were_disrupted = self.zones.values().all(|it| it.state == State::FullDisruption);
        if all_disrupted {
            for zone in self.zones.values_mut() {
                zone.state = State::FullDisruption;
                zone.limiter.set(0.0, now);
                zone.waiting.clear();
            }
            return if were_disrupted { ClusterChange::None } else { ClusterChange::Disrupted };
        }
        for (zone, count) in self.zones.values_mut().zip(counts.values()) {
            zone.state = count.state(&rates);
            zone.limiter.set(rate(&rates, zone.state, count.all()), now);
        }
        if were_disrupted { ClusterChange::Recovered } else { ClusterChange::None }
    }

    /// Whether all zones are fully disrupted, so that nothing is evicted.
    pub fn is_disrupted(&self) -> bool {
        let is_disrupted = |it: &Zone| it.state == State::FullDisruption && it.limiter.rate <= 0.0;
        !self.zones.is_empty() && self.zones.values().all(is_disrupted)
    }

    /// Clears the waiting nodes; the caller adds them again.
    pub fn clear(&mut self) {
        self.zones.values_mut().for_each(|zone| zone.waiting.clear());
    }

    /// Adds a node to be evicted, in the order of tickets.
    pub fn wait(&mut self, zone: &str, ticket: u64, node: &str) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.waiting.insert(ticket, node.to_owned());
        }
    }

    /// Takes the nodes whose eviction is admitted now.
    pub fn due(&mut self, now: Duration) -> Vec<String> {
        let mut due = Vec::new();
        for zone in self.zones.values_mut().filter(|zone| !zone.waiting.is_empty()) {
            if zone.limiter.take(now) {
                due.extend(zone.waiting.pop_first().map(|(_, node)| node));
            }
        }
        due
    }

    /// When the next eviction is admitted.
    pub fn next(&self) -> Option<Duration> {
        let waiting = self.zones.values().filter(|zone| !zone.waiting.is_empty() && zone.limiter.rate > 0.0);
        waiting.map(|zone| zone.limiter.next).min()
    }
}

fn rate(rates: &Rates, state: State, size: usize) -> f64 {
    match state {
        State::PartialDisruption if size > rates.large => rates.reduced,
        State::PartialDisruption => 0.0,
        State::New | State::Normal | State::FullDisruption => rates.usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(zones: &[(&str, usize, usize)]) -> BTreeMap<String, Count> {
        zones
            .iter()
            .map(|(name, ready, not_ready)| {
                ((*name).to_owned(), Count { ready: *ready, not_ready: *not_ready })
            })
            .collect()
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn states_of_zones() {
        let of = |ready, not_ready| Count { ready, not_ready }.state(&Rates::default());
        assert_eq!(of(0, 1), State::FullDisruption);
        assert_eq!(of(1, 0), State::Normal);
        // two nodes are never a partial disruption
        assert_eq!(
            (of(1, 2), of(1, 3), of(0, 3)),
            (State::Normal, State::PartialDisruption, State::FullDisruption)
        );
        assert_eq!((of(46, 54), of(45, 55)), (State::Normal, State::PartialDisruption));
        assert_eq!(Count { ready: 1, not_ready: 2 }.health().round(), 33.0);
        assert_eq!(Count::default().health(), 100.0);
    }

    /// The seconds at which nodes of zone `a` are evicted.
    fn evictions(zones: &mut Zones, waiting: usize, from: u64, to: u64) -> Vec<u64> {
        for ticket in 0..waiting {
            zones.wait("a", ticket as u64, &format!("n{ticket}"));
        }
        (from..to).flat_map(|second| zones.due(at(second)).into_iter().map(move |_| second)).collect()
    }

    #[test]
    fn rates_follow_states() {
        let mut zones = Zones::new(Rates::default());
        assert_eq!(zones.update(&counts(&[("a", 7, 3)]), at(0)), ClusterChange::None);
        assert_eq!(evictions(&mut zones, 3, 0, 60), [0, 10, 20]);
        // a partial disruption of a small zone
        zones.update(&counts(&[("a", 4, 6)]), at(60));
        assert_eq!(evictions(&mut zones, 6, 60, 1000), [0; 0]);
        assert_eq!(zones.next(), None);
        // of a large one, which waits for one interval first
        zones.update(&counts(&[("a", 40, 60)]), at(1000));
        assert_eq!((evictions(&mut zones, 6, 1000, 1200), zones.next()), (vec![1100], Some(at(1200))));
        // a full disruption, with another zone that is well
        zones.update(&counts(&[("a", 0, 10), ("b", 1, 0)]), at(1300));
        assert_eq!(evictions(&mut zones, 9, 1300, 1325), [1300, 1310, 1320]);
    }

    #[test]
    fn nothing_is_evicted_during_a_full_disruption_of_all_zones() {
        let mut zones = Zones::new(Rates::default());
        zones.update(&counts(&[("a", 2, 1), ("b", 1, 0)]), at(0));
        evictions(&mut zones, 1, 0, 1);
        assert_eq!(zones.update(&counts(&[("a", 0, 3), ("b", 0, 1)]), at(5)), ClusterChange::Disrupted);
        assert_eq!(zones.update(&counts(&[("a", 0, 3), ("b", 0, 1)]), at(10)), ClusterChange::None);
        assert_eq!(evictions(&mut zones, 3, 10, 500), [0; 0]);
        assert_eq!(zones.update(&counts(&[("a", 0, 3), ("b", 1, 0)]), at(500)), ClusterChange::Recovered);
        assert_eq!(evictions(&mut zones, 3, 500, 525), [510, 520]);
        // also right after a start
        let mut zones = Zones::new(Rates::default());
        assert_eq!(zones.update(&counts(&[("a", 0, 1)]), at(0)), ClusterChange::Disrupted);
        // a new zone was not disrupted before
        assert_eq!(zones.update(&counts(&[("a", 0, 1), ("b", 0, 1)]), at(1)), ClusterChange::Disrupted);
        assert_eq!(zones.update(&counts(&[]), at(2)), ClusterChange::None);
    }

    #[test]
    fn excluded_nodes_are_evicted_too() {
        let mut zones = Zones::new(Rates::default());
        assert_eq!(zones.update(&counts(&[("a", 0, 0)]), at(0)), ClusterChange::None);
        assert_eq!(evictions(&mut zones, 2, 0, 15), [0, 10]);
        // but not while all other zones are fully disrupted
        assert_eq!(zones.update(&counts(&[("a", 0, 0), ("b", 0, 2)]), at(20)), ClusterChange::Disrupted);
        assert_eq!(evictions(&mut zones, 2, 20, 100), [0; 0]);
    }

    #[test]
    fn invalid_rates_do_not_panic() {
        for usual in [0.0, -1.0, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN] {
            let mut zones = Zones::new(Rates { usual, ..Rates::default() });
            zones.update(&counts(&[("a", 5, 1)]), at(0));
            assert!(evictions(&mut zones, 3, 0, 10).len() <= 3);
        }
    }
}
