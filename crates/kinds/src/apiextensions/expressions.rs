//! Rules between values, as expressions: `self.min <= self.max`.
//!
//! A rule stands at a schema and sees the value there as `self`, and as `oldSelf` what was there before: a rule
//! that speaks of both holds for changes only. Always true: a rule is compiled once, what it may cost is known
//! before the definition is taken, and what it does cost is taken from one budget for each object.

use super::compiled::{Additional, Schema};
use crate::check::{self, Problems};
use crate::read;
use cel::{Budget, Declaration, Env, EvalError, Program, Variables};
use schema::problem::{Problem, Reason, quoted};
use schema::table::ListKind;
use schema::{Path, Value};

const RULES: &str = "x-kubernetes-validations";

/// A rule that was compiled, or why it cannot be.
pub(super) struct Rule {
    program: Result<Program, Box<str>>,
    text: Box<str>,
    message: Box<str>,
}

impl Rule {
    fn of(rule: &Value, env: &Env) -> Rule {
        let program = env.compile_rule(rule.text(&["rule"])).map_err(|why| why.to_string().into());
        Rule { program, text: rule.text(&["rule"]).trim().into(), message: rule.text(&["message"]).into() }
    }

    /// What the rule is called where it cannot be tried.
    fn told(&self) -> &str {
        if self.message.is_empty() { &self.text } else { self.message.trim() }
    }
}

/// The type of the objects of a schema that has rules anywhere.
pub(super) fn declared(schema: &Value) -> Option<Declaration> {
    if has_rules(schema) { Declaration::from_schema(schema, "self", true) } else { None }
}

fn has_rules(schema: &Value) -> bool {
    let parts = ["items", "additionalProperties"].into_iter().filter_map(|part| schema.at(&[part]));
    let properties = read::map(schema, &["properties"]).iter().map(|(_, it)| it);
    !schema.items(&[RULES]).is_empty() || parts.chain(properties).any(has_rules)
}

const SCHEMA: &[&str] = &["schema", "openAPIV3Schema"];

/// Whether a definition has rules in any of its versions.
pub(super) fn in_use(definition: &Value) -> bool {
    let mut versions = definition.items(&["spec", "versions"]).iter();
    versions.any(|version| version.at(SCHEMA).is_some_and(has_rules))
}

/// Takes all rules out of a definition.
pub(super) fn drop(definition: &mut Value) {
    fn strip(schema: &mut Value) {
        schema.unset(&[RULES]);
        for part in ["items", "additionalProperties"] {
            schema.at_mut(&[part]).map(strip);
        }
        if let Some(properties) = schema.at_mut(&["properties"]).and_then(Value::as_map_mut) {
            properties.iter_mut().for_each(|(_, it)| strip(it));
        }
    }
    read::each_mut(definition, &["spec", "versions"], |version| {
        version.at_mut(SCHEMA).map(strip);
    });
}

fn env(declared: &Declaration) -> Env {
    Env::new().variable("self", declared.clone()).variable("oldSelf", declared.clone())
}

/// The rules of one schema.
pub(super) fn compile(schema: &Value, declared: Option<&Declaration>) -> Box<[Rule]> {
    let (rules, Some(declared)) = (schema.items(&[RULES]), declared) else { return Box::default() };
    if rules.is_empty() || declared.ty().is_none() {
        return Box::default();
    }
    let (env, blank) = (env(declared), |rule: &&Value| rule.text(&["rule"]).trim().is_empty());
    rules.iter().filter(|rule| !blank(rule)).map(|rule| Rule::of(rule, &env)).collect()
}

/// What is wrong with the rules of a whole schema, in which nothing else is wrong.
pub(super) fn check(schema: &Value, path: &Path<'_>, out: &mut Problems) {
    let Some(declared) = declared(schema) else { return };
    let mut costs = Costs {
        wrong: out.iter().map(|it| it.field.clone()).collect(),
        total: 0,
        patterns: 0,
        each: Vec::new(),
    };
    let place = Place { often: Some(1), uncorrelated: None };
    below(schema, Some(&declared), &place, path, &mut costs, out);
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

/// How many bytes the patterns of all rules may take together, by estimate.
const MOST_PATTERNS: usize = 32 << 20;

/// So many rules are named when all together cost too much.
const MOST_EXPENSIVE: usize = 4;

struct Costs {
    /// The fields of what is wrong with the schema itself.
    wrong: Vec<String>,
    total: u64,
    /// How large all patterns are.
    patterns: usize,
    /// What each rule costs that is worth telling, and where it is.
    each: Vec<(u64, String)>,
}

struct Place {
    /// How many values there can be in one object, where that is bounded.
    often: Option<u64>,
    /// The list whose items cannot be told apart, where there is one around.
    uncorrelated: Option<String>,
}

impl Place {
    fn within(&self, most: Option<i64>) -> Place {
        let most = most.and_then(|most| u64::try_from(most).ok());
        let often = self.often.zip(most).map(|(often, most)| often.saturating_mul(most));
        Place { often, uncorrelated: self.uncorrelated.clone() }
    }
}

fn below(
    schema: &Value,
    declared: Option<&Declaration>,
    place: &Place,
    path: &Path<'_>,
    costs: &mut Costs,
    out: &mut Problems,
) {
    if let Some(declared) = declared {
        here(schema, declared, place, path, costs, out);
    }
    let item = declared.and_then(Declaration::item);
    if let Some(more) = super::openapi::additional(schema) {
        let inner = place.within(read::opt_int(schema, &["maxProperties"]));
        below(more, item, &inner, &path.field("additionalProperties"), costs, out);
    }
    let at = path.field("properties");
    for (name, property) in read::map(schema, &["properties"]).iter() {
        let declared = declared.and_then(|it| it.field(name));
        below(property, declared, &place.within(Some(1)), &at.key(name), costs, out);
    }
    if let Some(items) = super::openapi::items(schema) {
        let mut inner = place.within(read::opt_int(schema, &["maxItems"]));
        if schema.text(&["x-kubernetes-list-type"]) != "map" {
            inner.uncorrelated.get_or_insert_with(|| path.to_string());
        }
        below(items, item, &inner, &path.field("items"), costs, out);
    }
}

fn here(
    schema: &Value,
    declared: &Declaration,
    place: &Place,
    path: &Path<'_>,
    costs: &mut Costs,
    out: &mut Problems,
) {
    let at = path.field(RULES);
    let rules = schema.items(&[RULES]);
    // rules of a schema in which something is wrong, here or below, are not tried
    let here = path.to_string();
    let within = |field: &String| field.strip_prefix(&here).is_some_and(|it| it.starts_with(['.', '[']));
    if rules.is_empty() || costs.wrong.iter().any(within) {
        return;
    }
    if declared.ty().is_none() {
        let message = "Internal error: internal error: failed to construct type information for x-kubernetes-validations \
                       rules: unable to convert structural schema to CEL declarations";
        let (field, message) = (at.to_string(), message.to_owned());
        return out.push(Problem { reason: Reason::InternalError, field, message });
    }
    let env = env(declared);
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
                let shown =
                    format!("apiextensions.ValidationRule{{Rule:{}, Message:{message}}}", quoted(text));
                out.push(check::invalid_shown(&at, &shown, &why.to_string()));
                continue;
            }
        };
        let often = place.often.unwrap_or_else(|| declared.most_often());
        let cost = program.cost().max.saturating_mul(often);
        if cost > cel::PER_EXPRESSION {
            let told = too_expensive("estimated rule cost", cost, cel::PER_EXPRESSION);
            out.push(Problem::forbidden(&at, &told));
        }
        costs.total = costs.total.saturating_add(cost);
        costs.patterns = costs.patterns.saturating_add(program.patterns());
        if cost >= cel::PER_SCHEMA / 100 {
            costs.each.push((cost, at.to_string()));
        }
        if let Some(around) = place.uncorrelated.as_ref().filter(|_| program.uses("oldSelf")) {
            let told =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {around}");
            out.push(Problem::invalid_text(&at, text, &told));
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

/// Every rule that an object breaks; `old` is what was there before.
pub(super) fn hold(schema: &Schema, object: &Value, old: Option<&Value>, out: &mut Problems) {
    Held { left: &mut Left::default(), out }.value(schema, object, old, &Path::ROOT);
}

/// The same of a value at `path` that is compared with itself, such as a default; many have one budget.
pub(super) fn hold_alone(
    schema: &Schema,
    value: &Value,
    path: &Path<'_>,
    left: &mut Left,
    out: &mut Problems,
) {
    Held { left, out }.value(schema, value, Some(value), path);
}

/// What may still be spent. `None` once it was not enough: no rule is tried from there.
pub(super) struct Left(Option<u64>);

impl Default for Left {
    fn default() -> Self {
        Left(Some(cel::PER_OBJECT))
    }
}

struct Held<'o> {
    left: &'o mut Left,
    out: &'o mut Problems,
}

const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Held<'_> {
    fn value(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        if !schema.ruled || value.is_null() {
            return;
        }
        let old = old.filter(|it| !it.is_null());
        if self.left.0 == Some(0) && !schema.rules.is_empty() {
            self.left.0 = None;
            self.broken(schema, path, SPENT);
        }
        for rule in &schema.rules {
            self.rule(rule, schema, value, old, path);
        }
        if self.left.0.is_none() {
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
                let before = Before::of(schema, old);
                for (at, item) in items.iter().enumerate() {
                    self.value(of, item, before.item(item), &path.index(at));
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) {
        let Some(left) = self.left.0 else { return };
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
        let held = program.holds(&variables, &mut budget);
        self.left.0 = left.checked_sub(budget.spent());
        let told = rule.told();
        let why = match held {
            _ if self.left.0.is_none() => SPENT.to_owned(),
            Ok(true) => return,
            Ok(false) if rule.message.is_empty() => format!("failed rule: {told}"),
            Ok(false) => rule.message.to_string(),
            Err(why @ EvalError::OverBudget) => {
                self.left.0 = None;
                format!(
                    "'{why}': no further validation rules will be run due to call cost exceeds limit for rule: {told}"
                )
            }
            Err(EvalError::Failed(why)) if why.starts_with("no such overload") => format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {told}"
            ),
            Err(EvalError::Failed(why)) => format!("{why} evaluating rule: {told}"),
        };
        self.broken(schema, path, &why);
    }

    fn broken(&mut self, schema: &Schema, path: &Path<'_>, why: &str) {
        let message = format!("Invalid value: {}: {why}", quoted(&schema.kind));
        let field = if path.is_root() { super::value::NOWHERE.to_owned() } else { path.to_string() };
        self.out.push(Problem { reason: Reason::Invalid, field, message });
    }
}

/// The items that a list had before, where they can be told apart.
struct Before<'v> {
    keys: &'v [schema::table::Text],
    items: std::collections::HashMap<Vec<u8>, &'v Value>,
}

impl<'v> Before<'v> {
    fn of(schema: &'v Schema, old: Option<&'v Value>) -> Self {
        let (Some(ListKind::Map { keys }), Some(Value::List(items))) = (&schema.list, old) else {
            return Before { keys: &[], items: Default::default() };
        };
        let items = items.iter().map(|item| (super::rules::told_by(keys, item), item)).collect();
        Before { keys, items }
    }

    fn item(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() {
            None
        } else {
            self.items.get(&super::rules::told_by(self.keys, item)).copied()
        }
    }
}
