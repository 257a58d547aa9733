//! Values checked against a schema, with the complaints that clients know.
//!
//! The schema is the tree that stands in a definition. Always true: a value that is valid gives no complaint,
//! and the work is linear in the value for each schema that speaks of it.

use super::pattern;
use crate::read;
use base64::Engine;
use schema::problem::{Problem, Reason, quoted, shown};
use schema::{Value, encode, format, time};

/// Everything that is wrong with a value; `at` is the path of the value as fields are named.
pub(super) fn check(schema: &Value, value: &Value, at: &str) -> Vec<Problem> {
    let mut checker = Checker { at, problems: Vec::new() };
    checker.value(schema, value, "");
    checker.problems
}

struct Checker<'a> {
    at: &'a str,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn add(&mut self, reason: Reason, below: &str, message: String) {
        let field = match below {
            "" => self.at.to_owned(),
            below => format!("{}.{}", self.at, below.trim_start_matches('.')),
        };
        self.problems.push(Problem { reason, field, message });
    }

    fn invalid(&mut self, below: &str, value: &Value, why: &str) {
        let message = format!("Invalid value: {}: {below} in body {why}", go_shown(value));
        self.add(Reason::Invalid, below, message);
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        self.kind(schema, value, at);
        if value.is_null() {
            return self.options(schema, value, at);
        }
        self.narrowed(schema, value, at);
        match value {
            Value::String(text) => {
                self.text(schema, value, text, at);
                self.format(schema, text, at);
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
        let int_or_string = read::flag(schema, &["x-kubernetes-int-or-string"]);
        let wanted = if int_or_string { "integer,string" } else { schema.text(&["type"]) };
        if wanted.is_empty() || value.is_null() && read::flag(schema, &["nullable"]) {
            return;
        }
        let found = kind_of(value);
        let whole = matches!(value, Value::Float(it) if it.fract() == 0.0);
        let fits = wanted.split(',').any(|wanted| {
            wanted == found || wanted == "number" && found == "integer" || wanted == "integer" && whole
        });
        if !fits {
            let why = format!("{at} in body must be of type {wanted}: {}", quoted(found));
            self.add(Reason::TypeInvalid, at, format!("Invalid value: {}: {why}", quoted(found)));
        }
    }

    fn narrowed(&mut self, schema: &Value, value: &Value, at: &str) {
        let holds = |one: &Value| {
            let mut inner = Checker { at: "", problems: Vec::new() };
            inner.value(one, value, at);
            inner.problems
        };
        let mut composite = |why: &str| {
            let name = quoted(at);
            self.add(Reason::Invalid, at, format!("Invalid value: \"\": {name} {why}"));
        };
        let any_of = schema.items(&["anyOf"]);
        if !any_of.is_empty() && !any_of.iter().any(|one| holds(one).is_empty()) {
            composite("must validate at least one schema (anyOf)");
        }
        let one_of = schema.items(&["oneOf"]);
        let fitting = one_of.iter().filter(|one| holds(one).is_empty()).count();
        if !one_of.is_empty() && fitting != 1 {
            let found = if fitting == 0 { "none valid".to_owned() } else { format!("{fitting} valid alternatives") };
            composite(&format!("must validate one and only one schema (oneOf). Found {found}"));
        }
        let all_of = schema.items(&["allOf"]);
        let broken = all_of.iter().filter(|one| !holds(one).is_empty()).count();
        if broken > 0 {
            let why = if broken == all_of.len() { ". None validated" } else { "" };
            composite(&format!("must validate all the schemas (allOf){why}"));
        }
        if let Some(not) = schema.at(&["not"]).filter(|it| !it.is_null())
            && holds(not).is_empty()
        {
            composite("must not validate the schema (not)");
        }
    }

    fn text(&mut self, schema: &Value, value: &Value, text: &str, at: &str) {
        let length = text.chars().count() as i64;
        if let Some(most) = read::opt_int(schema, &["maxLength"]).filter(|most| length > *most) {
            self.add(Reason::TooLong, at, format!("Too long: may not be longer than {most}"));
        }
        if let Some(least) = read::opt_int(schema, &["minLength"]).filter(|least| length < *least) {
            self.invalid(at, value, &format!("should be at least {least} chars long"));
        }
        let pattern = schema.text(&["pattern"]);
        if !pattern.is_empty() && pattern::compile(pattern).is_ok_and(|it| !it.is_match(text)) {
            self.invalid(at, value, &format!("should match '{pattern}'"));
        }
    }

    /// Formats that everybody knows; what is not known is no rule.
    fn format(&mut self, schema: &Value, text: &str, at: &str) {
        let format = schema.text(&["format"]);
        let fits = match format {
            "date-time" | "datetime" => time::parse_time(text).is_ok(),
            "ipv4" => format::parse_ip(text).is_some_and(|it| it.is_ipv4()),
            "ipv6" => format::parse_ip(text).is_some_and(|it| it.is_ipv6()),
            "cidr" => format::parse_cidr(text).is_some(),
            "byte" => is_base64(text),
            _ => true,
        };
        if !fits {
            let why = format!("{at} in body must be of type {format}: {}", quoted(text));
            self.add(Reason::Invalid, at, format!("Invalid value: {}: {why}", quoted(text)));
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, at: &str) {
        let of = |field: &str| match schema.at(&[field]) {
            Some(Value::Int(it)) => Some(*it as f64),
            Some(Value::Float(it)) => Some(*it),
            _ => None,
        };
        let number = match value {
            Value::Int(it) => *it as f64,
            Value::Float(it) => *it,
            _ => return,
        };
        let told = |it: f64| encode::float_text(it);
        if let Some(factor) = of("multipleOf").filter(|it| *it != 0.0)
            && (number / factor).fract() != 0.0
        {
            self.invalid(at, value, &format!("should be a multiple of {}", told(factor)));
        }
        if let Some(most) = of("maximum") {
            let open = read::flag(schema, &["exclusiveMaximum"]);
            if number > most || open && number == most {
                let or_equal = if open { "" } else { " or equal to" };
                self.invalid(at, value, &format!("should be less than{or_equal} {}", told(most)));
            }
        }
        if let Some(least) = of("minimum") {
            let open = read::flag(schema, &["exclusiveMinimum"]);
            if number < least || open && number == least {
                let or_equal = if open { "" } else { " or equal to" };
                self.invalid(at, value, &format!("should be greater than{or_equal} {}", told(least)));
            }
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
            self.add(Reason::TooMany, at, format!("Too many: {count}: must have at most {most} items"));
        }
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
        let message = format!("Unsupported value: {}: supported values: {}", go_shown(value), allowed.join(", "));
        self.add(Reason::NotSupported, at, message);
    }

    fn object(&mut self, schema: &Value, map: &schema::Map, at: &str) {
        let count = map.len() as i64;
        if let Some(least) = read::opt_int(schema, &["minProperties"]).filter(|least| count < *least) {
            self.invalid(at, &Value::Int(count), &format!("should have at least {least} properties"));
        }
        if let Some(most) = read::opt_int(schema, &["maxProperties"]).filter(|most| count > *most) {
            self.add(Reason::TooMany, at, format!("Too many: {count}: must have at most {most} items"));
        }
        for name in schema.items(&["required"]).iter().map(read::text) {
            if !map.contains(name) {
                self.add(Reason::Required, &format!("{at}.{name}"), "Required value".to_owned());
            }
        }
        let properties = read::map(schema, &["properties"]);
        let more = schema.at(&["additionalProperties"]).filter(|it| it.as_map().is_some());
        for (name, value) in map.iter() {
            if let Some(property) = properties.get(name).or(more) {
                self.value(property, value, &format!("{at}.{name}"));
            }
        }
    }
}

fn is_base64(text: &str) -> bool {
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    }
}

/// A value as messages show it, with the types that clients know where it has parts.
pub(super) fn go_shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
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
