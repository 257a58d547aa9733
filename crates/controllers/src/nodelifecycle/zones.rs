//! How many nodes of a zone are ready, and how fast the others may be emptied.
//!
//! When a few nodes of a zone go dark they are emptied one after the other, at a rate. When most do, something else is
//! wrong, and a large zone is emptied much slower, a small one not at all. A zone that is dark as a whole is emptied
//! at the usual rate, as long as there are others; when everything is dark it is this loop that sees nothing, and
//! nobody is emptied.
//!
//! What always holds: who waits longest in a zone is next.

use std::collections::BTreeMap;
use std::time::Duration;

/// How fast nodes are emptied, in nodes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub usual: f64,
    /// In a large zone most of which is dark.
    pub reduced: f64,
    /// A zone with more nodes is large.
    pub large: usize,
    /// This part of a zone is most of it.
    pub most: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { usual: 0.1, reduced: 0.01, large: 50, most: 0.55 }
    }
}

/// The nodes of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub ready: usize,
    pub dark: usize,
}

impl Count {
    pub fn all(&self) -> usize {
        self.ready + self.dark
    }

    /// What part of it is ready, in hundredths.
    pub fn health(&self) -> f64 {
        if self.all() == 0 { 100.0 } else { 100.0 * self.ready as f64 / self.all() as f64 }
    }

    fn state(&self, rates: &Rates) -> State {
        let part = self.dark as f64 / self.all().max(1) as f64;
        match self.ready {
            0 if self.dark > 0 => State::Dark,
            _ if self.dark > 2 && part >= rates.most => State::MostlyDark,
            _ => State::Usual,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is known yet.
    New,
    Usual,
    MostlyDark,
    Dark,
}

/// What happened to the cluster as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    /// No node is ready any more: what was begun is taken back.
    AllDark,
    /// Some are ready again: all have their whole time again.
    Back,
}

/// One thing at a time, as far apart as a rate says.
#[derive(Debug, Clone, PartialEq)]
struct Pace {
    rate: f64,
    /// When the next may come.
    next: Duration,
}

impl Pace {
    fn apart(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.rate).unwrap_or(Duration::MAX)
    }

    fn is_open(&self, now: Duration) -> bool {
        self.rate > 0.0 && self.next <= now
    }

    fn take(&mut self, now: Duration) -> bool {
        let open = self.is_open(now);
        if open {
            self.next = now.saturating_add(self.apart());
        }
        open
    }

    /// Who had to wait goes on waiting, for as long as the new rate says.
    fn set(&mut self, rate: f64, now: Duration) {
        if rate != self.rate {
            let open = self.is_open(now);
            self.rate = rate;
            self.next = if open || rate <= 0.0 { now } else { now.saturating_add(self.apart()) };
        }
    }
}

struct Zone {
    state: State,
    pace: Pace,
    /// Those to be emptied, by when they came.
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

    /// The nodes have been counted. Zones without nodes that count are in it, too, with none; others are forgotten.
    pub fn counted(&mut self, counts: &BTreeMap<String, Count>, now: Duration) -> Turn {
        self.zones.retain(|name, _| counts.contains_key(name));
        for name in counts.keys() {
            let rate = self.rates.usual;
            self.zones.entry(name.clone()).or_insert_with(|| Zone {
                state: State::New,
                pace: Pace { rate, next: now },
                waiting: BTreeMap::new(),
            });
        }
        let rates = self.rates;
        let is_dark = |count: &Count| count.state(&rates) == State::Dark;
        let mut that_count = counts.values().filter(|it| it.all() > 0).peekable();
        if that_count.peek().is_none() {
            return Turn::Nothing;
        }
        let all_dark = that_count.all(is_dark);
        let was_dark = self.zones.values().all(|it| it.state == State::Dark);
        if all_dark {
            for zone in self.zones.values_mut() {
                zone.state = State::Dark;
                zone.pace.set(0.0, now);
                zone.waiting.clear();
            }
            return if was_dark { Turn::Nothing } else { Turn::AllDark };
        }
        for (zone, count) in self.zones.values_mut().zip(counts.values()) {
            zone.state = count.state(&rates);
            zone.pace.set(rate(&rates, zone.state, count.all()), now);
        }
        if was_dark { Turn::Back } else { Turn::Nothing }
    }

    /// Whether all nodes that count are dark, so that nobody is emptied.
    pub fn is_dark(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|it| it.state == State::Dark && it.pace.rate <= 0.0)
    }

    /// Nobody waits any more; who still does is added again.
    pub fn clear(&mut self) {
        self.zones.values_mut().for_each(|zone| zone.waiting.clear());
    }

    /// A node is to be emptied when it is its turn, in the order of tickets.
    pub fn wait(&mut self, zone: &str, ticket: u64, node: &str) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.waiting.insert(ticket, node.to_owned());
        }
    }

    /// Whose turn it is.
    pub fn due(&mut self, now: Duration) -> Vec<String> {
        let mut due = Vec::new();
        for zone in self.zones.values_mut().filter(|zone| !zone.waiting.is_empty()) {
            if zone.pace.take(now) {
                due.extend(zone.waiting.pop_first().map(|(_, node)| node));
            }
        }
        due
    }

    /// When it is somebody's turn.
    pub fn next(&self) -> Option<Duration> {
        let waiting = self.zones.values().filter(|zone| !zone.waiting.is_empty() && zone.pace.rate > 0.0);
        waiting.map(|zone| zone.pace.next).min()
    }
}

fn rate(rates: &Rates, state: State, size: usize) -> f64 {
    match state {
        State::MostlyDark if size > rates.large => rates.reduced,
        State::MostlyDark => 0.0,
        State::New | State::Usual | State::Dark => rates.usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(zones: &[(&str, usize, usize)]) -> BTreeMap<String, Count> {
        zones
            .iter()
            .map(|(name, ready, dark)| ((*name).to_owned(), Count { ready: *ready, dark: *dark }))
            .collect()
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn states_of_zones() {
        let of = |ready, dark| Count { ready, dark }.state(&Rates::default());
        assert_eq!(of(0, 1), State::Dark);
        assert_eq!(of(1, 0), State::Usual);
        // two are not many, however few there are
        assert_eq!((of(1, 2), of(1, 3), of(0, 3)), (State::Usual, State::MostlyDark, State::Dark));
        assert_eq!((of(46, 54), of(45, 55)), (State::Usual, State::MostlyDark));
        assert_eq!(Count { ready: 1, dark: 2 }.health().round(), 33.0);
        assert_eq!(Count::default().health(), 100.0);
    }

    /// When the nodes of zone `a` get their turn, second by second.
    fn turns(zones: &mut Zones, waiting: usize, from: u64, to: u64) -> Vec<u64> {
        for ticket in 0..waiting {
            zones.wait("a", ticket as u64, &format!("n{ticket}"));
        }
        (from..to).flat_map(|second| zones.due(at(second)).into_iter().map(move |_| second)).collect()
    }

    #[test]
    fn rates_follow_states() {
        let mut zones = Zones::new(Rates::default());
        assert_eq!(zones.counted(&counts(&[("a", 7, 3)]), at(0)), Turn::Nothing);
        assert_eq!(turns(&mut zones, 3, 0, 60), [0, 10, 20]);
        // most of a small zone
        zones.counted(&counts(&[("a", 4, 6)]), at(60));
        assert_eq!(turns(&mut zones, 6, 60, 1000), [0; 0]);
        assert_eq!(zones.next(), None);
        // most of a large one, which waits before it goes on
        zones.counted(&counts(&[("a", 40, 60)]), at(1000));
        assert_eq!((turns(&mut zones, 6, 1000, 1200), zones.next()), (vec![1100], Some(at(1200))));
        // as a whole, beside another
        zones.counted(&counts(&[("a", 0, 10), ("b", 1, 0)]), at(1300));
        assert_eq!(turns(&mut zones, 9, 1300, 1325), [1300, 1310, 1320]);
    }

    #[test]
    fn nobody_is_emptied_while_all_are_dark() {
        let mut zones = Zones::new(Rates::default());
        zones.counted(&counts(&[("a", 2, 1), ("b", 1, 0)]), at(0));
        turns(&mut zones, 1, 0, 1);
        assert_eq!(zones.counted(&counts(&[("a", 0, 3), ("b", 0, 1)]), at(5)), Turn::AllDark);
        assert_eq!(zones.counted(&counts(&[("a", 0, 3), ("b", 0, 1)]), at(10)), Turn::Nothing);
        assert_eq!(turns(&mut zones, 3, 10, 500), [0; 0]);
        assert_eq!(zones.counted(&counts(&[("a", 0, 3), ("b", 1, 0)]), at(500)), Turn::Back);
        assert_eq!(turns(&mut zones, 3, 500, 525), [510, 520]);
        // from the start, too
        let mut zones = Zones::new(Rates::default());
        assert_eq!(zones.counted(&counts(&[("a", 0, 1)]), at(0)), Turn::AllDark);
        // a zone that is new is not one that was dark
        assert_eq!(zones.counted(&counts(&[("a", 0, 1), ("b", 0, 1)]), at(1)), Turn::AllDark);
        assert_eq!(zones.counted(&counts(&[]), at(2)), Turn::Nothing);
    }

    #[test]
    fn nodes_that_do_not_count_are_emptied_all_the_same() {
        let mut zones = Zones::new(Rates::default());
        assert_eq!(zones.counted(&counts(&[("a", 0, 0)]), at(0)), Turn::Nothing);
        assert_eq!(turns(&mut zones, 2, 0, 15), [0, 10]);
        // but not while all others are dark
        assert_eq!(zones.counted(&counts(&[("a", 0, 0), ("b", 0, 2)]), at(20)), Turn::AllDark);
        assert_eq!(turns(&mut zones, 2, 20, 100), [0; 0]);
    }

    #[test]
    fn odd_rates_do_no_harm() {
        for usual in [0.0, -1.0, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN] {
            let mut zones = Zones::new(Rates { usual, ..Rates::default() });
            zones.counted(&counts(&[("a", 5, 1)]), at(0));
            assert!(turns(&mut zones, 3, 0, 10).len() <= 3);
        }
    }
}
