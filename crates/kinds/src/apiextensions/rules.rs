//! What a custom kind asks of its objects.

use super::compiled::Schema;
use super::scale::Paths;
use super::{embedded, expressions, value};
use crate::check::{self, Problems};
use rest::hooks::Rules;
use rest::metrics::Timing;
use schema::problem::{Problem, Reason};
use schema::table::{ListKind, Text};
use schema::{Path, Value};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

/// The rules of one version, made when the first object is written.
pub(super) struct Made {
    schema: OnceLock<Schema>,
    make: Box<dyn Fn() -> Schema + Send + Sync>,
    scale: Option<Paths>,
}

impl Made {
    pub fn new(make: impl Fn() -> Schema + Send + Sync + 'static, scale: Option<Paths>) -> Self {
        Made { schema: OnceLock::new(), make: Box::new(make), scale }
    }
}

impl Rules for Made {
    fn check(&self, object: &Value, old: Option<&Value>, subresource: &str, timing: &Timing<'_>) -> Problems {
        let schema = self.schema.get_or_init(|| timing.compiling(&self.make, |it| it.ruled));
        let mut out = value::check(schema, object, "");
        if let Some(scale) = &self.scale {
            scale.check(object, &mut out);
        }
        if schema.noteworthy {
            // a write of the status does not look at embedded objects
            if subresource != "status" {
                objects(schema, object, &Path::ROOT, &mut out);
            }
            // lists that had such a flaw before may keep it
            let mut flaws = Problems::new();
            lists(schema, object, &Path::ROOT, &mut flaws);
            if let Some(old) = old.filter(|_| !flaws.is_empty()) {
                let mut before = Problems::new();
                lists(schema, old, &Path::ROOT, &mut before);
                flaws.retain(|_| before.is_empty());
            }
            out.extend(flaws);
        }
        if schema.ruled {
            if out.iter().any(hides_more) {
                let message = "Invalid value: \"null\": some validation rules were not checked because the object was \
                               invalid; correct the existing errors to complete validation";
                let field = value::NOWHERE.to_owned();
                out.push(Problem { reason: Reason::Invalid, field, message: message.to_owned() });
            } else {
                timing.evaluating(|| expressions::hold(schema, object, old, &mut out));
            }
        }
        out
    }
}

/// Whether a problem is of a sort with which rules cannot be tried.
fn hides_more(problem: &Problem) -> bool {
    use Reason::{Required, TooLong, TooMany, TypeInvalid};
    matches!(problem.reason, Required | TooLong | TooMany | TypeInvalid)
}

/// Objects of the API inside of an object.
fn objects(schema: &Schema, value: &Value, path: &Path<'_>, out: &mut Problems) {
    if !schema.noteworthy {
        return;
    }
    if schema.embedded {
        embedded::resource(value, path, out);
    }
    below(schema, value, path, &mut |schema, value, path| objects(schema, value, path, out));
}

/// Lists whose items are told apart have no two that are the same.
fn lists(schema: &Schema, value: &Value, path: &Path<'_>, out: &mut Problems) {
    if !schema.noteworthy {
        return;
    }
    if let (Some(kind), Value::List(items)) = (&schema.list, value) {
        let stray = |item: &Value| !item.is_null() && item.as_map().is_none();
        if let (ListKind::Map { .. }, Some(at)) = (kind, items.iter().position(stray)) {
            let detail = "must be an object for an array of list-type map";
            out.push(check::invalid_shown(&path.index(at), &value::go_shown(&items[at]), detail));
            return below(schema, value, path, &mut |schema, value, path| lists(schema, value, path, out));
        }
        let mut seen: HashMap<Vec<u8>, bool> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            let told = match kind {
                ListKind::Atomic => continue,
                ListKind::Set => item.clone(),
                ListKind::Map { keys } => held_by(keys, item),
            };
            let again = seen.entry(schema::encode::untyped(&told));
            if let Entry::Occupied(mut again) = again {
                // once, however often it is repeated
                if again.insert(true) {
                    continue;
                }
                let message = format!("Duplicate value: {}", value::go_shown(&told));
                let field = path.index(at).to_string();
                out.push(Problem { reason: Reason::Duplicate, field, message });
            } else {
                again.or_insert(false);
            }
        }
    }
    below(schema, value, path, &mut |schema, value, path| lists(schema, value, path, out));
}

/// What tells an item of a map-like list from the others, as text.
pub(super) fn told_by(keys: &[Text], item: &Value) -> Vec<u8> {
    schema::encode::untyped(&held_by(keys, item))
}

fn held_by(keys: &[Text], item: &Value) -> Value {
    let Some(map) = item.as_map() else { return item.clone() };
    let held = keys.iter().filter_map(|key| Some((key.clone(), map.get(key)?.clone())));
    Value::Map(held.collect())
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
    use crate::testing::json;

    fn told(schema: &str, object: &str) -> Vec<String> {
        let schema = json(schema);
        let made = Made::new(move || Schema::of(&schema), None);
        let world = env::Simulated::new(0, 0) as env::World;
        let told = made.check(&json(object), None, "", &Timing::uncounted(&world));
        told.iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    #[test]
    fn items_are_told_apart() {
        let schema = r#"{"type":"object","properties":{"s":{"type":"array","x-kubernetes-list-type":"set","items":
            {"type":"string"}},"m":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","p"],
            "items":{"type":"object","properties":{"k":{"type":"string"},"p":{"type":"integer"}}}}}}"#;
        assert_eq!(told(schema, r#"{"s":["a","b","a","a"]}"#), [r#"s[2]: Duplicate value: "a""#]);
        assert_eq!(
            told(schema, r#"{"m":[{"k":"a","p":1},{"k":"a","p":2},{"k":"a","p":1,"x":2}]}"#),
            [r#"m[2]: Duplicate value: map[string]interface {}{"k":"a", "p":1}"#]
        );
        assert!(told(schema, r#"{"s":["a"],"m":[]}"#).is_empty());
    }

    #[test]
    fn objects_inside_of_objects_are_objects() {
        let schema = r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object",
            "x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}"#;
        assert_eq!(
            told(schema, r#"{"l":[{"kind":"P"},{"apiVersion":"v1","kind":""}]}"#),
            [
                "l[0].apiVersion: Required value: must not be empty",
                r#"l[1].kind: Invalid value: "": must not be empty"#
            ]
        );
    }
}
