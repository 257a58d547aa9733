//! Checks the constraints that a table declares.

use crate::format;
use crate::path::Path;
use crate::problem::{Problem, Problems};
use crate::table::{Declarations, Field, Flags, Rule, Shape, Type};
use crate::value::{Map, Value};
use crate::walk::{Visitor, declaring, walk};

/// Every declared constraint that the value breaks.
pub fn check(ty: &Type, value: &mut Value) -> Problems {
    let mut rules = Rules { problems: Problems::new() };
    walk(ty, value, &mut rules);
    rules.problems
}

/// Every field declared immutable that differs between an object and its next state.
pub fn check_immutable(ty: &Type, old: &Value, new: &Value) -> Problems {
    let mut problems = Problems::new();
    immutable(ty, old, new, &Path::ROOT, &mut problems);
    problems
}

struct Rules {
    problems: Problems,
}

impl Visitor for Rules {
    const LOOKS_FOR: Declarations = Declarations::RULES;

    fn structure(&mut self, ty: &Type, map: &mut Map, path: &Path<'_>) {
        for field in declaring(ty) {
            // `nonempty` declares fields that validation requires; `required` alone is published only
            if field.rules.contains(&Rule::NotEmpty) && map.get(&field.name).is_none_or(crate::zero::is_zero)
            {
                self.problems.push(Problem::required(&path.field(&field.name), ""));
            }
        }
    }

    fn field(&mut self, field: &Field, value: &mut Value, path: &Path<'_>) {
        // empty optional values are absent and not checked
        if !field.is(Flags::NILABLE) && crate::zero::is_zero(value) && !matches!(value, Value::Int(_)) {
            return;
        }
        for rule in field.rules.iter() {
            self.rule(rule, &field.shape, value, path);
        }
    }
}

impl Rules {
    fn rule(&mut self, rule: &Rule, shape: &Shape, value: &Value, path: &Path<'_>) {
        match (rule, value) {
            (Rule::Min(least), Value::Int(number)) if number < least => {
                self.problems.push(Problem::invalid(
                    path,
                    value,
                    &format!("must be greater than or equal to {least}"),
                ));
            }
            (Rule::Max(most), Value::Int(number)) if number > most => {
                self.problems.push(Problem::invalid(
                    path,
                    value,
                    &format!("must be less than or equal to {most}"),
                ));
            }
            (Rule::MaxLength(most), Value::String(text)) if text.len() > *most as usize => {
                self.problems.push(Problem::too_long(path, *most as usize));
            }
            (Rule::MinLength(least), Value::String(text)) if text.chars().count() < *least as usize => {
                self.problems.push(Problem::invalid(
                    path,
                    value,
                    &format!("should be at least {least} chars long"),
                ));
            }
            (Rule::MaxItems(most), Value::List(items)) if items.len() > *most as usize => {
                self.problems.push(Problem::too_many(path, items.len(), *most as usize));
            }
            (Rule::MinItems(least), Value::List(items)) if items.len() < *least as usize => {
                self.problems.push(Problem::invalid(
                    path,
                    value,
                    &format!("should have at least {least} items"),
                ));
            }
            (Rule::Enum(allowed), Value::String(text)) if !allowed.iter().any(|one| *one == **text) => {
                let allowed: Vec<_> = allowed.iter().map(|one| &**one).collect();
                self.problems.push(Problem::not_supported(path, value, &allowed));
            }
            (Rule::Format(format), Value::String(text)) => {
                self.problems.extend(
                    format::check(*format, text).iter().map(|why| Problem::invalid(path, value, why)),
                );
            }
            (Rule::Enum(_) | Rule::Format(_), Value::List(items)) => {
                if let Shape::List(list) = shape {
                    for (at, item) in items.iter().enumerate() {
                        self.rule(rule, &list.item, item, &path.index(at));
                    }
                }
            }
            _ => {}
        }
    }
}

fn immutable(ty: &Type, old: &Value, new: &Value, path: &Path<'_>, problems: &mut Problems) {
    if !ty.declarations.has(Declarations::IMMUTABLE) {
        return;
    }
    for field in ty.fields.iter().filter(|field| field.declarations().has(Declarations::IMMUTABLE)) {
        let (was, is) = (old.at(&[&field.name]), new.at(&[&field.name]));
        let path = path.field(&field.name);
        if field.is(Flags::IMMUTABLE) {
            if was != is {
                problems.push(Problem::invalid(&path, is.unwrap_or(&Value::Null), "field is immutable"));
            }
        } else if let (Shape::Struct(ty), Some(was), Some(is)) = (&field.shape, was, is) {
            immutable(ty, was, is, &path, problems);
        }
    }
}
