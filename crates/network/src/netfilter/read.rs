//! Reads tables back from the kernel, as a program finds them when it starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::attribute::{Attributes, Header};
use super::batch::{INTERVAL_END, SET_DYNAMIC, SET_INTERVAL, SET_MAP, SUBSYSTEM, VERDICT_TYPE};
use super::connection::{Connection, Error, Generation};
use super::expression::{DATA_VALUE, DATA_VERDICT, VERDICT_CHAIN, VERDICT_CODE};
use super::rule::Rule;
use super::ruleset::{
    BaseChain, Chain, ChainType, Data, DynamicElements, Element, Hook, Name, Priority, Ruleset, Set, SetData,
    SetType, Table, TableId, Verdict,
};
use super::value::{self, FieldType, Value};

const GET_TABLE: u16 = SUBSYSTEM | 1;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
const GET_RULE: u16 = SUBSYSTEM | 7;
const GET_SET: u16 = SUBSYSTEM | 10;
const GET_ELEMENT: u16 = SUBSYSTEM | 13;
const GET_GENERATION: u16 = SUBSYSTEM | 16;

const MAX_ATTEMPTS: usize = 10;

impl Connection {
    pub fn generation(&mut self) -> Result<Generation, Error> {
        let header = Header { kind: GET_GENERATION, flags: 0, family: 0, resource: 0 };
        let mut generation = None;
        self.request(header, |_| (), |message| generation = message.attributes().u32(1))?;
        generation.map(Generation).ok_or(Error::NoAnswer)
    }

    /// All tables of the namespace.
    pub fn tables(&mut self) -> Result<Vec<TableId>, Error> {
        let mut tables = Vec::new();
        for family in super::Family::ALL {
            let names =
                self.dump(GET_TABLE, family.number(), |_| (), |table| table.text(1).map(Name::from))?;
            tables.extend(names.into_iter().map(|name| TableId { family, name }));
        }
        Ok(tables)
    }

    /// The tables with these names that exist, as of one generation. Elements of dynamic sets are left out.
    ///
    /// The kernel enlarges a hash table some time after elements were added to it, and a list that is read meanwhile
    /// lacks elements without any sign of it. So everything is read until it is the same twice.
    pub fn read(&mut self, ids: &[TableId]) -> Result<(Ruleset, Generation), Error> {
        let mut previous = None;
        for _ in 0..MAX_ATTEMPTS {
            let before = self.generation()?;
            let current = (self.read_once(ids)?, self.generation()?);
            if current.1 == before && previous.as_ref() == Some(&current) {
                return Ok(current);
            }
            previous = Some(current);
        }
        Err(Error::GenerationChanged)
    }

    fn read_once(&mut self, ids: &[TableId]) -> Result<Ruleset, Error> {
        let present = self.tables()?;
        let mut ruleset = Ruleset::new();
        for id in ids.iter().filter(|id| present.contains(id)) {
            match self.read_table(id) {
                Ok(table) => ruleset.insert(id.clone(), table),
                // deleted in between, which changes the generation
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error),
            };
        }
        Ok(ruleset)
    }

    fn read_table(&mut self, id: &TableId) -> Result<Table, Error> {
        let family = id.family.number();
        let in_table = |found: Attributes<'_>| found.text(1) == Some(&*id.name);
        let chains = self.dump(
            GET_CHAIN,
            family,
            |out| out.text(1, &id.name),
            |found| in_table(found).then(|| read_chain(found)).flatten(),
        )?;
        let mut chains: BTreeMap<Name, Chain> = chains.into_iter().collect();
        let rules = self.dump(
            GET_RULE,
            family,
            |out| out.text(1, &id.name),
            |found| in_table(found).then(|| read_rule(found)).flatten(),
        )?;
        for (chain, rule) in rules {
            chains.entry(chain).or_default().rules.push(rule);
        }
        let types = self.dump(
            GET_SET,
            family,
            |out| out.text(1, &id.name),
            |found| in_table(found).then(|| read_set(found)).flatten(),
        )?;
        let mut sets = BTreeMap::new();
        for (name, set_type) in types {
            let elements = match set_type.dynamic {
                Some(_) => BTreeMap::new(),
                None => self.read_elements(id, &name, &set_type)?,
            };
            sets.insert(name, Set { set_type, elements });
        }
        Ok(Table { chains, sets })
    }

    fn read_elements(
        &mut self,
        table: &TableId,
        set: &Name,
        set_type: &SetType,
    ) -> Result<BTreeMap<Element, Option<Data>>, Error> {
        let lists = self.dump(
            GET_ELEMENT,
            table.family.number(),
            |out| {
                out.text(1, &table.name);
                out.text(2, set);
            },
            |found| {
                let list = found.nested(3)?;
                Some(list.iter().filter_map(|(_, item)| read_element(Attributes(item))).collect::<Vec<_>>())
            },
        )?;
        let elements = lists.into_iter().flatten();
        Ok(match set_type.is_interval && !set_type.has_range_elements() {
            true => join_intervals(elements.collect()),
            false => elements.map(|element| (element.key, element.data)).collect(),
        })
    }

    /// The values in a set whose elements are added by rules.
    pub fn dynamic_elements(&mut self, table: &TableId, set: &str) -> Result<Vec<Value>, Error> {
        let set_type = SetType::set(&[]);
        let elements = self.read_elements(table, &set.into(), &set_type)?;
        Ok(elements.into_keys().map(|element| element.from).collect())
    }
}

fn read_chain(found: Attributes<'_>) -> Option<(Name, Chain)> {
    let base = found.nested(4).and_then(|hook| {
        let number = hook.u32(1)?;
        let chain_type = found.text(7)?;
        Some(BaseChain {
            chain_type: ChainType::ALL.into_iter().find(|known| known.name() == chain_type)?,
            hook: Hook::ALL.into_iter().find(|known| known.number() == number)?,
            priority: Priority(hook.u32(2)? as i32),
            is_drop_policy: found.u32(5) == Some(0),
        })
    });
    Some((found.text(3)?.into(), Chain { base, rules: Vec::new() }))
}

fn read_rule(found: Attributes<'_>) -> Option<(Name, Rule)> {
    let expressions = found.bytes(4).unwrap_or_default();
    let user_data = found.bytes(7).unwrap_or_default();
    Some((found.text(2)?.into(), Rule::read(expressions, user_data)))
}

fn read_set(found: Attributes<'_>) -> Option<(Name, SetType)> {
    let flags = found.u32(3).unwrap_or_default();
    let data = match found.u32(6) {
        Some(VERDICT_TYPE) => Some(SetData::Verdict),
        Some(number) if flags & SET_MAP != 0 => Some(SetData::Fields(read_types(number))),
        _ => None,
    };
    let dynamic = (flags & SET_DYNAMIC != 0).then(|| DynamicElements {
        timeout: Duration::from_millis(found.u64(11).unwrap_or_default()),
        max_elements: found.nested(9).and_then(|desc| desc.u32(1)).unwrap_or_default(),
    });
    let is_interval = flags & SET_INTERVAL != 0;
    let key = read_types(found.u32(4).unwrap_or_default());
    Some((found.text(2)?.into(), SetType { key, data, is_interval, dynamic }))
}

/// The fields of a concatenated type; a type that is not ours yields none, so that the set compares unequal.
fn read_types(number: u32) -> Arc<[FieldType]> {
    value::fields_of_display_type(number).unwrap_or_default().into()
}

struct ReadElement {
    key: Element,
    data: Option<Data>,
    is_end: bool,
}

fn read_element(found: Attributes<'_>) -> Option<ReadElement> {
    let value = |kind| Some(Value::from_bytes(found.nested(kind)?.bytes(DATA_VALUE)?));
    let data = found.nested(2).and_then(|data| {
        let verdict = data.nested(DATA_VERDICT).and_then(|verdict| {
            Verdict::from_code(verdict.u32(VERDICT_CODE)? as i32, verdict.text(VERDICT_CHAIN))
        });
        let value = || data.bytes(DATA_VALUE).map(|bytes| Data::Value(Value::from_bytes(bytes)));
        verdict.map(Data::Verdict).or_else(value)
    });
    let is_end = found.u32(3).unwrap_or_default() & INTERVAL_END != 0;
    let from = value(1)?;
    // a range of one value is the value
    let to = value(10).filter(|to| *to != from);
    Some(ReadElement { key: Element { from, to }, data, is_end })
}

/// Joins starts and ends to ranges.
fn join_intervals(mut elements: Vec<ReadElement>) -> BTreeMap<Element, Option<Data>> {
    // at one value, the end of the range before it comes first
    elements.sort_by(|a, b| (&a.key.from, !a.is_end).cmp(&(&b.key.from, !b.is_end)));
    let mut joined = BTreeMap::new();
    let mut elements = elements.into_iter().peekable();
    while let Some(start) = elements.next() {
        if start.is_end {
            continue;
        }
        let end = elements.next_if(|next| next.is_end);
        let last = match end {
            Some(end) => end.key.from.predecessor(),
            None => Some(start.key.from.all_ones()),
        };
        let to = last.filter(|last| *last != start.key.from);
        joined.insert(Element { from: start.key.from, to }, start.data);
    }
    joined
}
