//! Values checked against a schema, with the complaints that clients know.
//!
//! The schema is the tree that stands in a definition. Always true: a value that is valid gives no complaint,
//! and the work is linear in the value for each schema that speaks of it.

use super::formats;
use crate::read;
use schema::problem::{Problem, Reason, quoted, shown};
use schema::{Map, Value, encode, pattern};

/// Everything that is wrong with a value; `at` is the path of the value as fields are named.
pub(super) fn check(schema: &Value, value: &Value, at: &str) -> Vec<Problem> {
    let mut checker = Checker { root: at, problems: Vec::new(), visited: 0 };
    checker.value(schema, value, "");
    checker.problems
}

struct Checker<'a> {
    /// The path of the value as a whole; below it, `at` says where.
    root: &'a str,
    problems: Vec<Problem>,
    /// How many schemas have been looked at.
    visited: usize,
}

impl<'a> Checker<'a> {
    fn add(&mut self, reason: Reason, at: &str, message: String) {
        let field = match at.strip_prefix('.').unwrap_or(at) {
            "" => self.root.to_owned(),
            below => format!("{}.{below}", self.root),
        };
        self.problems.push(Problem { reason, field, message });
    }

    fn invalid(&mut self, at: &str, value: &Value, why: &str) {
        self.add(Reason::Invalid, at, format!("Invalid value: {}: {at} in body {why}", go_shown(value)));
    }

    fn mistyped(&mut self, at: &str, wanted: &str, found: &str) {
        let found = quoted(found);
        let message = format!("Invalid value: {found}: {at} in body must be of type {wanted}: {found}");
        self.add(Reason::TypeInvalid, at, message);
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        self.visited += 1;
        self.kind(schema, value, at);
        if value.is_null() {
            return self.options(schema, value, at);
        }
        self.narrowed(schema, value, at);
        match value {
            Value::String(text) => {
                self.text(schema, value, text, at);
                let format = schema.text(&["format"]);
                if !formats::fits(format, text) {
                    self.mistyped(at, format, text);
                }
            }
            Value::Int(_) | Value::Float(_) => self.number(schema, value, at),
            Value::List(items) => self.list(schema, items, at),
            _ => {}
        }
        self.options(schema, value, at);
        if let Value::Map(map) = value {
            self.object(schema, map, at);
        }
    }

    fn kind(&mut self, schema: &Value, value: &Value, at: &str) {
        let wanted = schema.text(&["type"]);
        let whole = matches!(value, Value::Float(it) if it.fract() == 0.0);
        let fits = match (wanted, kind_of(value)) {
            ("", _) => true,
            (_, "null") => read::flag(schema, &["nullable"]),
            ("number", "integer") => true,
            ("integer", "number") => whole,
            (wanted, found) => wanted == found,
        };
        if !fits {
            self.mistyped(at, wanted, kind_of(value));
        }
    }

    /// What is wrong with the value in another schema.
    fn tried(&self, schema: &Value, value: &Value, at: &str) -> Checker<'a> {
        let mut inner = Checker { root: self.root, problems: Vec::new(), visited: 0 };
        inner.value(schema, value, at);
        inner
    }

    fn narrowed(&mut self, schema: &Value, value: &Value, at: &str) {
        let composite = |why: &str| format!("Invalid value: \"\": {} must {why}", quoted(at));
        let all = |field: &str| -> Vec<Checker<'a>> {
            schema.items(&[field]).iter().map(|one| self.tried(one, value, at)).collect()
        };
        let (any_of, one_of, all_of) = (all("anyOf"), all("oneOf"), all("allOf"));
        let not = schema.at(&["not"]).filter(|it| !it.is_null()).map(|it| self.tried(it, value, at));
        let fitting = |tries: &[Checker<'a>]| tries.iter().filter(|it| it.problems.is_empty()).count();
        if !any_of.is_empty() && fitting(&any_of) == 0 {
            self.add(Reason::Invalid, at, composite("validate at least one schema (anyOf)"));
            self.problems.extend(nearest(any_of));
        }
        if !one_of.is_empty() && fitting(&one_of) != 1 {
            let found = match fitting(&one_of) {
                0 => "none valid".to_owned(),
                several => format!("{several} valid alternatives"),
            };
            let why = format!("validate one and only one schema (oneOf). Found {found}");
            self.add(Reason::Invalid, at, composite(&why));
            if fitting(&one_of) == 0 {
                self.problems.extend(nearest(one_of));
            }
        }
        let held = fitting(&all_of);
        if held < all_of.len() {
            let none = if held == 0 { ". None validated" } else { "" };
            self.problems.extend(all_of.into_iter().flat_map(|it| it.problems));
            self.add(Reason::Invalid, at, composite(&format!("validate all the schemas (allOf){none}")));
        }
        if not.is_some_and(|it| it.problems.is_empty()) {
            self.add(Reason::Invalid, at, composite("not validate the schema (not)"));
        }
    }

    /// The first thing that is wrong with a text.
    fn text(&mut self, schema: &Value, value: &Value, text: &str, at: &str) {
        let length = text.chars().count() as i64;
        let pattern = schema.text(&["pattern"]);
        if let Some(most) = read::opt_int(schema, &["maxLength"]).filter(|most| length > *most) {
            self.add(Reason::TooLong, at, format!("Too long: may not be longer than {most}"));
        } else if let Some(least) = read::opt_int(schema, &["minLength"]).filter(|least| length < *least) {
            self.invalid(at, value, &format!("should be at least {least} chars long"));
        } else if !pattern.is_empty() && pattern::compile(pattern).is_ok_and(|it| !it.is_match(text)) {
            self.invalid(at, value, &format!("should match '{pattern}'"));
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(number) = float(value) else { return };
        let of = |field: &str| schema.at(&[field]).and_then(float);
        let or_equal = |open: bool| if open { "" } else { " or equal to" };
        if let Some(factor) = of("multipleOf").filter(|it| *it != 0.0 && (number / it).fract() != 0.0) {
            self.invalid(at, value, &format!("should be a multiple of {}", encode::float_text(factor)));
        }
        let open = read::flag(schema, &["exclusiveMinimum"]);
        if let Some(least) = of("minimum").filter(|it| number < *it || open && number == *it) {
            let least = encode::float_text(least);
            self.invalid(at, value, &format!("should be greater than{} {least}", or_equal(open)));
        }
        let open = read::flag(schema, &["exclusiveMaximum"]);
        if let Some(most) = of("maximum").filter(|it| number > *it || open && number == *it) {
            let most = encode::float_text(most);
            self.invalid(at, value, &format!("should be less than{} {most}", or_equal(open)));
        }
    }

    fn list(&mut self, schema: &Value, items: &[Value], at: &str) {
        if let Some(item) = schema.at(&["items"]).filter(|it| it.as_map().is_some()) {
            for (nth, value) in items.iter().enumerate() {
                self.value(item, value, &format!("{at}[{nth}]"));
            }
        }
        let count = items.len() as i64;
        if let Some(least) = read::opt_int(schema, &["minItems"]).filter(|least| count < *least) {
            self.invalid(at, &Value::Int(count), &format!("should have at least {least} items"));
        }
        if let Some(most) = read::opt_int(schema, &["maxItems"]).filter(|most| count > *most) {
            self.too_many(at, count, most);
        }
    }

    fn too_many(&mut self, at: &str, count: i64, most: i64) {
        self.add(Reason::TooMany, at, format!("Too many: {count}: must have at most {most} items"));
    }

    fn options(&mut self, schema: &Value, value: &Value, at: &str) {
        let allowed = schema.items(&["enum"]);
        if allowed.is_empty() || allowed.contains(value) {
            return;
        }
        let told = |it: &Value| match it {
            Value::String(text) => quoted(text),
            other => quoted(&String::from_utf8_lossy(&encode::untyped(other))),
        };
        let allowed: Vec<_> = allowed.iter().map(told).collect();
        let (found, allowed) = (go_shown(value), allowed.join(", "));
        let message = format!("Unsupported value: {found}: supported values: {allowed}");
        self.add(Reason::NotSupported, at, message);
    }

    fn object(&mut self, schema: &Value, map: &Map, at: &str) {
        let count = map.len() as i64;
        if let Some(least) = read::opt_int(schema, &["minProperties"]).filter(|least| count < *least) {
            return self.invalid(at, &Value::Int(count), &format!("should have at least {least} properties"));
        }
        if let Some(most) = read::opt_int(schema, &["maxProperties"]).filter(|most| count > *most) {
            return self.too_many(at, count, most);
        }
        let properties = read::map(schema, &["properties"]);
        let more = schema.at(&["additionalProperties"]);
        for (name, value) in map.iter().filter(|(name, _)| !properties.contains(name)) {
            match more {
                Some(Value::Bool(false)) => {
                    let (told, shown) =
                        (format!("{at}.{name} in body is a forbidden property"), quoted(name));
                    self.add(Reason::Invalid, at, format!("Invalid value: {shown}: {told}"));
                }
                Some(more @ Value::Map(_)) => self.value(more, value, &format!("{at}.{name}")),
                _ => {}
            }
        }
        let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        for (name, property) in properties.iter() {
            if let Some(value) = map.get(name) {
                self.value(property, value, &below(name));
            }
        }
        for name in schema.items(&["required"]).iter().map(read::text).filter(|it| !map.contains(it)) {
            self.add(Reason::Required, &below(name), "Required value".to_owned());
        }
    }
}

/// What is wrong in the schema that speaks of most of the value; of several, the first.
fn nearest(tries: Vec<Checker<'_>>) -> Vec<Problem> {
    let best = tries.into_iter().reduce(|best, one| if one.visited > best.visited { one } else { best });
    best.map(|it| it.problems).unwrap_or_default()
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(it) => Some(*it as f64),
        Value::Float(it) => Some(*it),
        _ => None,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) | Value::Json(_) => "object",
    }
}

/// A value as messages show it, with the types that clients know where it has parts.
pub(super) fn go_shown(value: &Value) -> String {
    match value {
        Value::Null => quoted("null"),
        other => part_shown(other),
    }
}

fn part_shown(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(part_shown).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<_> =
                map.iter().map(|(name, value)| format!("{}:{}", quoted(name), part_shown(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        scalar => shown(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        schema::decode::json_untyped(text.as_bytes()).expect("JSON").value
    }

    #[test]
    fn every_complaint_has_its_place() {
        let schema = json(
            r#"{"type":"object","required":["z"],"properties":{"s":{"type":"string","maxLength":2,"pattern":"x"},
                "n":{"type":"integer","multipleOf":7,"minimum":10,"maximum":1},
                "l":{"type":"array","minItems":3,"items":{"type":"string"}},
                "o":{"type":"object","additionalProperties":false},
                "c":{"oneOf":[{"required":["a"]},{"required":["b"]}]}}}"#,
        );
        let value = json(r#"{"s":"aaa","n":5,"l":[1],"o":{"k":1},"c":{}}"#);
        let found: Vec<String> =
            check(&schema, &value, "d").iter().map(|it| format!("{} {}", it.field, it.message)).collect();
        assert_eq!(
            found,
            [
                r#"d.c Invalid value: "": "c" must validate one and only one schema (oneOf). Found none valid"#,
                "d.c.a Required value",
                r#"d.l[0] Invalid value: "integer": l[0] in body must be of type string: "integer""#,
                "d.l Invalid value: 1: l in body should have at least 3 items",
                "d.n Invalid value: 5: n in body should be a multiple of 7",
                "d.n Invalid value: 5: n in body should be greater than or equal to 10",
                "d.n Invalid value: 5: n in body should be less than or equal to 1",
                r#"d.o Invalid value: "k": o.k in body is a forbidden property"#,
                "d.s Too long: may not be longer than 2",
                "d.z Required value",
            ]
        );
        assert_eq!(check(&schema, &json(r#"{"z":1,"l":["a","b","c"]}"#), ""), []);
    }
}
