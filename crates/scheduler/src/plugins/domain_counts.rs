//! Numbers of matching pods by topology domain and by node, and the fewest of all domains.

use std::collections::BTreeMap;

use crate::node_info::Slot;
use crate::topology::{Domain, KeyId, Topology};

/// A domain or node that is not counted.
const ABSENT: i64 = i64::MIN;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct DomainCounts {
    by_domain: Vec<i64>,
    by_slot: Vec<i64>,
    /// How many domains have each number of pods.
    domains_by_count: BTreeMap<i64, usize>,
    /// How many domains are counted.
    domains: usize,
    /// The domains that changed since [`Self::take_changes`]; `None` before its first call.
    changes: Option<Vec<Domain>>,
}

impl DomainCounts {
    pub fn new(key: KeyId, topology: &Topology) -> Self {
        DomainCounts { by_domain: vec![ABSENT; topology.domain_limit(key)], ..DomainCounts::default() }
    }

    /// Takes the count of a node in place of its last one.
    pub fn set(&mut self, slot: Slot, domain: Domain, count: i64) {
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, ABSENT);
        }
        let before = or_zero(std::mem::replace(&mut self.by_slot[slot], count));
        self.replace(domain, self.get(domain) + count - before);
    }

    /// Adds to the count of a domain, if it is counted.
    pub fn add(&mut self, domain: Domain, delta: i64) {
        if let Some(sum) = self.by_domain.get(domain as usize).copied().filter(|sum| *sum != ABSENT) {
            self.replace(domain, sum + delta);
        }
    }

    fn replace(&mut self, domain: Domain, count: i64) {
        let Some(sum) = self.by_domain.get_mut(domain as usize) else { return };
        let before = std::mem::replace(sum, count);
        if before == count {
            return;
        }
        match before {
            ABSENT => self.domains += 1,
            before => {
                if let Some(domains) = self.domains_by_count.get_mut(&before) {
                    *domains -= 1;
                    if *domains == 0 {
                        self.domains_by_count.remove(&before);
                    }
                }
            }
        }
        *self.domains_by_count.entry(count).or_default() += 1;
        if let Some(changes) = &mut self.changes {
            changes.push(domain);
        }
    }

    pub fn get_slot(&self, slot: Slot) -> i64 {
        self.by_slot.get(slot).map_or(0, |count| or_zero(*count))
    }

    pub fn get(&self, domain: Domain) -> i64 {
        self.by_domain.get(domain as usize).map_or(0, |count| or_zero(*count))
    }

    /// The fewest pods of a domain that is counted.
    pub fn fewest(&self) -> Option<i64> {
        self.domains_by_count.first_key_value().map(|(count, _)| *count)
    }

    /// How many domains are counted.
    pub fn domains(&self) -> usize {
        self.domains
    }

    /// The domains that changed since the last call; `None` at the first one.
    pub fn take_changes(&mut self) -> Option<Vec<Domain>> {
        self.changes.replace(Vec::new())
    }
}

fn or_zero(count: i64) -> i64 {
    if count == ABSENT { 0 } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Labels;

    #[test]
    fn the_fewest_follow_the_counts() {
        let mut topology = Topology::default();
        let labels = ["a", "b", "a"].map(|zone| Labels::from([("zone".to_owned(), zone.to_owned())]));
        let key = topology.add_key("zone", labels.iter().enumerate());
        let mut counts = DomainCounts::new(key, &topology);
        assert_eq!((counts.fewest(), counts.domains()), (None, 0));
        counts.add(0, 1);
        assert_eq!(counts.get(0), 0);
        assert_eq!(counts.take_changes(), None);
        for (slot, domain, count) in [(0, 0, 2), (1, 1, 1), (2, 0, 3)] {
            counts.set(slot, domain, count);
        }
        assert_eq!((counts.get(0), counts.get(1), counts.get_slot(2)), (5, 1, 3));
        assert_eq!((counts.fewest(), counts.domains()), (Some(1), 2));
        assert_eq!(counts.take_changes(), Some(vec![0, 1, 0]));
        counts.set(0, 0, 0);
        counts.add(1, 4);
        assert_eq!((counts.fewest(), counts.take_changes()), (Some(3), Some(vec![0, 1])));
        counts.set(0, 0, 0);
        assert_eq!(counts.take_changes(), Some(Vec::new()));
    }
}
