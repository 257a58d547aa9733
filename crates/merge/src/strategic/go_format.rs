//! Go formatting of values in error texts: `map[a:1 b:[x y]]`.

use schema::{Value, decode};

/// A value in the form that clients know from error texts.
pub fn format_value(value: &Value) -> String {
    let mut out = String::new();
    show(value, &mut out);
    out
}

/// A value as Go source would have it.
pub fn go_syntax(value: &Value) -> String {
    schema::problem::go_syntax_with(value, &|json| go_syntax(&decode::open(json)))
}

/// A value as Go formats it with the verb for text: everything else is marked as such.
pub(super) fn format_string_verb(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Json(_) => format_string_verb(&decode::open(value)),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(format_string_verb).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Map(map) => {
            let entries: Vec<_> =
                map.iter().map(|(name, value)| format!("{name}:{}", format_string_verb(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => format!("%!s({}={})", other.go_type(), format_value(other)),
    }
}

/// Several lists at once.
pub(super) fn format_lists(lists: &[&[Value]]) -> String {
    let mut out = String::from("[");
    for (nth, list) in lists.iter().enumerate() {
        if nth > 0 {
            out.push(' ');
        }
        show_list(list, &mut out);
    }
    out.push(']');
    out
}

fn show(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&schema::problem::float_text(*number)),
        Value::String(text) => out.push_str(text),
        Value::Json(_) => show(&decode::open(value), out),
        Value::List(items) => show_list(items, out),
        Value::Map(map) => {
            out.push_str("map[");
            for (nth, (name, value)) in map.iter().enumerate() {
                if nth > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                show(value, out);
            }
            out.push(']');
        }
    }
}

fn show_list(items: &[Value], out: &mut String) {
    out.push('[');
    for (nth, item) in items.iter().enumerate() {
        if nth > 0 {
            out.push(' ');
        }
        show(item, out);
    }
    out.push(']');
}
