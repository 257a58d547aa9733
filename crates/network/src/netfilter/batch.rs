//! Changes of the packet filter that take effect together.

use std::sync::Arc;

use super::attribute::{ACK, APPEND, CREATE, Encoder, Header, REQUEST};
use super::expression;
use super::rule::Rule;
use super::ruleset::{BaseChain, Data, Element, Name, Set, SetData, SetType, TableId};
use super::value;

/// The subsystem of nf_tables in message types.
pub(super) const SUBSYSTEM: u16 = 10 << 8;

const NEW_TABLE: u16 = SUBSYSTEM;
const DELETE_TABLE: u16 = SUBSYSTEM | 2;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const DELETE_CHAIN: u16 = SUBSYSTEM | 5;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const DELETE_RULE: u16 = SUBSYSTEM | 8;
const NEW_SET: u16 = SUBSYSTEM | 9;
const DELETE_SET: u16 = SUBSYSTEM | 11;
const NEW_ELEMENT: u16 = SUBSYSTEM | 12;
const DELETE_ELEMENT: u16 = SUBSYSTEM | 14;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const BATCH_GENERATION: u16 = 1;

/// Flags of sets.
pub(super) const SET_INTERVAL: u32 = 0x4;
pub(super) const SET_MAP: u32 = 0x8;
pub(super) const SET_TIMEOUT: u32 = 0x10;
pub(super) const SET_DYNAMIC: u32 = 0x20;
const SET_CONCATENATION: u32 = 0x80;

/// The data type of verdict maps.
pub(super) const VERDICT_TYPE: u32 = 0xffff_ff00;

/// Flag of an element that ends a range before its key.
pub(super) const INTERVAL_END: u32 = 0x1;

/// Elements of one message: their list is one attribute, which has at most 64 KiB.
const MAX_ELEMENTS: usize = 48 << 10;

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Adds a table, unless it exists.
    AddTable(TableId),
    /// Deletes a table with everything in it.
    DeleteTable(TableId),
    /// Adds a chain, unless it exists.
    AddChain {
        table: TableId,
        chain: Name,
        base: Option<BaseChain>,
    },
    DeleteChain {
        table: TableId,
        chain: Name,
    },
    /// Deletes all rules of a chain.
    FlushChain {
        table: TableId,
        chain: Name,
    },
    /// Appends a rule to a chain.
    AddRule {
        table: TableId,
        chain: Name,
        rule: Rule,
    },
    AddSet {
        table: TableId,
        set: Name,
        set_type: SetType,
    },
    DeleteSet {
        table: TableId,
        set: Name,
    },
    /// Deletes all elements of a set.
    FlushSet {
        table: TableId,
        set: Name,
    },
    AddElements {
        table: TableId,
        set: Name,
        set_type: Arc<SetType>,
        elements: Vec<(Element, Option<Data>)>,
    },
    DeleteElements {
        table: TableId,
        set: Name,
        set_type: Arc<SetType>,
        elements: Vec<Element>,
    },
}

/// Changes in the order in which they are written; an empty one is no transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    pub changes: Vec<Change>,
}

/// A batch as bytes, and which change each message belongs to.
pub(super) struct EncodedBatch {
    pub(super) bytes: Vec<u8>,
    /// The index of the change of every message, from the sequence number of the first one on.
    pub(super) changes: Vec<usize>,
    pub(super) first_sequence: u32,
}

impl EncodedBatch {
    /// The sequence number of the last message, which the kernel acknowledges.
    pub(super) fn last_sequence(&self) -> u32 {
        self.first_sequence + self.changes.len().saturating_sub(1) as u32
    }

    /// The index of the change that a message belongs to.
    pub(super) fn change_of(&self, sequence: u32) -> Option<usize> {
        let at = sequence.checked_sub(self.first_sequence)?;
        self.changes.get(at as usize).copied()
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Adds a set with its elements.
    pub fn add_set(&mut self, table: &TableId, name: &Name, set: &Set) {
        let (table, name) = (table.clone(), name.clone());
        self.push(Change::AddSet { table: table.clone(), set: name.clone(), set_type: set.set_type.clone() });
        let elements = set.elements.iter().map(|(key, data)| (key.clone(), data.clone())).collect();
        self.add_elements(&table, &name, &Arc::new(set.set_type.clone()), elements);
    }

    pub fn add_elements(
        &mut self,
        table: &TableId,
        set: &Name,
        set_type: &Arc<SetType>,
        elements: Vec<(Element, Option<Data>)>,
    ) {
        if !elements.is_empty() {
            let (table, set, set_type) = (table.clone(), set.clone(), set_type.clone());
            self.push(Change::AddElements { table, set, set_type, elements });
        }
    }

    pub fn delete_elements(
        &mut self,
        table: &TableId,
        set: &Name,
        set_type: &Arc<SetType>,
        elements: Vec<Element>,
    ) {
        if !elements.is_empty() {
            let (table, set, set_type) = (table.clone(), set.clone(), set_type.clone());
            self.push(Change::DeleteElements { table, set, set_type, elements });
        }
    }

    /// The batch as messages. The kernel refuses it if the generation of the ruleset is another than the one here.
    pub(super) fn encode(&self, sequence: u32, generation: Option<u32>) -> EncodedBatch {
        let mut writer =
            Writer { out: Encoder::default(), sequence, change: 0, changes: Vec::new(), last: 0 };
        let control = |kind| Header { kind, flags: REQUEST, family: 0, resource: SUBSYSTEM >> 8 };
        writer.out.message(control(BATCH_BEGIN), sequence, |out| {
            if let Some(generation) = generation {
                out.u32(BATCH_GENERATION, generation);
            }
        });
        for (index, change) in self.changes.iter().enumerate() {
            writer.change = index;
            writer.write(change);
        }
        let last = writer.last;
        let Writer { mut out, changes, sequence: end, .. } = writer;
        out.add_flags(last, ACK);
        out.message(control(BATCH_END), end + 1, |_| ());
        EncodedBatch { bytes: out.into_bytes(), changes, first_sequence: sequence + 1 }
    }
}

struct Writer {
    out: Encoder,
    sequence: u32,
    change: usize,
    changes: Vec<usize>,
    /// Where the last message starts.
    last: usize,
}

impl Writer {
    fn message(&mut self, kind: u16, flags: u16, table: &TableId, body: impl FnOnce(&mut Encoder)) {
        self.sequence += 1;
        self.changes.push(self.change);
        self.last = self.out.len();
        let header = Header { kind, flags: REQUEST | flags, family: table.family.number(), resource: 0 };
        self.out.message(header, self.sequence, |out| {
            // the first attribute of every message is the name of its table
            out.text(1, &table.name);
            body(out);
        });
    }

    fn write(&mut self, change: &Change) {
        match change {
            Change::AddTable(table) => self.message(NEW_TABLE, CREATE, table, |_| ()),
            Change::DeleteTable(table) => self.message(DELETE_TABLE, 0, table, |_| ()),
            Change::AddChain { table, chain, base } => self.message(NEW_CHAIN, CREATE, table, |out| {
                out.text(3, chain);
                if let Some(base) = base {
                    out.nested(4, |out| {
                        out.u32(1, base.hook.number());
                        out.u32(2, base.priority.0 as u32);
                    });
                    out.u32(5, u32::from(!base.is_drop_policy));
                    out.text(7, base.chain_type.name());
                }
            }),
            Change::DeleteChain { table, chain } => {
                self.message(DELETE_CHAIN, 0, table, |out| out.text(3, chain));
            }
            Change::FlushChain { table, chain } => {
                self.message(DELETE_RULE, 0, table, |out| out.text(2, chain));
            }
            Change::AddRule { table, chain, rule } => {
                self.message(NEW_RULE, CREATE | APPEND, table, |out| {
                    out.text(2, chain);
                    out.nested(4, |out| out.raw(&rule.expressions));
                    out.bytes(7, &rule.user_data());
                });
            }
            Change::AddSet { table, set, set_type } => self.add_set(table, set, set_type),
            Change::DeleteSet { table, set } => {
                self.message(DELETE_SET, 0, table, |out| out.text(2, set));
            }
            Change::FlushSet { table, set } => {
                self.message(DELETE_ELEMENT, 0, table, |out| out.text(2, set));
            }
            Change::AddElements { table, set, set_type, elements } => {
                let elements = elements.iter().map(|(key, data)| (key, data.as_ref()));
                self.elements(NEW_ELEMENT, CREATE, (table, set, set_type), elements);
            }
            Change::DeleteElements { table, set, set_type, elements } => {
                let elements = elements.iter().map(|key| (key, None));
                self.elements(DELETE_ELEMENT, 0, (table, set, set_type), elements);
            }
        }
    }

    fn add_set(&mut self, table: &TableId, set: &Name, set_type: &SetType) {
        let id = self.sequence + 1;
        self.message(NEW_SET, CREATE, table, |out| {
            out.text(2, set);
            out.u32(3, flags_of(set_type));
            out.u32(4, value::display_type_of(&set_type.key));
            out.u32(5, value::length_of(&set_type.key) as u32);
            match &set_type.data {
                Some(SetData::Verdict) => out.u32(6, VERDICT_TYPE),
                Some(SetData::Fields(fields)) => {
                    out.u32(6, value::display_type_of(fields));
                    out.u32(7, value::length_of(fields) as u32);
                }
                None => (),
            }
            out.nested(9, |out| {
                if let Some(dynamic) = set_type.dynamic {
                    out.u32(1, dynamic.max_elements);
                }
                if set_type.has_range_elements() {
                    out.nested(2, |out| {
                        for field in set_type.key.iter() {
                            out.nested(1, |out| out.u32(1, field.length() as u32));
                        }
                    });
                }
            });
            out.u32(10, id);
            if let Some(dynamic) = set_type.dynamic {
                out.u64(11, dynamic.timeout.as_millis().try_into().unwrap_or(u64::MAX));
            }
        });
    }

    fn elements<'a>(
        &mut self,
        kind: u16,
        flags: u16,
        (table, set, set_type): (&TableId, &Name, &SetType),
        elements: impl Iterator<Item = (&'a Element, Option<&'a Data>)>,
    ) {
        let mut elements = elements.peekable();
        while elements.peek().is_some() {
            self.message(kind, flags, table, |out| {
                out.text(2, set);
                out.nested(3, |out| {
                    let start = out.len();
                    while out.len() - start < MAX_ELEMENTS
                        && let Some((key, data)) = elements.next()
                    {
                        write_element(key, data, set_type, out);
                    }
                });
            });
        }
    }
}

fn write_element(key: &Element, data: Option<&Data>, set_type: &SetType, out: &mut Encoder) {
    let is_range = set_type.has_range_elements();
    out.nested(1, |out| {
        expression::value(out, 1, key.from.as_bytes());
        match data {
            Some(Data::Verdict(verdict)) => expression::verdict(out, 2, verdict),
            Some(Data::Value(value)) => expression::value(out, 2, value.as_bytes()),
            None => (),
        }
        if is_range {
            let to = key.to.as_ref().unwrap_or(&key.from);
            expression::value(out, 10, to.as_bytes());
        }
    });
    if set_type.is_interval && !is_range {
        // the key of the end is the first value after the range; a range to the last value has no end
        if let Some(end) = key.to.as_ref().unwrap_or(&key.from).successor() {
            out.nested(1, |out| {
                expression::value(out, 1, end.as_bytes());
                out.u32(3, INTERVAL_END);
            });
        }
    }
}

fn flags_of(set_type: &SetType) -> u32 {
    let mut flags = 0;
    if set_type.data.is_some() {
        flags |= SET_MAP;
    }
    if set_type.is_interval {
        flags |= SET_INTERVAL;
    }
    if set_type.has_range_elements() {
        flags |= SET_CONCATENATION;
    }
    if set_type.dynamic.is_some() {
        flags |= SET_DYNAMIC | SET_TIMEOUT;
    }
    flags
}
