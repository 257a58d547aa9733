//! Evaluation of the rules of a schema for an object.
//!
//! Invariant: all rules of an object share one cost budget.

use super::compiled::{Additional, Schema};
use super::expression_rules::Rule;
use super::go_format::NOWHERE;
use super::list_keys::key_text;
use crate::check::Problems;
use cel::{Budget, EvalError, Variables};
use schema::problem::{Problem, Reason, quoted};
use schema::table::{ListKind, Text};
use schema::{Path, Value};
use std::collections::HashMap;

/// Evaluates all rules for an object; `old` is its previous state.
pub(super) fn evaluate(schema: &Schema, object: &Value, old: Option<&Value>, out: &mut Problems) {
    Evaluator { budget: &mut CostBudget::default(), out }.value(schema, object, old, &Path::ROOT);
}

/// Evaluates all rules for a value at `path` that is its own previous state, such as a default; several values share a
/// budget.
pub(super) fn evaluate_alone(
    schema: &Schema,
    value: &Value,
    path: &Path<'_>,
    budget: &mut CostBudget,
    out: &mut Problems,
) {
    Evaluator { budget, out }.value(schema, value, Some(value), path);
}

/// The remaining cost. `None` once it was exceeded: no further rule is evaluated.
pub(super) struct CostBudget(Option<u64>);

impl Default for CostBudget {
    fn default() -> Self {
        CostBudget(Some(cel::PER_OBJECT))
    }
}

struct Evaluator<'o> {
    budget: &'o mut CostBudget,
    out: &'o mut Problems,
}

const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Evaluator<'_> {
    fn value(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        if !schema.ruled || value.is_null() {
            return;
        }
        let old = old.filter(|it| !it.is_null());
        if self.budget.0 == Some(0) && !schema.rules.is_empty() {
            self.budget.0 = None;
            self.broken(schema, path, SPENT);
        }
        for rule in &schema.rules {
            self.rule(rule, schema, value, old, path);
        }
        if self.budget.0.is_none() {
            return;
        }
        match value {
            Value::Map(map) => {
                let old = old.and_then(Value::as_map);
                for (name, value) in map.iter() {
                    let old = old.and_then(|it| it.get(name));
                    if let Some(property) = schema.property(name) {
                        self.value(property, value, old, &path.field(name));
                    } else if let Additional::Like(more) = &schema.additional {
                        self.value(more, value, old, &path.key(name));
                    }
                }
            }
            Value::List(items) => {
                let Some(of) = &schema.items else { return };
                let before = PreviousItems::of(schema, old);
                for (at, item) in items.iter().enumerate() {
                    self.value(of, item, before.item(item), &path.index(at));
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        let Some(left) = self.budget.0 else { return };
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => return self.broken(schema, path, &format!("rule compile error: {why}")),
        };
        if program.uses("oldSelf") && old.is_none() {
            return;
        }
        let mut variables = Variables::new().with("self", value);
        if let Some(old) = old {
            variables = variables.with("oldSelf", old);
        }
        let mut budget = Budget::new(cel::PER_CALL);
        let outcome = program.holds(&variables, &mut budget);
        self.budget.0 = left.checked_sub(budget.spent());
        let name = rule.name();
        let why = match outcome {
            _ if self.budget.0.is_none() => SPENT.to_owned(),
            Ok(true) => return,
            Ok(false) if rule.message.is_empty() => format!("failed rule: {name}"),
            Ok(false) => rule.message.to_string(),
            Err(why @ EvalError::OverBudget) => {
                self.budget.0 = None;
                format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                )
            }
            Err(EvalError::Failed(why)) if why.starts_with("no such overload") => format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            Err(EvalError::Failed(why)) => format!("{why} evaluating rule: {name}"),
        };
        self.broken(schema, path, &why);
    }

    fn broken(&mut self, schema: &Schema, path: &Path<'_>, why: &str) {
        let message = format!("Invalid value: {}: {why}", quoted(&schema.kind));
        let field = if path.is_root() { NOWHERE.to_owned() } else { path.to_string() };
        self.out.push(Problem { reason: Reason::Invalid, field, message });
    }
}

/// The previous items of a map list, by key.
struct PreviousItems<'v> {
    keys: &'v [Text],
    items: HashMap<Vec<u8>, &'v Value>,
}

impl<'v> PreviousItems<'v> {
    fn of(schema: &'v Schema, old: Option<&'v Value>) -> Self {
        let (Some(ListKind::Map { keys }), Some(Value::List(items))) = (&schema.list, old) else {
            return PreviousItems { keys: &[], items: Default::default() };
        };
        let items = items.iter().map(|item| (key_text(keys, item), item)).collect();
        PreviousItems { keys, items }
    }

    fn item(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() { None } else { self.items.get(&key_text(self.keys, item)).copied() }
    }
}
