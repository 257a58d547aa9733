//! The evaluator.
//!
//! A missing or invalid value is a fault, which propagates until the value is not needed: `&&` and `||` continue
//! with their other side, in either order. Every step is charged; exceeding the budget ends the evaluation at once.

use crate::convert;
use crate::cost::{Budget, Charge, LIST, MAP};
use crate::expr::op;
use crate::fault::{Fault, Outcome, fail, no_such_overload};
use crate::library;
use crate::memory_budget::MemoryBudget;
use crate::operators;
use crate::plan::{Call, FieldName, FoldPlan, Node};
use crate::value::{CelValue, List, Map, OwnedMap, Text, whole};
use regex::Regex;
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) struct Evaluator<'a, 'b> {
    variables: &'b [Option<Outcome<CelValue<'a>>>],
    /// Variables of the folds around.
    locals: Vec<Outcome<CelValue<'a>>>,
    budget: &'b mut Budget,
    /// Patterns from values, most recent last: most are used again for the next item.
    patterns: Vec<(String, Regex)>,
    memory: MemoryBudget,
}

/// A pattern of this size is built for nothing, and beyond that so many bytes are one unit of cost.
const SMALL_PATTERN: usize = 128 << 10;
const PER_COST: u64 = 64;

/// The most cached patterns.
const PATTERNS: usize = 8;

/// Whether a fault can be absorbed.
fn ended<T>(outcome: Outcome<T>) -> Result<Outcome<T>, Fault> {
    match outcome {
        Err(Fault::OverBudget) => Err(Fault::OverBudget),
        other => Ok(other),
    }
}

impl<'a, 'b> Evaluator<'a, 'b> {
    pub fn new(variables: &'b [Option<Outcome<CelValue<'a>>>], budget: &'b mut Budget) -> Self {
        Evaluator { variables, locals: Vec::new(), budget, patterns: Vec::new(), memory: MemoryBudget::new() }
    }

    pub fn eval(&mut self, node: &'a Node) -> Outcome<CelValue<'a>> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Has(operand, field) => {
                let operand = self.eval(operand)?;
                has(&operand, field)
            }
            Node::And(sides) => self.logic(&sides[0], &sides[1], false),
            Node::Or(sides) => self.logic(&sides[0], &sides[1], true),
            Node::Call(call) => self.call(call),
            Node::OneOf(value, members) => match ended(self.eval(value))? {
                // an absent value equals none of them
                Err(_) => Ok(CelValue::Bool(false)),
                Ok(value) => Ok(CelValue::Bool(value.key().is_ok_and(|key| members.contains(&key)))),
            },
            Node::List(items) => {
                let made = items.iter().map(|item| self.eval(item)).collect::<Outcome<Vec<_>>>();
                let made = ended(made)?;
                self.budget.charge(LIST)?;
                made.map(CelValue::list)
            }
            Node::Map(entries) => {
                let made = ended(self.entries(entries))?;
                self.budget.charge(MAP)?;
                Ok(CelValue::Map(Map::Owned(Arc::new(OwnedMap::new(made?)?))))
            }
            Node::Fold(walk) => self.fold(walk),
            Node::Append { slot, item, free } => self.append(*slot, item, *free),
            path => {
                let value = ended(self.resolve(path))?;
                if !path.begins_with_choice() {
                    self.budget.charge(1)?;
                }
                value
            }
        }
    }

    fn entries(&mut self, entries: &'a [(Node, Node)]) -> Outcome<Vec<(CelValue<'a>, CelValue<'a>)>> {
        entries.iter().map(|(key, value)| Ok((self.eval(key)?, self.eval(value)?))).collect()
    }

    /// Follows a path; each step costs one, its beginning nothing.
    fn resolve(&mut self, node: &'a Node) -> Outcome<CelValue<'a>> {
        match node {
            Node::Variable(at) => match self.variables.get(*at) {
                Some(Some(value)) => value.clone(),
                _ => fail("no such attribute"),
            },
            Node::Local(slot) => match self.locals.get(*slot) {
                Some(value) => value.clone(),
                None => fail("no such attribute"),
            },
            Node::Select(operand, field) => {
                let operand = self.resolve(operand)?;
                let value = select(&operand, field);
                self.budget.charge(1)?;
                value
            }
            Node::Index(operand, index) => {
                let operand = self.resolve(operand)?;
                let index = ended(self.resolve(index))?;
                let value = index.and_then(|index| subscript(&operand, &index));
                self.budget.charge(1)?;
                value
            }
            Node::Conditional(parts) => match self.eval(&parts[0])? {
                CelValue::Bool(true) => self.resolve(&parts[1]),
                CelValue::Bool(false) => self.resolve(&parts[2]),
                _ => Err(no_such_overload()),
            },
            other => self.eval(other),
        }
    }

    /// `&&` and `||`: `decisive` on either side is the result, whatever the other one is.
    fn logic(&mut self, left: &'a Node, right: &'a Node, decisive: bool) -> Outcome<CelValue<'a>> {
        let left = ended(self.eval(left))?;
        if matches!(left, Ok(CelValue::Bool(truth)) if truth == decisive) {
            return left;
        }
        let right = ended(self.eval(right))?;
        match (left, right) {
            (_, Ok(CelValue::Bool(truth))) if truth == decisive => Ok(CelValue::Bool(truth)),
            (Ok(CelValue::Bool(_)), Ok(CelValue::Bool(_))) => Ok(CelValue::Bool(!decisive)),
            (Err(fault), _) | (Ok(_), Err(fault)) => Err(fault),
            _ => Err(no_such_overload()),
        }
    }

    fn call(&mut self, call: &'a Call) -> Outcome<CelValue<'a>> {
        match call.args.as_slice() {
            [arg] => {
                let arg = [ended(self.eval(arg))?];
                let cost = call.charge.cost(&arg);
                let [arg] = arg;
                if let Ok(arg) = &arg {
                    self.memory.take(call.function, &[arg])?;
                }
                let result = unary(call, arg);
                self.charge(call.charge, cost, &result)?;
                result
            }
            [left, right] if call.pattern.is_none() => {
                let args = [ended(self.eval(left))?, ended(self.eval(right))?];
                let cost = call.charge.cost(&args);
                let [left, right] = args;
                let result = match (left, right) {
                    (Ok(left), Ok(right)) => match (call.function, &right) {
                        ("matches" | "find" | "findAll", CelValue::String(pattern)) => {
                            self.searched(call.function, pattern, &[left, right.clone()])
                        }
                        _ => {
                            self.memory.take(call.function, &[&left, &right])?;
                            binary(call, left, right)
                        }
                    },
                    (Err(fault), _) | (_, Err(fault)) => Err(fault),
                };
                self.charge(call.charge, cost, &result)?;
                result
            }
            many => {
                let mut args = Vec::with_capacity(many.len());
                for (nth, arg) in many.iter().enumerate() {
                    let arg = ended(self.eval(arg))?;
                    if nth + 1 < many.len() && arg.is_err() {
                        // the remaining arguments are not evaluated, and the call costs nothing
                        return arg;
                    }
                    args.push(arg);
                }
                let cost = call.charge.cost(&args);
                let args = args.into_iter().collect::<Outcome<Vec<_>>>();
                if let Ok(args) = &args {
                    self.memory.take(call.function, &args.iter().collect::<Vec<_>>())?;
                }
                let result = args.and_then(|args| match &call.pattern {
                    Some(pattern) => match pattern.regex() {
                        Some(pattern) => library::call_compiled(call.function, pattern, &args),
                        None => Err(crate::fault::no_such_overload()),
                    },
                    None => library::call(call.function, call.overload, args),
                });
                self.charge(call.charge, cost, &result)?;
                result
            }
        }
    }

    /// A string function whose pattern is not a constant.
    fn searched(
        &mut self,
        function: &'static str,
        pattern: &str,
        args: &[CelValue<'a>],
    ) -> Outcome<CelValue<'a>> {
        let known = self.patterns.iter().position(|(text, _)| text == pattern);
        let at = match known {
            Some(at) => at,
            None => {
                // large ones cost what it takes to build them
                let large = schema::pattern::size(pattern).unwrap_or(0).saturating_sub(SMALL_PATTERN);
                self.budget.charge(large as u64 / PER_COST)?;
                let compiled = library::compiled(function, pattern)?;
                if self.patterns.len() == PATTERNS {
                    self.patterns.remove(0);
                }
                self.patterns.push((pattern.to_owned(), compiled));
                self.patterns.len() - 1
            }
        };
        match (args.first(), self.patterns.get(at)) {
            (Some(CelValue::String(_)), Some((_, pattern))) => {
                library::call_compiled(function, pattern, args)
            }
            _ => library::call(function, None, args.to_vec()),
        }
    }

    fn charge(&mut self, charge: Charge, cost: u64, result: &Outcome<CelValue<'_>>) -> Outcome<()> {
        self.memory.took(result)?;
        self.budget.charge(cost.saturating_add(charge.of_result(result)))
    }

    fn append(&mut self, slot: usize, item: &'a Node, free: bool) -> Outcome<CelValue<'a>> {
        // as for the list so far, a list of one item, and the sum of both
        self.budget.charge(1)?;
        let item = ended(self.eval(item))?;
        self.budget.charge(if free { 1 } else { LIST + 1 })?;
        let Some(so_far) = self.locals.get_mut(slot) else { return fail("no such attribute") };
        let so_far = std::mem::replace(so_far, Ok(CelValue::Null))?;
        let list = |items: Vec<CelValue<'a>>| Ok(CelValue::list(items));
        match (so_far, item?) {
            (CelValue::List(List::Owned(items, None)), item) => {
                let mut items = Arc::try_unwrap(items).unwrap_or_else(|shared| (*shared).clone());
                items.push(item);
                list(items)
            }
            (other, item) => operators::add(other, CelValue::list(vec![item])),
        }
    }

    fn fold(&mut self, walk: &'a FoldPlan) -> Outcome<CelValue<'a>> {
        let range = self.eval(&walk.range)?;
        let items = Items::of(range)?;
        let init = ended(self.eval(&walk.init))?;
        let slot = self.locals.len();
        self.locals.push(init);
        self.locals.push(Ok(CelValue::Null));
        let walked = self.walk(walk, &items, slot);
        self.locals.truncate(slot + 1);
        let result = walked.and_then(|()| self.eval(&walk.result));
        self.locals.truncate(slot);
        result
    }

    fn walk(&mut self, walk: &'a FoldPlan, items: &Items<'a>, slot: usize) -> Outcome<()> {
        for at in 0..items.len() {
            self.locals[slot + 1] = items.at(at);
            if let Ok(CelValue::Bool(false)) = ended(self.eval(&walk.condition))? {
                break;
            }
            self.locals[slot] = ended(self.eval(&walk.step))?;
        }
        Ok(())
    }
}

/// The range of a fold: the items of a list, or the keys of a map.
enum Items<'a> {
    List(List<'a>),
    Keys(Vec<CelValue<'a>>),
}

impl<'a> Items<'a> {
    fn of(range: CelValue<'a>) -> Outcome<Items<'a>> {
        match range {
            CelValue::List(list) => Ok(Items::List(list)),
            CelValue::Map(map) => Ok(Items::Keys(map.keys())),
            other => fail(format!("got '{}', expected iterable type", native_name(&other))),
        }
    }

    fn len(&self) -> usize {
        match self {
            Items::List(list) => list.len(),
            Items::Keys(keys) => keys.len(),
        }
    }

    fn at(&self, at: usize) -> Outcome<CelValue<'a>> {
        match self {
            Items::List(list) => list.at(at),
            Items::Keys(keys) => Ok(keys[at].clone()),
        }
    }
}

/// The names in messages of types that cannot be iterated.
fn native_name(value: &CelValue<'_>) -> &'static str {
    match value {
        CelValue::Null => "types.Null",
        CelValue::Bool(_) => "types.Bool",
        CelValue::Int(_) => "types.Int",
        CelValue::Uint(_) => "types.Uint",
        CelValue::Double(_) => "types.Double",
        CelValue::String(_) => "types.String",
        CelValue::Bytes(_) => "types.Bytes",
        CelValue::Duration(_) => "types.Duration",
        CelValue::Timestamp(_) => "types.Timestamp",
        CelValue::Type(_) => "*types.TypeValue",
        CelValue::Url(_) => "cel.URL",
        CelValue::Opaque(_) => "*cel.unknownPreserved",
        CelValue::List(_) | CelValue::Map(_) => "traits.Iterable",
    }
}

/// The value of a field, by the name that it has where the value is.
fn look_up<'a>(map: &Map<'a>, field: &FieldName) -> Outcome<Option<CelValue<'a>>> {
    match map {
        Map::Object(..) => match &field.name {
            Some(name) => map.find_field(name),
            None => Ok(None),
        },
        _ => map.find_text(&field.escaped),
    }
}

fn select<'a>(operand: &CelValue<'a>, field: &FieldName) -> Outcome<CelValue<'a>> {
    let value = match operand {
        CelValue::Map(map) => look_up(map, field)?,
        CelValue::List(list) => return index_list(list, &CelValue::String(Text::Borrowed(&field.escaped))),
        _ => None,
    };
    value.map_or_else(|| fail(format!("no such key: {}", field.escaped)), Ok)
}

fn subscript<'a>(operand: &CelValue<'a>, index: &CelValue<'a>) -> Outcome<CelValue<'a>> {
    let value = match operand {
        CelValue::Map(map) => map.find(index)?,
        CelValue::List(list) => return index_list(list, index),
        _ => None,
    };
    value.map_or_else(|| fail(format!("no such key: {}", convert::format_value(index))), Ok)
}

/// The item of a list at an index.
fn index_list<'a>(list: &List<'a>, index: &CelValue<'_>) -> Outcome<CelValue<'a>> {
    let formatted = || convert::format_value(index);
    if list.is_declared() {
        return match index {
            CelValue::Int(at) => match usize::try_from(*at).ok().filter(|at| *at < list.len()) {
                Some(at) => list.at(at),
                None => fail(format!("index out of bounds: {at}")),
            },
            _ => fail(format!("unsupported index: {}", formatted())),
        };
    }
    let at = match index {
        CelValue::Int(at) => Some(*at),
        CelValue::Uint(at) => i64::try_from(*at).ok(),
        CelValue::Double(at) => whole(*at),
        other => return fail(format!("unsupported index type '{}' in list", other.type_name())),
    };
    let Some(at) = at else { return fail(format!("unsupported index value {} in list", formatted())) };
    match usize::try_from(at).ok().filter(|at| *at < list.len()) {
        Some(at) => list.at(at),
        None if matches!((list, index), (List::Tree(_), CelValue::Int(_))) => {
            fail(format!("index out of bounds: {at}"))
        }
        None => fail(format!("index '{at}' out of range in list size '{}'", list.len())),
    }
}

fn has<'a>(operand: &CelValue<'a>, field: &FieldName) -> Outcome<CelValue<'a>> {
    match operand {
        CelValue::Map(map) => Ok(CelValue::Bool(look_up(map, field)?.is_some())),
        CelValue::List(_) => {
            let field = CelValue::string(field.escaped.as_str());
            operators::contains(&field, operand).map(CelValue::Bool)
        }
        _ => fail("invalid type for field selection."),
    }
}

fn unary<'a>(call: &Call, arg: Outcome<CelValue<'a>>) -> Outcome<CelValue<'a>> {
    let value = arg?;
    match call.function {
        op::NOT => operators::not(value),
        op::NEGATE => operators::negate(value),
        op::NOT_STRICTLY_FALSE => Ok(CelValue::Bool(!matches!(value, CelValue::Bool(false)))),
        function => library::call(function, call.overload, vec![value]),
    }
}

fn binary<'a>(call: &Call, left: CelValue<'a>, right: CelValue<'a>) -> Outcome<CelValue<'a>> {
    let ordered = |fits: fn(Ordering) -> bool| {
        operators::compare(call.function, &left, &right).map(|order| CelValue::Bool(fits(order)))
    };
    match call.function {
        op::EQUALS => operators::equal(&left, &right).map(CelValue::Bool),
        // incomparable values are not equal
        op::NOT_EQUALS => Ok(CelValue::Bool(!operators::equal(&left, &right).unwrap_or(false))),
        op::LESS => ordered(Ordering::is_lt),
        op::LESS_EQUALS => ordered(Ordering::is_le),
        op::GREATER => ordered(Ordering::is_gt),
        op::GREATER_EQUALS => ordered(Ordering::is_ge),
        op::ADD => operators::add(left, right),
        op::SUBTRACT => operators::subtract(left, right),
        op::MULTIPLY => operators::multiply(left, right),
        op::DIVIDE => operators::divide(left, right),
        op::MODULO => operators::modulo(left, right),
        op::IN => operators::contains(&left, &right).map(CelValue::Bool),
        function => library::call(function, call.overload, vec![left, right]),
    }
}
