//! The table of one family: sets that policies share, with the pods that are in them.

use std::collections::{BTreeSet, HashMap};

use super::membership::{MemberChange, Membership, SelectionId};
use super::objects::{Direction, PodInfo};
use super::rules::{FixedSet, PodSet, base_chains, pod_map, pod_map_type, table_id};
use crate::netfilter::{Element, Family, Name, TrackedTable};

/// See the module.
pub struct FamilyTable {
    pub family: Family,
    pub table: TrackedTable,
    sets: HashMap<Name, SharedSet>,
    by_selection: HashMap<SelectionId, BTreeSet<Name>>,
}

/// A set, and how many policies use it.
struct SharedSet {
    users: usize,
    pods: Option<SelectedPods>,
}

/// The elements of pods. Pods may have an address in common, while one of them ends.
struct SelectedPods {
    selection: SelectionId,
    definition: PodSet,
    counts: HashMap<Element, usize>,
}

impl FamilyTable {
    pub fn new(family: Family) -> Self {
        let table = TrackedTable::new(table_id(family));
        Self { family, table, sets: HashMap::new(), by_selection: HashMap::new() }
    }

    /// Adds the chains that hooks call, unless they are there.
    pub fn add_base(&mut self) {
        let maps = [Direction::Ingress, Direction::Egress].map(pod_map);
        if self.table.table().is_some_and(|table| maps.iter().all(|map| table.sets.contains_key(map))) {
            return;
        }
        for map in &maps {
            self.table.add_set(map, pod_map_type(self.family));
        }
        for (name, chain) in base_chains(self.family) {
            self.table.set_chain(&name, Some(chain));
        }
    }

    /// One more user of a set, and whether it is the first.
    fn count_user(&mut self, name: &Name) -> bool {
        let set = self.sets.entry(name.clone()).or_insert(SharedSet { users: 0, pods: None });
        set.users += 1;
        set.users == 1
    }

    /// One more user of a set that follows from policies alone. Returns the number of new elements.
    pub fn acquire_fixed(&mut self, name: &Name, set: FixedSet) -> u64 {
        if !self.count_user(name) {
            return 0;
        }
        self.table.add_set(name, set.set_type);
        let count = set.elements.len() as u64;
        set.elements.into_iter().for_each(|element| self.table.set_element(name, element, Some(None)));
        count
    }

    /// One more user of a set of pods. Returns the number of new elements.
    pub fn acquire_pods(&mut self, name: &Name, definition: PodSet, membership: &mut Membership) -> u64 {
        if !self.count_user(name) {
            return 0;
        }
        self.table.add_set(name, definition.set_type(self.family));
        let selection = membership.acquire(&definition.selection);
        self.by_selection.entry(selection).or_default().insert(name.clone());
        let mut pods = SelectedPods { selection, definition, counts: HashMap::new() };
        for (_, pod) in membership.members(selection) {
            pods.change(name, None, Some(pod), self.family, &mut self.table);
        }
        let count = pods.counts.len() as u64;
        self.sets.insert(name.clone(), SharedSet { users: 1, pods: Some(pods) });
        count
    }

    /// One user of a set fewer.
    pub fn release(&mut self, name: &Name, membership: &mut Membership) {
        let Some(set) = self.sets.get_mut(name) else { return };
        set.users -= 1;
        if set.users > 0 {
            return;
        }
        self.table.remove_set(name);
        let Some(pods) = self.sets.remove(name).and_then(|set| set.pods) else { return };
        if let Some(names) = self.by_selection.get_mut(&pods.selection) {
            names.remove(name);
            if names.is_empty() {
                self.by_selection.remove(&pods.selection);
            }
        }
        membership.release(pods.selection);
    }

    /// Follows a pod in the sets of a selection. Returns the number of these sets.
    pub fn follow(&mut self, change: &MemberChange) -> u64 {
        let Some(names) = self.by_selection.get(&change.selection) else { return 0 };
        for name in names {
            if let Some(pods) = self.sets.get_mut(name).and_then(|set| set.pods.as_mut()) {
                let (old, new) = (change.old.as_deref(), change.new.as_deref());
                pods.change(name, old, new, self.family, &mut self.table);
            }
        }
        names.len() as u64
    }
}

impl SelectedPods {
    fn change(
        &mut self,
        name: &Name,
        old: Option<&PodInfo>,
        new: Option<&PodInfo>,
        family: Family,
        table: &mut TrackedTable,
    ) {
        let elements =
            |pod: Option<&PodInfo>| pod.map(|pod| self.definition.elements(pod, family)).unwrap_or_default();
        let (old, new) = (elements(old), elements(new));
        if old == new {
            return;
        }
        for element in new {
            let count = self.counts.entry(element.clone()).or_default();
            *count += 1;
            if *count == 1 {
                table.set_element(name, element, Some(None));
            }
        }
        for element in old {
            let Some(count) = self.counts.get_mut(&element) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&element);
                table.set_element(name, element, None);
            }
        }
    }
}
