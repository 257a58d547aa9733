//! The nodes that a filter rejects because of their topology domains.
//!
//! A filter such as the spreading of pods decides about domains, not about nodes. When its decision about a domain
//! changes, all nodes of the domain change sides at once. The cost grows with the domains that changed, not with the
//! number of nodes.

use crate::node_set::NodeSet;
use crate::snapshot::Snapshot;
use crate::topology::{Domain, KeyId};

/// See the module. It belongs to one layout of the snapshot.
#[derive(Debug, Clone)]
pub struct DomainFilter {
    pub key: KeyId,
    members: Vec<Members>,
    is_rejected: Vec<bool>,
    rejected: NodeSet,
}

/// The positions of the nodes of a domain.
#[derive(Debug, Clone)]
enum Members {
    Few(Vec<u32>),
    /// More nodes than a set has words.
    Many(NodeSet),
}

impl DomainFilter {
    /// Rejects no domain yet. Nodes without the label are in none; `rejects_unlabeled` decides about them.
    pub fn new(key: KeyId, rejects_unlabeled: bool, snapshot: &Snapshot) -> Self {
        let (topology, order) = (snapshot.topology(), snapshot.order());
        let mut positions = vec![Vec::new(); topology.domain_limit(key)];
        let mut rejected = NodeSet::empty(order.len());
        for (position, slot) in order.iter().enumerate() {
            match topology.domain(key, *slot) {
                Some(domain) => positions[domain as usize].push(position as u32),
                None => rejected.set(position, rejects_unlabeled),
            }
        }
        let members = |positions: Vec<u32>| match positions.len() * 64 <= order.len() {
            true => Members::Few(positions),
            false => {
                let mut nodes = NodeSet::empty(order.len());
                positions.iter().for_each(|position| nodes.set(*position as usize, true));
                Members::Many(nodes)
            }
        };
        DomainFilter {
            key,
            is_rejected: vec![false; positions.len()],
            members: positions.into_iter().map(members).collect(),
            rejected,
        }
    }

    pub fn domains(&self) -> std::ops::Range<Domain> {
        0..self.members.len() as Domain
    }

    /// Rejects the nodes of a domain, or no longer.
    pub fn set(&mut self, domain: Domain, is_rejected: bool) {
        let Some(before) = self.is_rejected.get_mut(domain as usize) else { return };
        if std::mem::replace(before, is_rejected) == is_rejected {
            return;
        }
        match (self.members.get(domain as usize), is_rejected) {
            (Some(Members::Few(positions)), _) => {
                for position in positions {
                    self.rejected.set(*position as usize, is_rejected);
                }
            }
            (Some(Members::Many(nodes)), true) => self.rejected.insert_all(nodes),
            (Some(Members::Many(nodes)), false) => self.rejected.remove_all(nodes),
            (None, _) => {}
        }
    }

    pub fn rejected(&self) -> &NodeSet {
        &self.rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::from_json;
    use std::sync::Arc;

    #[test]
    fn the_nodes_of_a_domain_change_sides_together() {
        let mut snapshot = Snapshot::new();
        for nth in 0..200 {
            let rack = if nth < 2 { "a" } else { "b" };
            let labels = if nth == 199 { String::new() } else { format!(r#""rack":"{rack}""#) };
            let json = format!(r#"{{"metadata":{{"name":"n{nth}","labels":{{{labels}}}}}}}"#);
            snapshot.set_node(Arc::new(from_json(json.as_bytes()).unwrap()));
        }
        let key = snapshot.add_topology_key("rack");
        let mut filter = DomainFilter::new(key, true, &snapshot);
        let rejected = |filter: &DomainFilter| filter.rejected().iter(0..200).collect::<Vec<_>>();
        assert_eq!((filter.domains(), rejected(&filter)), (0..2, vec![199]));
        filter.set(0, true);
        assert_eq!(rejected(&filter), [0, 1, 199]);
        filter.set(1, true);
        assert_eq!(rejected(&filter).len(), 200);
        filter.set(1, false);
        filter.set(7, true);
        assert_eq!(rejected(&filter), [0, 1, 199]);
    }
}
