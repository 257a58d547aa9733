//! The model of a packet filter: tables of chains with rules, and of sets with elements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::rule::Rule;
use super::value::{FieldType, Value};

pub use super::statement::{Family, Name, Verdict};

/// Tables by family and name.
pub type Ruleset = BTreeMap<TableId, Table>;

/// A table's family and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId {
    pub family: Family,
    pub name: Name,
}

impl TableId {
    pub fn new(family: Family, name: &str) -> Self {
        Self { family, name: name.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub chains: BTreeMap<Name, Chain>,
    pub sets: BTreeMap<Name, Set>,
}

/// A list of rules; a base chain is called by a hook, others by rules and verdict maps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chain {
    pub base: Option<BaseChain>,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChain {
    pub chain_type: ChainType,
    pub hook: Hook,
    pub priority: Priority,
    /// Packets that no rule decides are dropped.
    pub is_drop_policy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainType {
    Filter,
    Nat,
    Route,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

/// The place of a base chain among those of its hook: lower ones are called first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority(pub i32);

impl Priority {
    pub const RAW: Self = Self(-300);
    pub const MANGLE: Self = Self(-150);
    pub const DESTINATION_NAT: Self = Self(-100);
    pub const FILTER: Self = Self(0);
    pub const SOURCE_NAT: Self = Self(100);
}

impl ChainType {
    pub(super) const ALL: [Self; 3] = [Self::Filter, Self::Nat, Self::Route];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
        }
    }
}

impl Hook {
    pub(super) const ALL: [Self; 5] =
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting];

    pub(super) fn number(self) -> u32 {
        self as u32
    }
}

impl BaseChain {
    pub fn filter(hook: Hook) -> Self {
        Self { chain_type: ChainType::Filter, hook, priority: Priority::FILTER, is_drop_policy: false }
    }

    /// A chain of address translation, at the usual priority of its hook.
    pub fn nat(hook: Hook) -> Self {
        let priority = match hook {
            Hook::Prerouting | Hook::Output => Priority::DESTINATION_NAT,
            Hook::Input | Hook::Forward | Hook::Postrouting => Priority::SOURCE_NAT,
        };
        Self { chain_type: ChainType::Nat, hook, priority, is_drop_policy: false }
    }

    pub fn with_priority(self, priority: i32) -> Self {
        Self { priority: Priority(priority), ..self }
    }
}

impl Chain {
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { base: None, rules: rules.into_iter().collect() }
    }

    pub fn base(base: BaseChain, rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { base: Some(base), rules: rules.into_iter().collect() }
    }
}

/// A set, a map or a verdict map.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    pub set_type: SetType,
    pub elements: BTreeMap<Element, Option<Data>>,
}

/// The types of a set's elements. It cannot be changed once a set exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetType {
    pub key: Arc<[FieldType]>,
    pub data: Option<SetData>,
    /// Elements are ranges, which must not overlap.
    pub is_interval: bool,
    /// Elements are added by rules, and expire after this time. They are no part of the model.
    pub dynamic: Option<DynamicElements>,
}

/// Bounds of a set whose elements are added by rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DynamicElements {
    pub timeout: Duration,
    pub max_elements: u32,
}

/// The type of a map's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetData {
    Verdict,
    Fields(Arc<[FieldType]>),
}

/// The key of an element: a value, or an inclusive range of values (of each field, in a concatenation).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    pub from: Value,
    pub to: Option<Value>,
}

/// The data of a map's element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Data {
    Verdict(Verdict),
    Value(Value),
}

impl SetType {
    pub fn set(key: &[FieldType]) -> Self {
        Self { key: key.into(), data: None, is_interval: false, dynamic: None }
    }

    pub fn map(key: &[FieldType], data: &[FieldType]) -> Self {
        Self { data: Some(SetData::Fields(data.into())), ..Self::set(key) }
    }

    pub fn verdict_map(key: &[FieldType]) -> Self {
        Self { data: Some(SetData::Verdict), ..Self::set(key) }
    }

    pub fn intervals(self) -> Self {
        Self { is_interval: true, ..self }
    }

    /// A set whose elements are added by rules.
    pub fn dynamic(key: &[FieldType], timeout: Duration, max_elements: u32) -> Self {
        Self { dynamic: Some(DynamicElements { timeout, max_elements }), ..Self::set(key) }
    }

    /// Ranges of concatenations have both ends in one element; others are a start and an end.
    pub(super) fn has_range_elements(&self) -> bool {
        self.is_interval && self.key.len() > 1
    }
}

impl Set {
    pub fn new(set_type: SetType) -> Self {
        Self { set_type, elements: BTreeMap::new() }
    }
}

impl Element {
    pub fn value(value: Value) -> Self {
        Self { from: value, to: None }
    }

    pub fn range(from: Value, to: Value) -> Self {
        Self { from, to: Some(to) }
    }
}
