//! Changes of single objects of a table, collected for one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, Change};
use super::ruleset::{Chain, Data, Element, Name, SetType, TableId};

/// An object before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition<T> {
    pub old: Option<T>,
    pub new: Option<T>,
}

impl<T> Default for Transition<T> {
    fn default() -> Self {
        Self { old: None, new: None }
    }
}

impl<T: PartialEq> Transition<T> {
    pub fn is_change(&self) -> bool {
        self.old != self.new
    }
}

/// The objects of a table that may differ; `S` identifies the set of an element.
#[derive(Debug, Clone)]
pub struct Difference<S> {
    pub elements: BTreeMap<(S, Element), Transition<Option<Data>>>,
    pub chains: BTreeMap<Name, Transition<Chain>>,
    pub sets: BTreeMap<Name, Transition<SetType>>,
}

impl<S> Default for Difference<S> {
    fn default() -> Self {
        Self { elements: BTreeMap::new(), chains: BTreeMap::new(), sets: BTreeMap::new() }
    }
}

impl<S: Ord + Clone> Difference<S> {
    /// Appends the changes: what others refer to is added before the references, and deleted after them. `set` is the
    /// name and type of a set, or nothing if the set is deleted with its elements.
    pub fn write(
        &self,
        table: &TableId,
        set: impl Fn(&S) -> Option<(Name, Arc<SetType>)>,
        batch: &mut Batch,
    ) {
        let chains = || self.chains.iter().filter(|(_, change)| change.is_change());
        let sets = || self.sets.iter().filter(|(_, change)| change.is_change());
        for (name, change) in chains() {
            let (table, chain) = (table.clone(), name.clone());
            match (&change.old, &change.new) {
                (None, Some(new)) => batch.push(Change::AddChain { table, chain, base: new.base }),
                _ => batch.push(Change::FlushChain { table, chain }),
            }
        }
        for (name, change) in sets() {
            if let (None, Some(set_type)) = (&change.old, &change.new) {
                let (table, set, set_type) = (table.clone(), name.clone(), set_type.clone());
                batch.push(Change::AddSet { table, set, set_type });
            }
        }
        for (name, change) in chains() {
            for rule in change.new.iter().flat_map(|chain| &chain.rules) {
                let (table, chain, rule) = (table.clone(), name.clone(), rule.clone());
                batch.push(Change::AddRule { table, chain, rule });
            }
        }
        self.write_elements(table, set, batch);
        for (name, _) in chains().filter(|(_, change)| change.new.is_none()) {
            batch.push(Change::DeleteChain { table: table.clone(), chain: name.clone() });
        }
        for (name, _) in sets().filter(|(_, change)| change.new.is_none()) {
            batch.push(Change::DeleteSet { table: table.clone(), set: name.clone() });
        }
    }

    fn write_elements(
        &self,
        table: &TableId,
        set: impl Fn(&S) -> Option<(Name, Arc<SetType>)>,
        batch: &mut Batch,
    ) {
        let mut changes = self.elements.iter().filter(|(_, change)| change.is_change()).peekable();
        while let Some(((id, _), _)) = changes.peek().copied() {
            let (mut old, mut new) = (Vec::new(), Vec::new());
            while let Some(((_, key), change)) = changes.next_if(|((other, _), _)| other == id) {
                old.extend(change.old.is_some().then(|| key.clone()));
                new.extend(change.new.clone().map(|data| (key.clone(), data)));
            }
            if let Some((name, set_type)) = set(id) {
                batch.delete_elements(table, &name, &set_type, old);
                batch.add_elements(table, &name, &set_type, new);
            }
        }
    }
}
