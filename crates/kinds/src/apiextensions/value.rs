//! Validation of values against a compiled schema, with the API's error texts.
//!
//! Invariant: the work is linear in the value for each schema that applies to it.

use super::compiled::{Additional, Schema, float};
use super::formats;
use super::go_format::{NOWHERE, float_text, format_go};
use schema::pattern::LazyRegex;
use schema::problem::{Problem, Problems, Reason, quoted};
use schema::{Map, Path, Value, encode};
use std::collections::HashSet;

/// The problems of a value; `at` is the path of the value, empty for a whole object.
pub(super) fn check(schema: &Schema, value: &Value, at: &str) -> Problems {
    let mut checker = Checker { root: at, problems: Problems::new(), visited: 0 };
    checker.value(schema, value, &Path::ROOT);
    distinct(checker.problems)
}

/// Each problem once: several schemas of a value can report the same.
fn distinct(problems: Problems) -> Problems {
    let mut seen = HashSet::with_capacity(problems.len());
    let is_new: Vec<bool> = problems.iter().map(|it| seen.insert((&*it.field, &*it.message))).collect();
    drop(seen);
    if is_new.iter().all(|it| *it) {
        return problems;
    }
    problems.into_iter().zip(is_new).filter_map(|(it, is_new)| is_new.then_some(it)).collect()
}

struct Checker<'a> {
    /// The path of the whole value; `at` continues it.
    root: &'a str,
    problems: Problems,
    /// The number of schemas that were applied.
    visited: usize,
}

impl<'a> Checker<'a> {
    fn add(&mut self, reason: Reason, at: &Path<'_>, message: String) {
        if at.is_root() {
            return self.add_whole(reason, message);
        }
        let at = at.to_string();
        // an entry of the value itself
        let at = at.strip_prefix('.').unwrap_or(&at);
        let field = if self.root.is_empty() { at.to_owned() } else { format!("{}.{at}", self.root) };
        self.problems.push(Problem { reason, field, message });
    }

    /// Adds a problem of the whole value.
    fn add_whole(&mut self, reason: Reason, message: String) {
        let field = if self.root.is_empty() { NOWHERE } else { self.root }.to_owned();
        self.problems.push(Problem { reason, field, message });
    }

    fn invalid(&mut self, at: &Path<'_>, value: &Value, why: &str) {
        self.add(Reason::Invalid, at, format!("Invalid value: {}: {at} in body {why}", format_go(value)));
    }

    fn mistyped(&mut self, at: &Path<'_>, wanted: &str, found: &str) {
        let found = quoted(found);
        let message = format!("Invalid value: {found}: {at} in body must be of type {wanted}: {found}");
        self.add(Reason::TypeInvalid, at, message);
    }

    fn value(&mut self, schema: &Schema, value: &Value, at: &Path<'_>) {
        self.visited += 1;
        self.kind(schema, value, at);
        if value.is_null() {
            return self.options(schema, value, at);
        }
        self.narrowed(schema, value, at);
        match value {
            Value::String(text) => {
                self.text(schema, value, text, at);
                if !formats::fits(&schema.format, text) {
                    self.mistyped(at, &schema.format, text);
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

    fn kind(&mut self, schema: &Schema, value: &Value, at: &Path<'_>) {
        // a default is not checked for int-or-string
        let either = schema.int_or_string && self.root.is_empty();
        let wanted = if either { "integer,string" } else { &*schema.kind };
        // a float beyond the integers that floats hold exactly is no integer
        const EXACT: f64 = 9_007_199_254_740_991.0;
        let whole = matches!(value, Value::Float(it) if it.fract() == 0.0 && it.abs() <= EXACT);
        // unknown formats are checked for defaults only
        let known = !self.root.is_empty() || formats::is_known(&schema.format);
        let formed = !schema.format.is_empty() && known && !either;
        let fits = match (wanted, kind_of(value)) {
            // a format without a type is that of a string or list
            ("", found) => !formed || found == "null",
            (_, "null") => schema.nullable,
            ("integer,string", found) => matches!(found, "integer" | "string") || whole,
            ("number", "integer") => true,
            ("integer", "number") => whole,
            (wanted, found) => wanted == found,
        };
        let numeric = matches!(wanted, "integer" | "number");
        match value {
            // a string or list with a format is checked by that format only
            Value::String(_) | Value::List(_) if formed && !numeric => {}
            _ if fits => {}
            Value::Null | Value::String(_) | Value::List(_) => self.mistyped(at, wanted, kind_of(value)),
            Value::Int(_) | Value::Float(_) if &*schema.format == number_form(value) => {
                self.mistyped(at, wanted, kind_of(value));
            }
            _ if formed => self.mistyped(at, &schema.format, number_form(value)),
            _ => self.mistyped(at, wanted, kind_of(value)),
        }
    }

    /// Checks the value against another schema.
    fn tried(&self, schema: &Schema, value: &Value, at: &Path<'_>) -> Checker<'a> {
        let mut inner = Checker { root: self.root, problems: Problems::new(), visited: 0 };
        inner.value(schema, value, at);
        inner
    }

    fn narrowed(&mut self, schema: &Schema, value: &Value, at: &Path<'_>) {
        let Some(narrowed) = &schema.narrowed else { return };
        let composite = |why: &str| format!("Invalid value: \"\": {} must {why}", quoted(&at.to_string()));
        let all = |schemas: &[Schema]| -> Vec<Checker<'a>> {
            schemas.iter().map(|one| self.tried(one, value, at)).collect()
        };
        let (any_of, one_of, all_of) = (all(&narrowed.any_of), all(&narrowed.one_of), all(&narrowed.all_of));
        let not = narrowed.not.as_ref().map(|it| self.tried(it, value, at));
        let fitting = |tries: &[Checker<'a>]| tries.iter().filter(|it| it.problems.is_empty()).count();
        if !any_of.is_empty() && fitting(&any_of) == 0 {
            self.add_whole(Reason::Invalid, composite("validate at least one schema (anyOf)"));
            self.problems.extend(nearest(any_of));
        }
        if !one_of.is_empty() && fitting(&one_of) != 1 {
            let found = match fitting(&one_of) {
                0 => "none valid".to_owned(),
                several => format!("{several} valid alternatives"),
            };
            let why = format!("validate one and only one schema (oneOf). Found {found}");
            self.add_whole(Reason::Invalid, composite(&why));
            if fitting(&one_of) == 0 {
                self.problems.extend(nearest(one_of));
            }
        }
        let held = fitting(&all_of);
        if held < all_of.len() {
            let none = if held == 0 { ". None validated" } else { "" };
            self.problems.extend(all_of.into_iter().flat_map(|it| it.problems));
            self.add_whole(Reason::Invalid, composite(&format!("validate all the schemas (allOf){none}")));
        }
        if not.is_some_and(|it| it.problems.is_empty()) {
            self.add_whole(Reason::Invalid, composite("not validate the schema (not)"));
        }
    }

    /// Checks a string; reports the first problem.
    fn text(&mut self, schema: &Schema, value: &Value, text: &str, at: &Path<'_>) {
        let Some(bounds) = &schema.bounds else { return };
        let length = text.chars().count() as i64;
        if let Some(most) = bounds.max_length.filter(|most| length > *most) {
            let why = match most {
                ..0 => "value is too long".to_owned(),
                most => format!("may not be longer than {most}"),
            };
            self.add(Reason::TooLong, at, format!("Too long: {why}"));
        } else if let Some(least) = bounds.min_length.filter(|least| length < *least) {
            self.invalid(at, value, &format!("should be at least {least} chars long"));
        } else if let Some(pattern) = bounds.pattern.as_ref().filter(|it| misses(it, text)) {
            self.invalid(at, value, &format!("should match '{}'", pattern.text));
        }
    }

    fn number(&mut self, schema: &Schema, value: &Value, at: &Path<'_>) {
        let (Some(number), Some(bounds)) = (float(value), &schema.bounds) else { return };
        let or_equal = |open: bool| if open { "" } else { " or equal to" };
        // an integer is compared with integers
        let whole = matches!(value, Value::Int(_));
        let bound = |it: Option<f64>| it.map(|it| if whole { it.trunc() } else { it });
        // an integer is divided by integers, as far as there are any
        let factor = bounds.multiple_of.map(|it| if whole && it.trunc() != 0.0 { it.trunc() } else { it });
        if let Some(factor) = factor.filter(|it| *it < 0.0) {
            let factor = encode::float_text(factor);
            let why = format!("factor MultipleOf declared for {at} must be positive: {factor}");
            self.add(Reason::Invalid, at, format!("Invalid value: {factor}: {why}"));
        } else if let Some(factor) = factor.filter(|it| !is_multiple(value, number, *it)) {
            self.invalid(at, value, &format!("should be a multiple of {}", encode::float_text(factor)));
        }
        let open = bounds.exclusive_minimum;
        if let Some(least) = bound(bounds.minimum).filter(|it| number < *it || open && number == *it) {
            let least = bound_text(least, whole);
            self.invalid(at, value, &format!("should be greater than{} {least}", or_equal(open)));
        }
        let open = bounds.exclusive_maximum;
        if let Some(most) = bound(bounds.maximum).filter(|it| number > *it || open && number == *it) {
            let most = bound_text(most, whole);
            self.invalid(at, value, &format!("should be less than{} {most}", or_equal(open)));
        }
    }

    fn list(&mut self, schema: &Schema, items: &[Value], at: &Path<'_>) {
        if let Some(item) = &schema.items {
            for (nth, value) in items.iter().enumerate() {
                self.value(item, value, &at.index(nth));
            }
        }
        let (count, Some(bounds)) = (items.len() as i64, &schema.bounds) else { return };
        if let Some(least) = bounds.min_items.filter(|least| count < *least) {
            self.invalid(at, &Value::Int(count), &format!("should have at least {least} items"));
        }
        if let Some(most) = bounds.max_items.filter(|most| count > *most) {
            self.too_many(at, count, most);
        }
        let mut seen = HashSet::new();
        // only a definition that is rejected asks for it: its default is checked all the same
        if bounds.unique_items && !items.iter().all(|it| seen.insert(encode::untyped(it))) {
            let why = format!("Invalid value: \"\": {at} in body shouldn't contain duplicates");
            self.add(Reason::Invalid, at, why);
        }
    }

    fn too_many(&mut self, at: &Path<'_>, count: i64, most: i64) {
        let why = match most {
            ..0 => "has too many items".to_owned(),
            most => format!("must have at most {most} items"),
        };
        self.add(Reason::TooMany, at, format!("Too many: {count}: {why}"));
    }

    fn options(&mut self, schema: &Schema, value: &Value, at: &Path<'_>) {
        let allowed = &schema.options;
        // null is never among the options, even if the list has it
        let is_option = |it: &Value| !value.is_null() && (it == value || is_converted(value, it));
        if allowed.is_empty() || allowed.iter().any(is_option) {
            return;
        }
        let text_of = |it: &Value| match it {
            Value::String(text) => quoted(text),
            other => quoted(&String::from_utf8_lossy(&encode::untyped(other))),
        };
        let allowed: Vec<_> = allowed.iter().map(text_of).collect();
        let (found, allowed) = (format_go(value), allowed.join(", "));
        let message = format!("Unsupported value: {found}: supported values: {allowed}");
        self.add(Reason::NotSupported, at, message);
    }

    fn object(&mut self, schema: &Schema, map: &Map, at: &Path<'_>) {
        let count = map.len() as i64;
        if let Some(bounds) = &schema.bounds {
            if let Some(least) = bounds.min_properties.filter(|least| count < *least) {
                let why = format!("should have at least {least} properties");
                return self.invalid(at, &Value::Int(count), &why);
            }
            if let Some(most) = bounds.max_properties.filter(|most| count > *most) {
                return self.too_many(at, count, most);
            }
        }
        if !matches!(schema.additional, Additional::Nothing) {
            // the path of an entry of the value itself begins with a dot
            let nameless = Path::ROOT.field("");
            let owner = if at.is_root() { &nameless } else { at };
            for (name, value) in map.iter().filter(|(name, _)| schema.property(name).is_none()) {
                match &schema.additional {
                    Additional::Forbidden => {
                        let (why, formatted) =
                            (format!("{at}.{name} in body is a forbidden property"), quoted(name));
                        self.add(Reason::Invalid, at, format!("Invalid value: {formatted}: {why}"));
                    }
                    Additional::Like(more) => self.value(more, value, &owner.entry(name)),
                    Additional::Nothing => {}
                }
            }
        }
        for (name, property) in &schema.properties {
            if let Some(value) = map.get(name) {
                self.value(property, value, &at.entry(name));
            }
        }
        for name in schema.required.iter().filter(|it| !map.contains(it)) {
            self.add(Reason::Required, &at.entry(name), "Required value".to_owned());
        }
    }
}

fn misses(pattern: &LazyRegex, text: &str) -> bool {
    pattern.regex().is_some_and(|it| !it.is_match(text))
}

/// Whether a number is a multiple of the factor, within the precision of floats.
fn is_multiple(value: &Value, number: f64, factor: f64) -> bool {
    if let Value::Int(number) = value
        && factor >= 1.0
    {
        return number.checked_rem(factor as i64) == Some(0);
    }
    const EXACT: f64 = 9_007_199_254_740_991.0;
    const NEAR: f64 = 1e-9;
    let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    let (whole, off) = (times.trunc(), (times - times.trunc()).abs());
    times.abs() <= EXACT && (off == 0.0 || whole != 0.0 && off / (times.abs() + whole.abs()) < NEAR)
}

/// The problems of the first schema that applies to most of the value.
fn nearest(tries: Vec<Checker<'_>>) -> Problems {
    let best = tries.into_iter().reduce(|best, one| if one.visited > best.visited { one } else { best });
    best.map(|it| it.problems).unwrap_or_default()
}

/// Whether a number equals an allowed value after conversion to its type.
fn is_converted(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Float(number), Value::Int(it)) => number.trunc() == *it as f64,
        (Value::Int(number), Value::Float(it)) => *number as f64 == *it,
        _ => false,
    }
}

/// The format of a number in errors about another format.
fn number_form(value: &Value) -> &'static str {
    match value {
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        _ => "",
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

/// A bound as messages show it, as an integer if integers are compared.
fn bound_text(bound: f64, whole: bool) -> String {
    if whole { encode::float_text(bound) } else { float_text(bound) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        schema::decode::json_untyped(text.as_bytes()).expect("JSON").value
    }

    #[test]
    fn every_problem_has_its_path() {
        let schema = json(
            r#"{"type":"object","required":["z"],"properties":{"s":{"type":"string","maxLength":2,"pattern":"x"},
                "n":{"type":"integer","multipleOf":7,"minimum":10,"maximum":1},
                "l":{"type":"array","minItems":3,"items":{"type":"string"}},
                "o":{"type":"object","additionalProperties":false},
                "c":{"oneOf":[{"required":["a"]},{"required":["b"]}]}}}"#,
        );
        let value = json(r#"{"s":"aaa","n":5,"l":[1],"o":{"k":1},"c":{}}"#);
        let found: Vec<String> = check(&Schema::of(&schema), &value, "d")
            .iter()
            .map(|it| format!("{} {}", it.field, it.message))
            .collect();
        assert_eq!(
            found,
            [
                r#"d Invalid value: "": "c" must validate one and only one schema (oneOf). Found none valid"#,
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
        assert_eq!(check(&Schema::of(&schema), &json(r#"{"z":1,"l":["a","b","c"]}"#), ""), Problems::new());
    }

    #[test]
    fn counts_and_duplicates_of_items_are_checked() {
        let messages = |schema: &str, value: &str| -> Vec<String> {
            check(&Schema::of(&json(schema)), &json(value), "d").iter().map(|it| it.message.clone()).collect()
        };
        let duplicates = ["Invalid value: \"\":  in body shouldn't contain duplicates"];
        assert_eq!(messages(r#"{"type":"array","uniqueItems":true}"#, "[1,2,1]"), duplicates);
        assert!(messages(r#"{"type":"array","uniqueItems":true}"#, r#"[1,"1"]"#).is_empty());
        assert_eq!(
            messages(r#"{"type":"array","maxItems":1}"#, "[1,1]"),
            ["Too many: 2: must have at most 1 items"]
        );
        assert_eq!(messages(r#"{"type":"array","maxItems":-1}"#, "[1]"), ["Too many: 1: has too many items"]);
        assert_eq!(
            messages(r#"{"type":"object","maxProperties":-1}"#, r#"{"a":1}"#),
            ["Too many: 1: has too many items"]
        );
    }
}
