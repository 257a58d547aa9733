//! The general functions of templates: those of Go, and some that stages add.

use serde_json::{Map, Value, json};

/// The names of the functions of [`call`].
pub const FUNCTIONS: &[&str] = &[
    "or",
    "and",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "index",
    "print",
    "printf",
    "Quote",
    "YAML",
    "dict",
    "NodeConditions",
];

/// Calls one of them.
pub fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let value = |is_true: bool| Ok(Value::Bool(is_true));
    match (name, arguments) {
        ("or", [first, ..]) => {
            Ok(arguments.iter().find(|it| is_true(it)).or(arguments.last()).unwrap_or(first).clone())
        }
        ("and", [first, ..]) => {
            Ok(arguments.iter().find(|it| !is_true(it)).or(arguments.last()).unwrap_or(first).clone())
        }
        ("not", [of]) => value(!is_true(of)),
        ("eq", [first, others @ ..]) if !others.is_empty() => value(others.contains(first)),
        ("ne", [a, b]) => value(a != b),
        ("lt" | "le" | "gt" | "ge", [a, b]) => {
            let order = match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => a.as_str().zip(b.as_str()).map(|(a, b)| a.cmp(b)),
            };
            let order = order.ok_or_else(|| format!("{name}: the values cannot be compared"))?;
            value(match name {
                "lt" => order.is_lt(),
                "le" => order.is_le(),
                "gt" => order.is_gt(),
                _ => order.is_ge(),
            })
        }
        ("len", [Value::Array(items)]) => Ok(json!(items.len())),
        ("len", [Value::Object(fields)]) => Ok(json!(fields.len())),
        ("len", [Value::String(text)]) => Ok(json!(text.len())),
        ("index", [of, keys @ ..]) => {
            let step = |value: Value, key: &Value| match key {
                Value::String(name) => value.get(name).cloned().unwrap_or_default(),
                key => key
                    .as_u64()
                    .and_then(|it| value.get(usize::try_from(it).ok()?))
                    .cloned()
                    .unwrap_or_default(),
            };
            Ok(keys.iter().fold(of.clone(), step))
        }
        ("print", _) => Ok(json!(arguments.iter().map(text).collect::<String>())),
        ("printf", [Value::String(format), rest @ ..]) => printf(format, rest).map(Value::String),
        ("Quote", [of]) => Ok(json!(Value::String(text(of)).to_string())),
        // a last key without a value has an empty one
        ("dict", pairs) => {
            let pair = |it: &[Value]| (text(&it[0]), it.get(1).cloned().unwrap_or_else(|| json!("")));
            Ok(Value::Object(pairs.chunks(2).map(pair).collect()))
        }
        ("NodeConditions", []) => Ok(node_conditions()),
        ("YAML", [of]) => Ok(json!(yaml(of, 0))),
        ("YAML", [of, indent]) => Ok(json!(yaml(of, indent.as_u64().unwrap_or(0)))),
        _ => Err(format!("the function {name:?} with {} arguments is not understood", arguments.len())),
    }
}

/// The conditions of a node that is well.
fn node_conditions() -> Value {
    let conditions = [
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ];
    let condition = |(kind, status, reason, message)| json!({"type": kind, "status": status, "reason": reason, "message": message});
    Value::Array(conditions.map(condition).to_vec())
}

/// A value as YAML, each line of it indented by levels of two spaces. JSON on one line is YAML, too.
fn yaml(value: &Value, levels: u64) -> String {
    let indent = " ".repeat(usize::try_from(levels.min(32) * 2).unwrap_or(0));
    let lines = |fields: &Map<String, Value>| {
        let line =
            |(key, value): (&String, &Value)| format!("{indent}{}: {value}\n", Value::String(key.clone()));
        fields.iter().map(line).collect::<String>()
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => lines(fields),
        Value::Array(items) if !items.is_empty() => {
            items.iter().map(|it| format!("{indent}- {it}\n")).collect()
        }
        other => format!("{indent}{other}\n"),
    }
}

fn printf(format: &str, arguments: &[Value]) -> Result<String, String> {
    let (mut out, mut chars, mut arguments) = (String::new(), format.chars(), arguments.iter());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let verb = chars.next().ok_or("printf: a verb is missing")?;
        if verb == '%' {
            out.push('%');
            continue;
        }
        let argument = arguments.next().ok_or("printf: an argument is missing")?;
        match verb {
            's' | 'v' | 'd' => out.push_str(&text(argument)),
            'q' => out.push_str(&Value::String(text(argument)).to_string()),
            _ => return Err(format!("printf: %{verb} is not understood")),
        }
    }
    Ok(out)
}

pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// A value as an action prints it.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
