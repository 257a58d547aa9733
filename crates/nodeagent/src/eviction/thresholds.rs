//! The thresholds below which the node has too little of something, and their configuration.

use api::Quantity;
use std::collections::BTreeMap;
use std::time::Duration;

/// A resource of the node that is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    Memory,
    /// Of the cgroup of all pods.
    AllocatableMemory,
    NodeDisk,
    NodeInodes,
    ImageDisk,
    ImageInodes,
    Processes,
}

/// The condition of the node that a signal causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    Memory,
    Disk,
    Processes,
}

impl Signal {
    pub const ALL: [Signal; 7] = [
        Signal::Memory,
        Signal::AllocatableMemory,
        Signal::NodeDisk,
        Signal::NodeInodes,
        Signal::ImageDisk,
        Signal::ImageInodes,
        Signal::Processes,
    ];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Memory => "memory.available",
            Signal::AllocatableMemory => "allocatableMemory.available",
            Signal::NodeDisk => "nodefs.available",
            Signal::NodeInodes => "nodefs.inodesFree",
            Signal::ImageDisk => "imagefs.available",
            Signal::ImageInodes => "imagefs.inodesFree",
            Signal::Processes => "pid.available",
        }
    }

    /// The resource in messages.
    pub fn resource(self) -> &'static str {
        match self {
            Signal::Memory | Signal::AllocatableMemory => "memory",
            Signal::NodeDisk | Signal::ImageDisk => "ephemeral-storage",
            Signal::NodeInodes | Signal::ImageInodes => "inodes",
            Signal::Processes => "pids",
        }
    }

    /// An amount of the resource in messages: bytes by powers of two, others by powers of ten.
    pub fn quantity(self, amount: u64) -> Quantity {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        match self {
            Signal::NodeInodes | Signal::ImageInodes | Signal::Processes => Quantity::new(amount),
            _ => Quantity::from_bytes(amount),
        }
    }

    pub fn pressure(self) -> Pressure {
        match self {
            Signal::Memory | Signal::AllocatableMemory => Pressure::Memory,
            Signal::Processes => Pressure::Processes,
            _ => Pressure::Disk,
        }
    }
}

/// What the node has of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub available: u64,
    pub capacity: u64,
}

pub type Observations = BTreeMap<Signal, Observation>;

/// An amount, or a share of the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    Absolute(u64),
    Share(f64),
}

impl Amount {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|it| Amount::Share(it / 100.0)),
            None => text
                .parse::<Quantity>()
                .ok()
                .map(|it| Amount::Absolute(u64::try_from(it.whole()).unwrap_or(0))),
        }
    }

    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Amount::Absolute(amount) => amount,
            // the precision of a float is enough for a share
            Amount::Share(share) => (capacity as f64 * share) as u64,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub amount: Amount,
    /// How long the threshold must be passed; `None` for a hard one, which evicts without a grace period.
    pub grace: Option<Duration>,
    /// What must be available beyond the threshold before it counts as left.
    pub reclaim: Option<Amount>,
}

impl Threshold {
    /// Whether less is available, or less than what must be reclaimed once the threshold was passed. What was not
    /// observed is enough.
    pub fn is_passed(&self, observations: &Observations, is_reclaiming: bool) -> bool {
        let Some(observed) = observations.get(&self.signal) else { return false };
        let reclaim = self.reclaim.filter(|_| is_reclaiming);
        let needed = self.amount.of(observed.capacity);
        let needed = needed.saturating_add(reclaim.map_or(0, |it| it.of(observed.capacity)));
        observed.available < needed
    }
}

/// The maps of the configuration, by signal.
#[derive(Debug, Clone, Default)]
pub struct ThresholdConfig {
    pub hard: BTreeMap<String, String>,
    pub soft: BTreeMap<String, String>,
    pub soft_grace: BTreeMap<String, String>,
    pub minimum_reclaim: BTreeMap<String, String>,
    /// The cgroup of all pods is limited: the hard threshold of memory counts there, too.
    pub limits_pods: bool,
}

impl ThresholdConfig {
    /// The thresholds, memory first: it is reclaimed first. 0 % and 100 % are no thresholds.
    pub fn thresholds(&self) -> Vec<Threshold> {
        let amount = |map: &BTreeMap<String, String>, signal: Signal| {
            map.get(signal.name())
                .filter(|text| !matches!(text.as_str(), "0%" | "100%"))
                .and_then(|it| Amount::parse(it))
        };
        let grace = |signal: Signal| {
            let nanos = schema::time::parse_duration(self.soft_grace.get(signal.name())?).ok()?;
            Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
        };
        let mut all = Vec::new();
        for signal in Signal::ALL {
            let is_derived = signal == Signal::AllocatableMemory && self.limits_pods;
            let derived = |map| amount(map, Signal::Memory).filter(|_| is_derived);
            let reclaim = amount(&self.minimum_reclaim, signal).or_else(|| derived(&self.minimum_reclaim));
            let hard = amount(&self.hard, signal).or_else(|| derived(&self.hard));
            all.extend(hard.map(|amount| Threshold { signal, amount, grace: None, reclaim }));
            let soft = amount(&self.soft, signal).zip(grace(signal));
            all.extend(soft.map(|(amount, grace)| Threshold { signal, amount, grace: Some(grace), reclaim }));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read() {
        let map = |text: &str| -> BTreeMap<String, String> {
            let pairs = text.split(',').filter_map(|it| it.split_once('='));
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let config = ThresholdConfig {
            hard: map("nodefs.available=10%,memory.available=100Mi,imagefs.available=0%"),
            soft: map("memory.available=1Gi,pid.available=5%"),
            soft_grace: map("memory.available=1m30s"),
            minimum_reclaim: map("nodefs.available=1Gi"),
            limits_pods: false,
        };
        let none = None;
        let expected = [
            Threshold {
                signal: Signal::Memory,
                amount: Amount::Absolute(100 << 20),
                grace: none,
                reclaim: None,
            },
            Threshold {
                signal: Signal::Memory,
                amount: Amount::Absolute(1 << 30),
                grace: Some(Duration::from_secs(90)),
                reclaim: None,
            },
            Threshold {
                signal: Signal::NodeDisk,
                amount: Amount::Share(0.1),
                grace: none,
                reclaim: Some(Amount::Absolute(1 << 30)),
            },
        ];
        assert_eq!(config.thresholds(), expected);
        let with_pods = ThresholdConfig { limits_pods: true, ..config }.thresholds();
        let of_pods = Threshold { signal: Signal::AllocatableMemory, ..expected[0] };
        assert_eq!(with_pods, [expected[0], expected[1], of_pods, expected[2]]);
        assert_eq!(Amount::Share(0.1).of(1000), 100);
    }
}
