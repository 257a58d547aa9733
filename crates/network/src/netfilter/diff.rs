//! The changes that make one ruleset another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, Change};
use super::ruleset::{Chain, Name, Ruleset, Set, Table, TableId};

/// The changes from `current` to `desired`. Tables that are only in `current` are deleted.
///
/// A chain whose rules differ is emptied and written again. A table in which a set or a base chain has another type is
/// replaced as a whole, since rules refer to them.
pub fn diff(current: &Ruleset, desired: &Ruleset) -> Batch {
    let mut batch = Batch::default();
    for table in current.keys().filter(|table| !desired.contains_key(table)) {
        batch.push(Change::DeleteTable(table.clone()));
    }
    for (id, table) in desired {
        match current.get(id) {
            Some(present) if has_same_types(present, table) => diff_table(id, present, table, &mut batch),
            Some(_) => {
                batch.push(Change::DeleteTable(id.clone()));
                add_table(id, table, &mut batch);
            }
            None => add_table(id, table, &mut batch),
        }
    }
    batch
}

/// Whether the sets and chains of both tables have the same types.
fn has_same_types(current: &Table, desired: &Table) -> bool {
    let chains = current.chains.iter().filter_map(|(name, chain)| Some((chain, desired.chains.get(name)?)));
    let sets = current.sets.iter().filter_map(|(name, set)| Some((set, desired.sets.get(name)?)));
    chains.into_iter().all(|(one, other)| one.base == other.base)
        && sets.into_iter().all(|(one, other)| one.set_type == other.set_type)
}

fn add_table(id: &TableId, table: &Table, batch: &mut Batch) {
    batch.push(Change::AddTable(id.clone()));
    diff_table(id, &Table::default(), table, batch);
}

/// References come before what they refer to when they are deleted, and after it when they are added.
fn diff_table(id: &TableId, current: &Table, desired: &Table, batch: &mut Batch) {
    let is_changed = |name: &Name, chain: &Chain| {
        desired.chains.get(name).is_none_or(|desired| desired.rules != chain.rules)
    };
    for (name, chain) in &current.chains {
        if !chain.rules.is_empty() && is_changed(name, chain) {
            batch.push(Change::FlushChain { table: id.clone(), chain: name.clone() });
        }
    }
    let types: BTreeMap<&Name, Arc<_>> =
        desired.sets.iter().map(|(name, set)| (name, Arc::new(set.set_type.clone()))).collect();
    for (name, set) in &current.sets {
        match desired.sets.get(name) {
            None => batch.push(Change::DeleteSet { table: id.clone(), set: name.clone() }),
            Some(desired) => {
                let stale = stale_elements(set, desired);
                batch.delete_elements(id, name, &types[name], stale);
            }
        }
    }
    for name in current.chains.keys().filter(|name| !desired.chains.contains_key(*name)) {
        batch.push(Change::DeleteChain { table: id.clone(), chain: name.clone() });
    }
    for (name, chain) in desired.chains.iter().filter(|(name, _)| !current.chains.contains_key(*name)) {
        batch.push(Change::AddChain { table: id.clone(), chain: name.clone(), base: chain.base });
    }
    for (name, set) in desired.sets.iter().filter(|(name, _)| !current.sets.contains_key(*name)) {
        let set_type = set.set_type.clone();
        batch.push(Change::AddSet { table: id.clone(), set: name.clone(), set_type });
    }
    for (name, chain) in &desired.chains {
        if current.chains.get(name).is_some_and(|current| current.rules == chain.rules) {
            continue;
        }
        for rule in &chain.rules {
            let (table, chain, rule) = (id.clone(), name.clone(), rule.clone());
            batch.push(Change::AddRule { table, chain, rule });
        }
    }
    for (name, set) in &desired.sets {
        let elements = new_elements(current.sets.get(name), set);
        batch.add_elements(id, name, &types[name], elements);
    }
}

/// Elements that are absent in the desired set or have other data there.
fn stale_elements(current: &Set, desired: &Set) -> Vec<super::Element> {
    if current.set_type.dynamic.is_some() {
        return Vec::new();
    }
    let stale = current.elements.iter().filter(|(key, data)| desired.elements.get(*key) != Some(*data));
    stale.map(|(key, _)| key.clone()).collect()
}

fn new_elements(current: Option<&Set>, desired: &Set) -> Vec<(super::Element, Option<super::Data>)> {
    let is_new = |key, data| current.is_none_or(|current| current.elements.get(key) != Some(data));
    let new = desired.elements.iter().filter(|(key, data)| is_new(*key, *data));
    new.map(|(key, data)| (key.clone(), data.clone())).collect()
}
