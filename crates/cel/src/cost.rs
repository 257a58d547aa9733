//! Runtime cost and its limits.
//!
//! The unit is about the work of reading one value. Costs depend on the values and not on the machine, so that the
//! same rule fails on the same object everywhere.

use crate::fault::{Fault, Outcome};
use crate::value::{CelValue, List};

/// The limit of one evaluation.
pub const PER_CALL: u64 = 1_000_000;
/// The limit of all evaluations for one object.
pub const PER_OBJECT: u64 = 10_000_000;
/// The limit of a rule's estimate.
pub const PER_EXPRESSION: u64 = 10_000_000;
/// The limit of the estimates of all rules of a schema.
pub const PER_SCHEMA: u64 = 100_000_000;

pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
/// The cost of reading one character.
pub(crate) const PER_CHARACTER: f64 = 0.1;
/// The cost of one character of a pattern.
pub(crate) const PER_PATTERN_CHARACTER: f64 = 0.25;

/// The remaining budget.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    spent: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Budget {
        Budget { limit, spent: 0 }
    }

    pub fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Outcome<()> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit { Err(Fault::OverBudget) } else { Ok(()) }
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(PER_CALL)
    }
}

/// The cost model of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charge {
    One,
    /// Every part of the first argument.
    Traverse,
    /// The characters of the first argument, so many times.
    Characters(u8),
    /// The characters of the result.
    Result,
    /// Text and pattern.
    Pattern,
    /// The size of the second argument.
    Second,
    /// The characters of the smaller one.
    Smaller,
    /// The characters of both.
    Both,
    /// Looking for the second argument everywhere in the first.
    Search,
}

/// Whether both arguments are read, until one ends.
pub fn compares(overload: &str) -> bool {
    matches!(
        overload,
        "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals"
    )
}

impl Charge {
    pub fn of(function: &str, overload: Option<&str>) -> Charge {
        match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return Charge::Traverse,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => return Charge::Characters(1),
            "replace" | "split" => return Charge::Characters(2),
            "join" => return Charge::Result,
            "find" | "findAll" => return Charge::Pattern,
            _ => {}
        }
        match overload.unwrap_or_default() {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" => {
                Charge::Characters(1)
            }
            "in_list" => Charge::Second,
            overload if compares(overload) => Charge::Smaller,
            "add_string" | "add_bytes" => Charge::Both,
            "matches_string" => Charge::Pattern,
            "contains_string" => Charge::Search,
            _ => Charge::One,
        }
    }

    /// The cost for these arguments, without that of the result.
    pub fn cost(self, args: &[Outcome<CelValue<'_>>]) -> u64 {
        let size = |nth: usize| match args.get(nth) {
            Some(Ok(value)) => value.size().unwrap_or(1) as u64,
            _ => 1,
        };
        let scaled = |size: u64, factor: f64| (size as f64 * factor).ceil() as u64;
        match self {
            Charge::One => 1,
            Charge::Traverse => match args.first() {
                Some(Ok(value)) => traversal(value),
                _ => 1,
            },
            Charge::Characters(times) => scaled(size(0), f64::from(times) * PER_CHARACTER),
            Charge::Result => 0,
            Charge::Pattern => {
                let text = ((1.0 + size(0) as f64) * PER_CHARACTER).ceil() as u64;
                text * scaled(size(1), PER_PATTERN_CHARACTER)
            }
            Charge::Second => size(1),
            Charge::Smaller => scaled(size(0).min(size(1)), PER_CHARACTER),
            Charge::Both => scaled(size(0) + size(1), PER_CHARACTER),
            Charge::Search => scaled(size(0), PER_CHARACTER) * scaled(size(1), PER_CHARACTER),
        }
    }

    /// The cost of the result.
    pub fn of_result(self, result: &Outcome<CelValue<'_>>) -> u64 {
        match (self, result) {
            (Charge::Result, Ok(value)) => {
                (value.size().unwrap_or(1) as f64 * 2.0 * PER_CHARACTER).ceil() as u64
            }
            (Charge::Result, Err(_)) => 1,
            _ => 0,
        }
    }
}

/// The cost of traversing a value.
fn traversal(value: &CelValue<'_>) -> u64 {
    let text = |bytes: usize| (bytes as f64 * PER_CHARACTER) as u64;
    let items = |list: &List<'_>| list.iter().map(|it| it.map_or(1, |it| traversal(&it))).sum();
    match value {
        CelValue::String(it) => text(it.len()),
        CelValue::Bytes(it) => text(it.len()),
        CelValue::List(list) => items(list),
        CelValue::Map(map) => {
            let entry = |key: &CelValue<'_>| {
                let value = map.find(key).ok().flatten();
                traversal(key) + value.map_or(1, |it| traversal(&it))
            };
            map.keys().iter().map(entry).sum()
        }
        _ => 1,
    }
}
