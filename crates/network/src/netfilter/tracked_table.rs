//! A table that knows what has changed since its last transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, Change};
use super::difference::{Difference, Transition};
use super::ruleset::{Chain, Data, Element, Name, Set, SetType, Table, TableId};

/// The table is there or not; every change of it keeps what was there before.
pub struct TrackedTable {
    id: TableId,
    table: Option<Table>,
    was_present: bool,
    chains: BTreeMap<Name, Option<Chain>>,
    sets: BTreeMap<Name, Option<SetType>>,
    elements: BTreeMap<(Name, Element), Option<Option<Data>>>,
}

impl TrackedTable {
    /// An absent table.
    pub fn new(id: TableId) -> Self {
        Self {
            id,
            table: None,
            was_present: false,
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            elements: BTreeMap::new(),
        }
    }

    pub fn id(&self) -> &TableId {
        &self.id
    }

    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// Removes the table with everything in it.
    pub fn remove(&mut self) {
        let Some(table) = &self.table else { return };
        let chains: Vec<Name> = table.chains.keys().cloned().collect();
        let sets: Vec<Name> = table.sets.keys().cloned().collect();
        chains.iter().for_each(|chain| self.set_chain(chain, None));
        sets.iter().for_each(|set| self.remove_set(set));
        self.table = None;
    }

    /// Sets or removes a chain.
    pub fn set_chain(&mut self, name: &Name, chain: Option<Chain>) {
        let table = self.table.get_or_insert_default();
        let old = match chain {
            Some(chain) => table.chains.insert(name.clone(), chain),
            None => table.chains.remove(name),
        };
        self.chains.entry(name.clone()).or_insert(old);
    }

    /// Adds a set without elements, unless it is there.
    pub fn add_set(&mut self, name: &Name, set_type: SetType) {
        let table = self.table.get_or_insert_default();
        if !table.sets.contains_key(name) {
            table.sets.insert(name.clone(), Set::new(set_type));
            self.sets.entry(name.clone()).or_insert(None);
        }
    }

    pub fn remove_set(&mut self, name: &Name) {
        let Some(set) = self.table.as_mut().and_then(|table| table.sets.remove(name)) else { return };
        for (element, data) in set.elements {
            self.elements.entry((name.clone(), element)).or_insert(Some(data));
        }
        self.sets.entry(name.clone()).or_insert(Some(set.set_type));
    }

    /// Sets or removes an element of a set that is there.
    pub fn set_element(&mut self, set: &Name, element: Element, data: Option<Option<Data>>) {
        let Some(set_entry) = self.table.as_mut().and_then(|table| table.sets.get_mut(set)) else { return };
        let old = match data {
            Some(data) => set_entry.elements.insert(element.clone(), data),
            None => set_entry.elements.remove(&element),
        };
        self.elements.entry((set.clone(), element)).or_insert(old);
    }

    /// Appends the changes since the last call.
    pub fn take_changes(&mut self, batch: &mut Batch) {
        let (chains, sets) = (std::mem::take(&mut self.chains), std::mem::take(&mut self.sets));
        let elements = std::mem::take(&mut self.elements);
        let was_present = std::mem::replace(&mut self.was_present, self.table.is_some());
        let Some(table) = &self.table else {
            if was_present {
                batch.push(Change::DeleteTable(self.id.clone()));
            }
            return;
        };
        if !was_present {
            batch.push(Change::AddTable(self.id.clone()));
        }
        let mut difference = Difference::default();
        difference.chains.extend(chains.into_iter().map(|(name, old)| {
            let new = table.chains.get(&name).cloned();
            (name, Transition { old, new })
        }));
        difference.sets.extend(sets.into_iter().map(|(name, old)| {
            let new = table.sets.get(&name).map(|set| set.set_type.clone());
            (name, Transition { old, new })
        }));
        difference.elements.extend(elements.into_iter().map(|((set, element), old)| {
            let new = table.sets.get(&set).and_then(|set| set.elements.get(&element).cloned());
            ((set, element), Transition { old, new })
        }));
        let set = |name: &Name| {
            let set = table.sets.get(name)?;
            Some((name.clone(), Arc::new(set.set_type.clone())))
        };
        difference.write(&self.id, set, batch);
    }
}
