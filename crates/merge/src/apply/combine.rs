//! The merge of a configuration into the live object.
//!
//! Maps and structures merge and values of the configuration win; an explicit `null` keeps the contents of a map or
//! list. Items of lists are matched by their keys. The items of the configuration keep its order, the others keep the
//! live order, and each item stays near its neighbours.

use super::parts::Parts;
use crate::managed::{AmbiguousItems, Element, Steps};
use schema::table::{ListShape, Shape, Text, Type};
use schema::{Map, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Merges the configuration into the live object.
pub(super) fn combine(ty: &Type, live: Value, config: Value) -> Result<Value, AmbiguousItems> {
    members(Parts::Fields(ty), live, config)
}

fn value(shape: Option<&Shape>, live: Value, config: Value) -> Result<Value, AmbiguousItems> {
    match Parts::of(shape) {
        Parts::None => Ok(config),
        Parts::Items(list) => match (live, config) {
            (Value::List(live), Value::List(config)) => items(list, live, config).map(Value::List),
            (Value::List(live), Value::Null) if !live.is_empty() => Ok(Value::List(live)),
            (_, config) => Ok(config),
        },
        parts => members(parts, live, config),
    }
}

fn members(parts: Parts<'_>, live: Value, config: Value) -> Result<Value, AmbiguousItems> {
    match (live, config) {
        (Value::Map(live), Value::Map(config)) => join(parts, live, config),
        (Value::Map(live), Value::Null) if !live.is_empty() => Ok(Value::Map(live)),
        (_, config) => Ok(config),
    }
}

fn join(parts: Parts<'_>, live: Map, config: Map) -> Result<Value, AmbiguousItems> {
    let mut joined: Vec<(Text, Value)> = Vec::with_capacity(live.len() + config.len());
    let mut live = live.into_iter().peekable();
    for (name, wanted) in config {
        while let Some(entry) = live.next_if(|(it, _)| it.cmp(&name) == Ordering::Less) {
            joined.push(entry);
        }
        match live.next_if(|(it, _)| *it == name) {
            Some((name, held)) => {
                let both = value(parts.member(&name), held, wanted)?;
                joined.push((name, both));
            }
            None => joined.push((name, wanted)),
        }
    }
    joined.extend(live);
    Ok(Value::Map(Map::from_unsorted(joined).0))
}

/// A list whose items are looked up by path element and taken out once.
struct Row<'s> {
    items: Vec<Option<Value>>,
    places: BTreeMap<&'s Element, usize>,
}

/// The path elements of the items; a duplicate is an error.
fn steps(keys: &Steps<'_>, items: &[Value]) -> Result<Vec<Element>, AmbiguousItems> {
    let mut steps = Vec::with_capacity(items.len());
    let mut met = BTreeSet::new();
    for item in items {
        steps.push(keys.step(item)?);
    }
    match steps.iter().find(|step| !met.insert(*step)) {
        Some(twice) => Err(AmbiguousItems::duplicate(twice)),
        None => Ok(steps),
    }
}

impl<'s> Row<'s> {
    fn of(steps: &'s [Element], items: Vec<Value>) -> Self {
        let places = steps.iter().enumerate().map(|(at, step)| (step, at)).collect();
        Row { items: items.into_iter().map(Some).collect(), places }
    }

    fn has(&self, step: &Element) -> bool {
        self.places.contains_key(step)
    }

    fn take(&mut self, step: &Element) -> Option<Value> {
        self.places.get(step).and_then(|at| self.items[*at].take())
    }
}

fn items(list: &ListShape, live: Vec<Value>, config: Vec<Value>) -> Result<Vec<Value>, AmbiguousItems> {
    let keys = Steps::of(list);
    let (live_steps, config_steps) = (steps(&keys, &live)?, steps(&keys, &config)?);
    // a repeated apply mostly has the same items in the same order
    if live_steps == config_steps {
        let both = live.into_iter().zip(config);
        return both.map(|(held, wanted)| value(Some(&list.item), held, wanted)).collect();
    }
    let mut out = Vec::with_capacity(live.len() + config.len());
    let (mut live, mut config) = (Row::of(&live_steps, live), Row::of(&config_steps, config));
    let both: Vec<&Element> = config_steps.iter().filter(|step| live.has(step)).collect();
    let mut shared = both.into_iter();
    // the next item of the configuration that the live list has too
    let mut next_shared = shared.next();
    let (mut live_at, mut config_at) = (0, 0);
    loop {
        match (live_steps.get(live_at), config_steps.get(config_at)) {
            (None, None) => return Ok(out),
            // only live: it stays where it is
            (Some(held), _) if !config.has(held) => {
                out.extend(live.take(held));
                live_at += 1;
            }
            // of both, and in its turn or already done
            (Some(held), Some(wanted)) if held != wanted && next_shared.is_some_and(|it| it != held) => {
                live_at += 1;
            }
            (Some(_), None) => live_at += 1,
            (held, Some(wanted)) => {
                if held == Some(wanted) {
                    live_at += 1;
                }
                config_at += 1;
                if next_shared == Some(wanted) {
                    next_shared = shared.next();
                }
                let item = match (live.take(wanted), config.take(wanted)) {
                    (Some(held), Some(wanted)) => Some(value(Some(&list.item), held, wanted)?),
                    (held, wanted) => wanted.or(held),
                };
                out.extend(item);
            }
        }
    }
}
