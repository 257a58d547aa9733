//! The cost estimate of an expression, minimum and maximum, without values.
//!
//! Sizes come from declarations; an unlimited value is as large as a request can be. A rule whose estimate is too
//! high is rejected when it is written, so that it does not fail later.

use crate::check::CheckedExpr;
use crate::cost::{LIST, MAP, PER_CHARACTER, PER_PATTERN_CHARACTER, compares};
use crate::declaration::Declaration;
use crate::expr::{ACCUMULATOR, Expr, Fold, Id, Kind, Literal};
use crate::types::Type;
use std::collections::HashMap;

/// A cost or size: at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    pub min: u64,
    pub max: u64,
}

impl Estimate {
    const NOTHING: Estimate = Estimate::exactly(0);
    const ONE: Estimate = Estimate::exactly(1);
    const UNBOUNDED: Estimate = Estimate { min: 0, max: u64::MAX };

    const fn exactly(size: u64) -> Estimate {
        Estimate { min: size, max: size }
    }

    fn add(self, other: Estimate) -> Estimate {
        Estimate { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Estimate) -> Estimate {
        Estimate { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scaled(self, factor: f64) -> Estimate {
        Estimate { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    fn union(self, other: Estimate) -> Estimate {
        Estimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

fn scaled(size: u64, factor: f64) -> u64 {
    const ALL: f64 = u64::MAX as f64;
    let size = size as f64;
    if size > ALL / factor {
        return u64::MAX;
    }
    // upstream halves an estimate equal to the maximum
    let scaled = (size * factor).ceil();
    if scaled >= ALL { 1 << 63 } else { scaled as u64 }
}

/// The cost of a call, and the size of its result.
struct CallEstimate {
    cost: Estimate,
    size: Option<Estimate>,
}

/// The cost of an expression; `root` declares the sizes of its variables.
pub(crate) fn estimate(checked: &CheckedExpr, root: Option<&Declaration>) -> Estimate {
    let mut estimator =
        Estimator { checked, root, paths: HashMap::new(), sizes: HashMap::new(), ranges: Vec::new() };
    estimator.cost(&checked.parsed.root)
}

type Path = Vec<String>;

struct Estimator<'c> {
    checked: &'c CheckedExpr,
    root: Option<&'c Declaration>,
    /// The origins of values, by id.
    paths: HashMap<Id, Path>,
    /// Sizes of the results of calls, by id.
    sizes: HashMap<Id, Estimate>,
    /// The variables of the enclosing folds, and their ranges.
    ranges: Vec<(String, Id)>,
}

/// An argument, as far as its size goes.
struct Argument<'e> {
    expr: Option<&'e Expr>,
    path: Option<Path>,
    ty: Type,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> Estimate {
        match &expr.kind {
            Kind::Literal(_) | Kind::Broken => Estimate::NOTHING,
            Kind::Ident(name) => self.ident(expr.id, name),
            Kind::Select { .. } if self.checked.names.contains_key(&expr.id) => self.ident(expr.id, ""),
            Kind::Select { test: true, .. } => Estimate::NOTHING,
            Kind::Select { operand, field, .. } => {
                let mut cost = self.cost(operand);
                if matches!(self.checked.ty(operand), Type::Map(_) | Type::Object(_) | Type::Param(_)) {
                    cost = cost.add(Estimate::ONE);
                }
                self.extend(expr.id, operand.id, field);
                cost
            }
            Kind::Call { function, target, args } => self.call(expr.id, function, target.as_deref(), args),
            Kind::List(items) => self.sum(items.iter()).add(Estimate::exactly(LIST)),
            Kind::Map(entries) => {
                let parts = entries.iter().flat_map(|(key, value)| [key, value]);
                self.sum(parts).add(Estimate::exactly(MAP))
            }
            Kind::Message { values, .. } => self.sum(values.iter()),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn sum<'e>(&mut self, exprs: impl Iterator<Item = &'e Expr>) -> Estimate {
        exprs.fold(Estimate::NOTHING, |sum, expr| sum.add(self.cost(expr)))
    }

    /// The path of one value is that of another and one step more.
    fn extend(&mut self, id: Id, from: Id, step: &str) {
        let mut path = self.paths.get(&from).cloned().unwrap_or_default();
        path.push(step.to_owned());
        self.paths.insert(id, path);
    }

    fn ident(&mut self, id: Id, name: &str) -> Estimate {
        let range = self.ranges.iter().rev().find(|(variable, _)| variable == name).map(|(_, range)| *range);
        match range {
            None => {
                self.paths.insert(id, vec![name.to_owned()]);
            }
            Some(range) => match self.checked.types.get(range as usize) {
                Some(Type::List(_)) => self.extend(id, range, "@items"),
                Some(Type::Map(_)) => self.extend(id, range, "@keys"),
                _ => {}
            },
        }
        Estimate::ONE
    }

    fn fold(&mut self, fold: &Fold) -> Estimate {
        let mut cost = self.cost(&fold.range).add(self.cost(&fold.init));
        self.ranges.push((fold.variable.clone(), fold.range.id));
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        self.ranges.pop();
        cost = cost.add(self.cost(&fold.result));
        let range = self.argument(&fold.range);
        cost.add(self.size(&range).times(step.add(condition)))
    }

    fn argument<'e>(&self, expr: &'e Expr) -> Argument<'e> {
        let path = self.paths.get(&expr.id).filter(|path| path.first().is_none_or(|it| it != ACCUMULATOR));
        Argument { expr: Some(expr), path: path.cloned(), ty: self.checked.ty(expr).clone() }
    }

    /// The size that is known from the expression itself.
    fn computed(&self, argument: &Argument<'_>) -> Option<Estimate> {
        let expr = argument.expr?;
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let size = match &expr.kind {
            Kind::Literal(Literal::String(text)) => text.len(),
            Kind::Literal(Literal::Bytes(bytes)) => bytes.len(),
            Kind::Literal(_) => 1,
            Kind::List(items) => items.len(),
            Kind::Map(entries) => entries.len(),
            _ => return None,
        };
        Some(Estimate::exactly(size as u64))
    }

    /// The size that is declared.
    fn declared(&self, argument: &Argument<'_>) -> Option<Estimate> {
        let (_, steps) = argument.path.as_ref()?.split_first()?;
        let declared = steps.iter().try_fold(self.root?, |declared, step| declared.step(step))?;
        Some(Estimate { min: 0, max: declared.largest as u64 })
    }

    fn size(&self, argument: &Argument<'_>) -> Estimate {
        let known = self.computed(argument).or_else(|| self.declared(argument));
        known.unwrap_or(match argument.ty {
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => {
                Estimate::ONE
            }
            _ => Estimate::UNBOUNDED,
        })
    }

    /// The same without a guess from the type.
    fn size_or_unbounded(&self, argument: &Argument<'_>) -> Estimate {
        self.computed(argument).or_else(|| self.declared(argument)).unwrap_or(Estimate::UNBOUNDED)
    }

    fn call(&mut self, id: Id, function: &str, target: Option<&Expr>, args: &[Expr]) -> Estimate {
        let costs: Vec<Estimate> = args.iter().map(|arg| self.cost(arg)).collect();
        let arguments: Vec<Argument<'_>> = args.iter().map(|arg| self.argument(arg)).collect();
        let Some(overloads) = self.checked.calls.get(&id).filter(|it| !it.is_empty()) else {
            return Estimate::NOTHING;
        };
        let before = target.map_or(Estimate::NOTHING, |target| self.cost(target));
        let target = target.map(|target| self.argument(target));
        let mut cost = Estimate { min: u64::MAX, max: 0 };
        let mut size: Option<Estimate> = None;
        for overload in overloads {
            let one = self.overload(function, overload, target.as_ref(), &arguments, &costs);
            cost = cost.union(one.cost);
            size = match (size, one.size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            match (*overload, args.first()) {
                ("index_list", Some(list)) => self.extend(id, list.id, "@items"),
                ("index_map", Some(map)) => self.extend(id, map.id, "@values"),
                _ => {}
            }
        }
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
        before.add(cost)
    }

    fn overload(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Argument<'_>>,
        args: &[Argument<'_>],
        costs: &[Estimate],
    ) -> CallEstimate {
        let paid = costs.iter().fold(Estimate::NOTHING, |sum, cost| sum.add(*cost));
        if let Some(known) = self.extension(function, target, args) {
            return CallEstimate { cost: known.cost.add(paid), size: known.size };
        }
        let plain = |cost: Estimate| CallEstimate { cost: cost.add(paid), size: None };
        let sized = |cost: Estimate, size: Estimate| CallEstimate { cost: cost.add(paid), size: Some(size) };
        match (overload, target, args) {
            ("string_to_bytes", _, [text]) => {
                let size = self.size(text);
                let bytes = Estimate { min: size.min, max: size.max.wrapping_mul(4) };
                sized(size.scaled(PER_CHARACTER), bytes)
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = self.size(bytes);
                sized(size.scaled(PER_CHARACTER), Estimate { min: size.min / 4, max: size.max })
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                plain(self.size(part).scaled(PER_CHARACTER))
            }
            ("in_list", _, [_, list]) => plain(self.size(list).scaled(1.0)),
            ("matches_string", Some(text), [pattern]) => {
                let text = self.size(text).add(Estimate::ONE).scaled(PER_CHARACTER);
                plain(text.times(self.size(pattern).scaled(PER_PATTERN_CHARACTER)))
            }
            ("contains_string", Some(text), [part]) => {
                let text = self.size(text).scaled(PER_CHARACTER);
                plain(text.times(self.size(part).scaled(PER_CHARACTER)))
            }
            ("logical_or" | "logical_and", _, _) => match costs {
                [left, right] => {
                    let cost = Estimate { min: left.min, max: left.add(*right).max };
                    CallEstimate { cost, size: None }
                }
                _ => plain(Estimate::NOTHING),
            },
            ("conditional", _, [_, yes, no]) => {
                let size = self.size(yes).union(self.size(no));
                let cost = match costs {
                    [condition, yes, no] => condition.add(yes.union(*no)),
                    _ => paid,
                };
                CallEstimate { cost, size: Some(size) }
            }
            ("add_list", _, [left, right]) => sized(Estimate::ONE, self.size(left).add(self.size(right))),
            ("add_string" | "add_bytes", _, [left, right]) => {
                let size = self.size(left).add(self.size(right));
                sized(size.scaled(PER_CHARACTER), size)
            }
            (_, _, [left, right]) if compares(overload) => {
                let max = self.size(left).max.min(self.size(right).max);
                plain(Estimate { min: u64::from(max > 0), max }.scaled(PER_CHARACTER))
            }
            _ => plain(Estimate::ONE),
        }
    }

    /// Functions beyond those of the language itself.
    fn extension(
        &self,
        function: &str,
        target: Option<&Argument<'_>>,
        args: &[Argument<'_>],
    ) -> Option<CallEstimate> {
        let size = |argument: &Argument<'_>| self.size_or_unbounded(argument);
        let plain = |cost: Estimate| Some(CallEstimate { cost, size: None });
        let sized = |cost: Estimate, size: Estimate| Some(CallEstimate { cost, size: Some(size) });
        match (function, target) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target)) => {
                let Some(item) = item(target) else { return plain(size(target).scaled(PER_CHARACTER)) };
                let mut each = Estimate::ONE;
                if matches!(item.ty, Type::String | Type::Bytes) {
                    each = each.add(size(&item).scaled(PER_CHARACTER));
                }
                plain(size(target).times(each))
            }
            ("url", None) => match args {
                [text] => plain(size(text).scaled(PER_CHARACTER)),
                _ => None,
            },
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target)) => {
                let size = size(target);
                sized(size.scaled(PER_CHARACTER), size)
            }
            ("replace", Some(target)) => match args {
                [old, new, ..] => {
                    let whole = size(target);
                    sized(whole.scaled(2.0 * PER_CHARACTER), replaced(whole, size(old), size(new)))
                }
                _ => None,
            },
            ("split", Some(target)) => {
                let whole = size(target);
                let most = match args.get(1).and_then(|it| it.expr).map(|it| &it.kind) {
                    Some(Kind::Literal(Literal::Int(most))) => *most as u64,
                    Some(Kind::Literal(_)) => 0,
                    _ => whole.max,
                };
                sized(whole.scaled(2.0 * PER_CHARACTER), Estimate { min: 0, max: most })
            }
            ("join", Some(target)) => {
                let items = size(target);
                let mut whole = item(target).map_or(Estimate::NOTHING, |item| items.times(size(&item)));
                if let Some(separator) = args.first() {
                    let between =
                        Estimate { min: items.min.saturating_sub(1), max: items.max.saturating_sub(1) };
                    whole = whole.add(size(separator).times(between));
                }
                sized(whole.scaled(PER_CHARACTER), whole)
            }
            ("find" | "findAll", Some(target)) => {
                let text = size(target);
                let pattern = size(args.first()?).scaled(PER_PATTERN_CHARACTER);
                let cost = text.add(Estimate::ONE).scaled(PER_CHARACTER).times(pattern);
                sized(cost, Estimate { min: 0, max: text.max })
            }
            _ => None,
        }
    }
}

/// An item of a list.
fn item(list: &Argument<'_>) -> Option<Argument<'static>> {
    let Type::List(ty) = &list.ty else { return None };
    let path = list.path.as_ref().map(|path| {
        let mut path = path.clone();
        path.push("@items".to_owned());
        path
    });
    Some(Argument { expr: None, path, ty: (**ty).clone() })
}

/// The size of a text in which parts are replaced.
fn replaced(whole: Estimate, old: Estimate, new: Estimate) -> Estimate {
    let mut count = Estimate::NOTHING;
    let mut kept = Estimate::NOTHING;
    let times = |size: u64, each: u64| (size as f64 / each as f64).ceil() as u64;
    if old.min == 0 {
        count.max = whole.max.saturating_add(1);
        kept.max = whole.max;
    } else if new.max <= old.min {
        kept.max = whole.max;
    } else {
        count.max = times(whole.max, old.min);
    }
    if old.max == 0 {
        count.min = whole.min.saturating_add(1);
        kept.min = whole.min;
    } else if old.max <= new.min {
        kept.min = whole.min;
    } else {
        count.min = times(whole.min, old.max);
    }
    count.times(new).add(kept)
}
