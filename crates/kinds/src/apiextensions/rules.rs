//! Validation of custom resources: schema, embedded objects, list keys, scale and rules.

use super::compiled::Schema;
use super::go_format::{NOWHERE, format_go};
use super::list_keys::key_of;
use super::scale::Paths;
use super::{embedded, rule_evaluation, value};
use crate::check::{self, Problems};
use rest::hooks::{RuledWrite, Rules};
use rest::metrics::Timing;
use schema::problem::{Problem, Reason};
use schema::table::ListKind;
use schema::{Path, Value};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

/// The validation of one version. Its schema is compiled when the first object is written.
pub(super) struct Validator {
    schema: OnceLock<Schema>,
    make: Box<dyn Fn() -> Schema + Send + Sync>,
    scale: Option<Paths>,
}

impl Validator {
    pub fn new(make: impl Fn() -> Schema + Send + Sync + 'static, scale: Option<Paths>) -> Self {
        Validator { schema: OnceLock::new(), make: Box::new(make), scale }
    }
}

impl Rules for Validator {
    fn check(&self, write: &RuledWrite<'_>, timing: &Timing<'_>) -> Problems {
        let RuledWrite { object, old, subresource, metadata } = *write;
        let schema = self.schema.get_or_init(|| timing.compiling(&self.make, |it| it.ruled));
        let mut out = value::check(schema, object, "");
        if let Some(scale) = &self.scale {
            scale.check(object, &mut out);
        }
        if schema.noteworthy {
            // a write of the status does not check embedded objects
            if subresource != "status" {
                objects(schema, object, &Path::ROOT, &mut out);
            }
            // lists that were wrong before the write may stay so
            let mut problems = Problems::new();
            lists(schema, object, &Path::ROOT, &mut problems);
            if let Some(old) = old.filter(|_| !problems.is_empty()) {
                let mut before = Problems::new();
                lists(schema, old, &Path::ROOT, &mut before);
                problems.retain(|_| before.is_empty());
            }
            out.extend(problems);
        }
        if schema.ruled {
            if metadata.iter().chain(&out).any(hides_more) {
                let message = "Invalid value: \"null\": some validation rules were not checked because the object was \
                               invalid; correct the existing errors to complete validation";
                let field = NOWHERE.to_owned();
                out.push(Problem { reason: Reason::Invalid, field, message: message.to_owned() });
            } else {
                timing.evaluating(|| rule_evaluation::evaluate(schema, object, old, &mut out));
            }
        }
        out
    }
}

/// Whether rules cannot be evaluated because of a problem.
fn hides_more(problem: &Problem) -> bool {
    use Reason::{Required, TooLong, TooMany, TypeInvalid};
    matches!(problem.reason, Required | TooLong | TooMany | TypeInvalid)
}

/// Checks the embedded API objects of a value.
pub(super) fn objects(schema: &Schema, value: &Value, path: &Path<'_>, out: &mut Problems) {
    if !schema.noteworthy {
        return;
    }
    if schema.embedded {
        embedded::resource(value, path, out);
    }
    below(schema, value, path, &mut |schema, value, path| objects(schema, value, path, out));
}

/// Checks that sets and map lists have no duplicate items.
fn lists(schema: &Schema, value: &Value, path: &Path<'_>, out: &mut Problems) {
    if !schema.noteworthy {
        return;
    }
    if let (Some(kind), Value::List(items)) = (&schema.list, value) {
        let stray = |item: &Value| !item.is_null() && item.as_map().is_none();
        if let (ListKind::Map { .. }, Some(at)) = (kind, items.iter().position(stray)) {
            let detail = "must be an object for an array of list-type map";
            out.push(check::invalid_formatted(&path.index(at), &format_go(&items[at]), detail));
            return below(schema, value, path, &mut |schema, value, path| lists(schema, value, path, out));
        }
        let mut seen: HashMap<Vec<u8>, bool> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            let key = match kind {
                ListKind::Atomic => continue,
                ListKind::Set => item.clone(),
                ListKind::Map { keys } => key_of(keys, item),
            };
            let again = seen.entry(schema::encode::untyped(&key));
            if let Entry::Occupied(mut again) = again {
                // a duplicate is reported once
                if again.insert(true) {
                    continue;
                }
                let message = format!("Duplicate value: {}", format_go(&key));
                let field = path.index(at).to_string();
                out.push(Problem { reason: Reason::Duplicate, field, message });
            } else {
                again.or_insert(false);
            }
        }
    }
    below(schema, value, path, &mut |schema, value, path| lists(schema, value, path, out));
}

fn below(schema: &Schema, value: &Value, path: &Path<'_>, each: &mut dyn FnMut(&Schema, &Value, &Path<'_>)) {
    match value {
        Value::Map(map) => {
            for (name, value) in map.iter() {
                if let Some(property) = schema.property(name) {
                    each(property, value, &path.field(name));
                } else if let Some(more) = schema.entry(name) {
                    each(more, value, &path.key(name));
                }
            }
        }
        Value::List(items) => {
            let Some(schema) = &schema.items else { return };
            for (at, item) in items.iter().enumerate() {
                each(schema, item, &path.index(at));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::json;

    fn problems(schema: &str, object: &str) -> Vec<String> {
        let schema = json(schema);
        let validator = Validator::new(move || Schema::of(&schema), None);
        let world = env::Simulated::new(0, 0) as env::World;
        let (object, metadata) = (json(object), Problems::new());
        let write = RuledWrite { object: &object, old: None, subresource: "", metadata: &metadata };
        let problems = validator.check(&write, &Timing::uncounted(&world));
        problems.iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    #[test]
    fn duplicate_items_are_reported() {
        let schema = r#"{"type":"object","properties":{"s":{"type":"array","x-kubernetes-list-type":"set","items":
            {"type":"string"}},"m":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","p"],
            "items":{"type":"object","properties":{"k":{"type":"string"},"p":{"type":"integer"}}}}}}"#;
        assert_eq!(problems(schema, r#"{"s":["a","b","a","a"]}"#), [r#"s[2]: Duplicate value: "a""#]);
        assert_eq!(
            problems(schema, r#"{"m":[{"k":"a","p":1},{"k":"a","p":2},{"k":"a","p":1,"x":2}]}"#),
            [r#"m[2]: Duplicate value: map[string]interface {}{"k":"a", "p":1}"#]
        );
        assert!(problems(schema, r#"{"s":["a"],"m":[]}"#).is_empty());
    }

    #[test]
    fn embedded_objects_are_checked() {
        let schema = r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object",
            "x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}"#;
        assert_eq!(
            problems(schema, r#"{"l":[{"kind":"P"},{"apiVersion":"v1","kind":""}]}"#),
            [
                "l[0].apiVersion: Required value: must not be empty",
                r#"l[1].kind: Invalid value: "": must not be empty"#
            ]
        );
    }
}
