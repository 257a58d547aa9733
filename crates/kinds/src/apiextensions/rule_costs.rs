//! Validation of the rules in a definition: their types, and the estimate of their costs.

use super::expression_rules::{RULES, declaration, env};
use super::schema_parts::{InvalidSchemas, additional, given, items};
use super::table::EMBEDDED;
use crate::check::{self, Problems};
use crate::read;
use cel::Declaration;
use schema::problem::{Problem, Reason, quoted};
use schema::{Path, Value};

/// Checks the rules of a schema and of all below it, except for the rules of `invalid` ones.
pub(super) fn check(schema: &Value, path: &Path<'_>, invalid: &InvalidSchemas, out: &mut Problems) {
    let Some(declaration) = declaration(schema, true) else { return };
    let mut costs = Costs { invalid, total: 0, patterns: 0, each: Vec::new() };
    let place = Place { often: Some(1), uncorrelated: None, in_scope: false, undeclared: false };
    below(schema, Some(&declaration), &place, path, &mut costs, out);
    if costs.patterns > MOST_PATTERNS {
        out.push(Problem::forbidden(path, "patterns of rules are too large together"));
    }
    if costs.total > cel::PER_SCHEMA {
        costs.each.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, field) in costs.each.into_iter().take(MOST_EXPENSIVE) {
            let message = "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            out.push(Problem { reason: Reason::Forbidden, field, message: message.to_owned() });
        }
        let what = format!("{RULES} estimated rule cost total for entire OpenAPIv3 schema");
        out.push(Problem::forbidden(path, &too_expensive(&what, costs.total, cel::PER_SCHEMA)));
    }
}

/// The most bytes of the patterns of all rules together, by estimate.
const MOST_PATTERNS: usize = 32 << 20;

/// The most rules that are listed if all together cost too much.
const MOST_EXPENSIVE: usize = 4;

struct Costs<'a> {
    invalid: &'a InvalidSchemas,
    total: u64,
    /// The size of all patterns.
    patterns: usize,
    /// The cost and the field of each expensive rule.
    each: Vec<(u64, String)>,
}

struct Place {
    /// The most values in one object, if they are bounded.
    often: Option<u64>,
    /// The enclosing list whose items have no keys, if any.
    uncorrelated: Option<String>,
    /// Whether the schema or an enclosing one has rules.
    in_scope: bool,
    /// Whether it has rules that cannot read its values.
    undeclared: bool,
}

impl Place {
    /// The place of the schemas directly below `schema`, which is at this place.
    fn below(&self, schema: &Value) -> Place {
        let often = self.often.zip(most_elements(schema)).map(|(often, most)| often.saturating_mul(most));
        Place { often, uncorrelated: self.uncorrelated.clone(), ..*self }
    }
}

/// The most values of a schema directly below this one, in one value of this one. Only the type decides which limit
/// counts; a type that does not exist has one value.
fn most_elements(schema: &Value) -> Option<u64> {
    let limit = match schema.text(&["type"]) {
        "object" if given(schema, "additionalProperties").is_some() => "maxProperties",
        "array" => "maxItems",
        _ => return Some(1),
    };
    read::opt_int(schema, &[limit]).map(|most| u64::try_from(most).unwrap_or(0))
}

fn below(
    schema: &Value,
    declaration: Option<&Declaration>,
    place: &Place,
    path: &Path<'_>,
    costs: &mut Costs<'_>,
    out: &mut Problems,
) {
    let in_scope = place.in_scope || !schema.items(&[RULES]).is_empty();
    let visible = declaration.filter(|it| it.is_visible());
    // what the schema above does not show is declared on its own, unless that one has rules and no declaration
    let own = match visible {
        None if in_scope && !place.undeclared => {
            Declaration::from_schema(schema, "self", read::flag(schema, &[EMBEDDED]))
        }
        _ => None,
    };
    let declaration = visible.or(own.as_ref());
    let place = &Place {
        often: place.often,
        uncorrelated: place.uncorrelated.clone(),
        in_scope,
        undeclared: in_scope && declaration.is_none(),
    };
    let item = declaration.and_then(Declaration::item);
    if let Some(more) = additional(schema) {
        below(more, item, &place.below(schema), &path.field("additionalProperties"), costs, out);
    }
    let at = path.field("properties");
    let mut inner = place.below(schema);
    // properties of a map of unknown type are not compared with their old values
    if read::opt_text(schema, &["x-kubernetes-map-type"]).is_some_and(|it| it != "granular" && it != "atomic")
    {
        inner.uncorrelated.get_or_insert_with(|| path.to_string());
    }
    for (name, property) in read::map(schema, &["properties"]).iter() {
        let declaration = declaration.and_then(|it| it.field(name));
        below(property, declaration, &inner, &at.key(name), costs, out);
    }
    if let Some(items) = items(schema) {
        let mut inner = place.below(schema);
        if schema.text(&["x-kubernetes-list-type"]) != "map" {
            inner.uncorrelated.get_or_insert_with(|| path.to_string());
        }
        below(items, item, &inner, &path.field("items"), costs, out);
    }
    // the inner schemas come first
    here(schema, declaration, place, path, costs, out);
}

fn here(
    schema: &Value,
    declaration: Option<&Declaration>,
    place: &Place,
    path: &Path<'_>,
    costs: &mut Costs<'_>,
    out: &mut Problems,
) {
    let at = path.field(RULES);
    let rules = schema.items(&[RULES]);
    if rules.is_empty() || costs.invalid.contains(&std::ptr::from_ref(schema)) {
        return;
    }
    let Some(declaration) = declaration else {
        let message = "Internal error: internal error: failed to construct type information for x-kubernetes-validations \
                       rules: unable to convert structural schema to CEL declarations";
        let (field, message) = (at.to_string(), message.to_owned());
        return out.push(Problem { reason: Reason::InternalError, field, message });
    };
    let env = env(declaration);
    for (nth, rule) in rules.iter().enumerate() {
        let text = rule.text(&["rule"]);
        if text.trim().is_empty() {
            continue;
        }
        let at = at.index(nth);
        let at = at.field("rule");
        let program = match env.compile_rule(text) {
            Ok(program) => program,
            Err(why) => {
                let message = quoted(rule.text(&["message"]));
                let formatted =
                    format!("apiextensions.ValidationRule{{Rule:{}, Message:{message}}}", quoted(text));
                out.push(check::invalid_formatted(&at, &formatted, &why.to_string()));
                continue;
            }
        };
        let often = place.often.unwrap_or_else(|| declaration.most_often());
        let cost = program.cost().max.saturating_mul(often);
        if cost > cel::PER_EXPRESSION {
            let why = too_expensive("estimated rule cost", cost, cel::PER_EXPRESSION);
            out.push(Problem::forbidden(&at, &why));
        }
        costs.total = costs.total.saturating_add(cost);
        costs.patterns = costs.patterns.saturating_add(program.patterns());
        if cost >= cel::PER_SCHEMA / 100 {
            costs.each.push((cost, at.to_string()));
        }
        if let Some(around) = place.uncorrelated.as_ref().filter(|_| program.uses("oldSelf")) {
            let why =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {around}");
            out.push(Problem::invalid_text(&at, text, &why));
        }
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // not "1.0x"
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    fn most(schema: &str) -> Option<u64> {
        most_elements(&json(schema))
    }

    #[test]
    fn the_type_decides_which_limit_bounds_the_values_below() {
        assert_eq!(most(r#"{"type":"array","maxItems":3,"maxProperties":7}"#), Some(3));
        assert_eq!(most(r#"{"type":"array"}"#), None);
        assert_eq!(most(r#"{"type":"array","maxItems":-1}"#), Some(0));
        assert_eq!(most(r#"{"type":"object","maxProperties":7,"additionalProperties":{}}"#), Some(7));
        assert_eq!(most(r#"{"type":"object","maxProperties":7}"#), Some(1));
        assert_eq!(most(r#"{"type":"object","additionalProperties":true}"#), None);
        assert_eq!(most(r#"{"type":"foo","items":{},"additionalProperties":{}}"#), Some(1));
    }
}
