//! Validation rules of a schema as compiled expressions: `self.min <= self.max`.
//!
//! A rule belongs to a schema and reads the value there as `self`, and the previous value as `oldSelf`: a rule that
//! uses both applies to updates only. Invariant: a rule is compiled once.

use crate::read;
use cel::{Declaration, Env, Program};
use schema::Value;

/// The field of a schema with its rules.
pub(super) const RULES: &str = "x-kubernetes-validations";

/// A compiled rule, or the error of its compilation.
pub(super) struct Rule {
    pub(super) program: Result<Program, Box<str>>,
    text: Box<str>,
    pub(super) message: Box<str>,
}

impl Rule {
    fn of(rule: &Value, env: &Env) -> Rule {
        let program = env.compile_rule(rule.text(&["rule"])).map_err(|why| why.to_string().into());
        Rule { program, text: rule.text(&["rule"]).trim().into(), message: rule.text(&["message"]).into() }
    }

    /// The name of the rule in errors: its message, or its text.
    pub(super) fn name(&self) -> &str {
        if self.message.is_empty() { &self.text } else { self.message.trim() }
    }
}

/// The declaration of a schema with rules; `None` if it has none. `resource` is set for the schema of a whole API object.
pub(super) fn declaration(schema: &Value, resource: bool) -> Option<Declaration> {
    if has_rules(schema) { Declaration::from_schema(schema, "self", resource) } else { None }
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

/// Removes all rules from a definition.
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

/// The variables of the rules of a schema.
pub(super) fn env(declaration: &Declaration) -> Env {
    Env::new().variable("self", declaration.clone()).variable("oldSelf", declaration.clone())
}

/// Compiles the rules of one schema.
pub(super) fn compile(schema: &Value, declaration: Option<&Declaration>) -> Box<[Rule]> {
    let (rules, Some(declaration)) = (schema.items(&[RULES]), declaration) else { return Box::default() };
    if rules.is_empty() || declaration.ty().is_none() {
        return Box::default();
    }
    let (env, blank) = (env(declaration), |rule: &&Value| rule.text(&["rule"]).trim().is_empty());
    rules.iter().filter(|rule| !blank(rule)).map(|rule| Rule::of(rule, &env)).collect()
}
