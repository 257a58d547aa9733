//! Topology domains of nodes: per topology key, the domain of each node as a number.
//!
//! Example: nodes in slots 0, 1, 2 with `zone` labels `a`, `b`, `a` give the key `zone` the domains `[0, 1, 0]`. Counts
//! of pods per domain are then arrays. A key is indexed when a pod first uses it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::node_info::Slot;
use crate::selector::Labels;

/// A topology key that is indexed.
pub type KeyId = usize;
/// A domain: a value of the key's label.
pub type Domain = u32;

const NO_DOMAIN: Domain = Domain::MAX;

#[derive(Debug, Default)]
pub struct Topology {
    ids: HashMap<Arc<str>, KeyId>,
    keys: Vec<Key>,
}

#[derive(Debug, Default)]
struct Key {
    name: Arc<str>,
    by_slot: Vec<Domain>,
    domains: HashMap<String, Domain>,
    /// Number of nodes per domain; numbers of domains without nodes are reused.
    sizes: Vec<u32>,
    free: Vec<Domain>,
    /// How many domains have more than one node.
    shared: usize,
}

impl Key {
    fn set(&mut self, slot: Slot, value: Option<&String>) {
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, NO_DOMAIN);
        }
        let domain = value.map_or(NO_DOMAIN, |value| self.enter(value));
        let before = std::mem::replace(&mut self.by_slot[slot], domain);
        self.leave(before);
    }

    fn enter(&mut self, value: &String) -> Domain {
        let domain = match self.domains.get(value) {
            Some(domain) => *domain,
            None => {
                let domain = self.free.pop().unwrap_or_else(|| {
                    self.sizes.push(0);
                    (self.sizes.len() - 1) as Domain
                });
                self.domains.insert(value.clone(), domain);
                domain
            }
        };
        let size = &mut self.sizes[domain as usize];
        *size += 1;
        self.shared += usize::from(*size == 2);
        domain
    }

    fn leave(&mut self, domain: Domain) {
        let Some(size) = self.sizes.get_mut(domain as usize) else { return };
        *size -= 1;
        self.shared -= usize::from(*size == 1);
        if *size == 0 {
            self.domains.retain(|_, one| *one != domain);
            self.free.push(domain);
        }
    }
}

impl Topology {
    /// Indexes a key, given the labels of all nodes; a key that is indexed already stays as it is.
    pub fn add_key<'a>(&mut self, key: &str, nodes: impl Iterator<Item = (Slot, &'a Labels)>) -> KeyId {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let mut index = Key { name: Arc::from(key), ..Key::default() };
        for (slot, labels) in nodes {
            index.set(slot, labels.get(key));
        }
        let id = self.keys.len();
        self.ids.insert(Arc::clone(&index.name), id);
        self.keys.push(index);
        id
    }

    /// Forgets all keys; they must be added again.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.keys.clear();
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn key(&self, name: &str) -> Option<KeyId> {
        self.ids.get(name).copied()
    }

    /// The domain of a node; `None` if the node lacks the label.
    pub fn domain(&self, key: KeyId, slot: Slot) -> Option<Domain> {
        let domain = *self.keys.get(key)?.by_slot.get(slot)?;
        (domain != NO_DOMAIN).then_some(domain)
    }

    /// One more than the greatest domain of a key.
    pub fn domain_limit(&self, key: KeyId) -> usize {
        self.keys.get(key).map_or(0, |key| key.sizes.len())
    }

    /// Whether every domain of a key has one node only.
    pub fn is_unique(&self, key: KeyId) -> bool {
        self.keys.get(key).is_none_or(|key| key.shared == 0)
    }

    pub fn set_node(&mut self, slot: Slot, labels: &Labels) {
        for key in &mut self.keys {
            let value = labels.get(&*key.name);
            key.set(slot, value);
        }
    }

    pub fn remove_node(&mut self, slot: Slot) {
        for key in &mut self.keys {
            key.set(slot, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(zone: &str) -> Labels {
        Labels::from([("zone".to_owned(), zone.to_owned())])
    }

    #[test]
    fn domains_follow_the_nodes() {
        let mut topology = Topology::default();
        let nodes = [labels("a"), labels("b"), labels("a"), Labels::new()];
        let zone = topology.add_key("zone", nodes.iter().enumerate());
        let of = |topology: &Topology| (0..4).map(|slot| topology.domain(zone, slot)).collect::<Vec<_>>();
        assert_eq!(of(&topology), [Some(0), Some(1), Some(0), None]);
        topology.set_node(1, &labels("c"));
        assert_eq!(of(&topology), [Some(0), Some(2), Some(0), None]);
        topology.set_node(3, &labels("d"));
        assert_eq!((of(&topology)[3], topology.domain_limit(zone)), (Some(1), 3));
        assert!(!topology.is_unique(zone));
        topology.remove_node(0);
        assert_eq!(of(&topology)[0], None);
        assert!(topology.is_unique(zone));
        assert_eq!((topology.key("zone"), topology.key("rack")), (Some(zone), None));
    }
}
