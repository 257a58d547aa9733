//! What a node has, and what of it pods may use.

use super::machine::Machine;
use crate::pod_facts::{
    CPU, EPHEMERAL_STORAGE, MEMORY, PID, ResourceList, add_all, hugepage_resource, hugepage_size,
};
use api::Quantity;
use std::collections::BTreeMap;

const PODS: &str = "pods";
const MEMORY_SIGNAL: &str = "memory.available";
const STORAGE_SIGNAL: &str = "nodefs.available";

/// What is held back from pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reservations {
    pub system: ResourceList,
    /// For the agent and the runtime.
    pub agent: ResourceList,
    /// Thresholds of hard eviction by signal: an amount or a percentage.
    pub eviction: BTreeMap<String, String>,
}

/// The most pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodLimits {
    pub max_pods: i64,
    /// Zero for no limit.
    pub pods_per_core: i64,
}

/// The capacity of a machine; `storage` is the size of the agent's filesystem in bytes.
pub fn capacity(machine: &Machine, storage: Option<i64>, pods: PodLimits) -> ResourceList {
    let cpus = i64::from(machine.cpus);
    let count = match pods.pods_per_core {
        per_core if per_core > 0 => cpus.saturating_mul(per_core).min(pods.max_pods),
        _ => pods.max_pods,
    };
    let mut all = ResourceList::from([
        (CPU.to_owned(), Quantity::new(cpus)),
        (MEMORY.to_owned(), Quantity::from_bytes(machine.memory)),
        (PODS.to_owned(), Quantity::new(count)),
    ]);
    all.extend(storage.map(|bytes| (EPHEMERAL_STORAGE.to_owned(), Quantity::from_bytes(bytes))));
    for &(size, number) in &machine.hugepages {
        let bytes = i64::try_from(size.saturating_mul(number)).unwrap_or(i64::MAX);
        let name = hugepage_resource(i64::try_from(size).unwrap_or(i64::MAX));
        all.insert(name, Quantity::from_bytes(bytes));
    }
    all
}

/// What is held back from pods, without zeros.
pub fn reserved(capacity: &ResourceList, reservations: &Reservations) -> ResourceList {
    let mut held = reservations.system.clone();
    add_all(&mut held, &reservations.agent);
    add_all(&mut held, &eviction_reservation(capacity, &reservations.eviction));
    held.retain(|_, amount| !amount.is_zero());
    held
}

/// What pods may use: the capacity without reservations and eviction thresholds.
pub fn allocatable(capacity: &ResourceList, reservations: &Reservations) -> ResourceList {
    let mut left = subtract(capacity, &reserved(capacity, reservations));
    // huge pages are taken from memory
    let pages = capacity.iter().filter(|(name, _)| hugepage_size(name).is_some());
    for (_, amount) in pages {
        if let Some(memory) = left.get_mut(MEMORY) {
            *memory = or_zero(memory.minus(amount));
        }
    }
    left
}

/// What the cgroup of all pods is limited to: the capacity, if nothing is `held` back from pods, and threads. Eviction acts
/// before that. Huge pages do not count as memory of a cgroup.
pub fn cgroup_allocatable(
    capacity: &ResourceList,
    machine: &Machine,
    held: Option<&Reservations>,
) -> ResourceList {
    let mut whole = capacity.clone();
    whole.extend(machine.max_threads.map(|threads| (PID.to_owned(), Quantity::new(threads))));
    let Some(reservations) = held else { return whole };
    let mut held = reservations.system.clone();
    add_all(&mut held, &reservations.agent);
    subtract(&whole, &held)
}

fn subtract(capacity: &ResourceList, held: &ResourceList) -> ResourceList {
    let rest = |(name, amount): (&String, &Quantity)| {
        let left = held.get(name).map_or_else(|| amount.clone(), |held| or_zero(amount.minus(held)));
        (name.clone(), left)
    };
    capacity.iter().map(rest).collect()
}

fn or_zero(amount: Quantity) -> Quantity {
    if amount.sign() < 0 { Quantity::default() } else { amount }
}

fn eviction_reservation(capacity: &ResourceList, thresholds: &BTreeMap<String, String>) -> ResourceList {
    let signals = [(MEMORY_SIGNAL, MEMORY), (STORAGE_SIGNAL, EPHEMERAL_STORAGE)];
    let reservation = |(signal, resource): (&str, &str)| {
        let amount = threshold(thresholds.get(signal)?, capacity.get(resource)?)?;
        Some((resource.to_owned(), amount))
    };
    signals.into_iter().filter_map(reservation).collect()
}

/// A threshold as an amount; 0 % and 100 % are no thresholds.
fn threshold(text: &str, capacity: &Quantity) -> Option<Quantity> {
    match text.strip_suffix('%') {
        Some("0" | "100") => None,
        Some(percent) => {
            // with the precision of a 32-bit number, as upstream computes it
            let share = percent.parse::<f32>().ok()? / 100.0;
            Some(Quantity::from_bytes((capacity.whole() as f64 * f64::from(share)) as i64))
        }
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            cpus: 2,
            memory: 24_682_740 * 1024,
            hugepages: vec![(2 << 20, 0), (1 << 30, 0)],
            ..Machine::default()
        }
    }

    const STORAGE: i64 = 264_212_084 * 1024;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
    }

    fn texts(list: &ResourceList) -> Vec<String> {
        list.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    fn made(limits: PodLimits, reservations: &Reservations) -> (Vec<String>, Vec<String>) {
        let capacity = capacity(&machine(), Some(STORAGE), limits);
        (texts(&capacity), texts(&allocatable(&capacity, reservations)))
    }

    fn thresholds(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(signal, text)| ((*signal).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn recorded_nodes_have_these_amounts() {
        let default = thresholds(&[
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("imagefs.available", "15%"),
        ]);
        let limits = PodLimits { max_pods: 110, pods_per_core: 0 };
        let (all, free) =
            made(limits, &Reservations { eviction: default.clone(), ..Reservations::default() });
        assert_eq!(
            all,
            [
                "cpu=2",
                "ephemeral-storage=264212084Ki",
                "hugepages-1Gi=0",
                "hugepages-2Mi=0",
                "memory=24682740Ki",
                "pods=110"
            ]
        );
        assert_eq!(
            free,
            [
                "cpu=2",
                "ephemeral-storage=243497856212",
                "hugepages-1Gi=0",
                "hugepages-2Mi=0",
                "memory=24580340Ki",
                "pods=110"
            ]
        );
        let reserved = Reservations {
            system: list(&[("cpu", "150m"), ("memory", "1Gi")]),
            agent: list(&[("cpu", "100m"), ("memory", "100Mi"), ("ephemeral-storage", "1Gi"), ("pid", "50")]),
            eviction: thresholds(&[("memory.available", "200Mi"), ("nodefs.available", "1Gi")]),
        };
        let (_, free) = made(limits, &reserved);
        assert_eq!(free[..2], ["cpu=1750m", "ephemeral-storage=262114932Ki"]);
        assert_eq!(free[4], "memory=23326964Ki");
        let object = Reservations {
            system: list(&[("cpu", "50m"), ("memory", "128Mi"), ("ephemeral-storage", "1Gi")]),
            agent: list(&[("cpu", "100m"), ("memory", "256Mi"), ("ephemeral-storage", "1Gi")]),
            eviction: thresholds(&[("memory.available", "100Mi"), ("nodefs.available", "1%")]),
        };
        let (_, free) = made(limits, &object);
        assert_eq!(free[..2], ["cpu=1850m", "ephemeral-storage=265700158689"]);
        assert_eq!(free[4], "memory=24187124Ki");
        let none =
            Reservations { eviction: thresholds(&[("memory.available", "0%")]), ..Reservations::default() };
        assert_eq!(made(limits, &none).1, all);
    }

    #[test]
    fn the_cgroup_of_all_pods_has_all_but_what_is_reserved() {
        let machine = Machine { hugepages: vec![(2 << 20, 8)], max_threads: Some(32_000), ..machine() };
        let capacity = capacity(&machine, None, PodLimits { max_pods: 110, pods_per_core: 0 });
        let reservations = Reservations {
            system: list(&[("cpu", "150m"), ("memory", "1Gi"), ("pid", "1000")]),
            agent: list(&[("memory", "100Mi")]),
            eviction: thresholds(&[("memory.available", "200Mi")]),
        };
        let made = |held| texts(&cgroup_allocatable(&capacity, &machine, held));
        assert_eq!(
            made(Some(&reservations)),
            ["cpu=1850m", "hugepages-2Mi=16Mi", "memory=23531764Ki", "pid=31k", "pods=110"]
        );
        assert_eq!(made(None), ["cpu=2", "hugepages-2Mi=16Mi", "memory=24682740Ki", "pid=32k", "pods=110"]);
    }

    #[test]
    fn pods_are_limited_by_number_and_by_core() {
        let pods = |max_pods, pods_per_core| {
            capacity(&machine(), None, PodLimits { max_pods, pods_per_core })[PODS].to_string()
        };
        assert_eq!((pods(7, 0), pods(110, 3), pods(5, 3)), ("7".into(), "6".into(), "5".into()));
    }

    #[test]
    fn nothing_is_below_zero_and_huge_pages_are_memory() {
        let capacity = list(&[("memory", "1Gi"), ("hugepages-2Mi", "256Mi"), ("cpu", "1")]);
        let reserved = Reservations { system: list(&[("cpu", "2")]), ..Reservations::default() };
        assert_eq!(
            texts(&allocatable(&capacity, &reserved)),
            ["cpu=0", "hugepages-2Mi=256Mi", "memory=768Mi"]
        );
    }
}
