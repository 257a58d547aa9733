//! Expressions with the recorded results of release 1.26: issues, results, faults, estimates and costs.
//!
//! A file has a schema, an object, perhaps the one before, and cases: the expression, `refused`, `gives` or
//! `fails`, with the words or the value, then the estimate and the cost. One file is about objects that are not
//! declared, as policies see them.

use cel::{Budget, CelValue, Declaration, Env, EvalError, List, Variables};
use schema::Value;
use std::path::Path;

fn read(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    schema::decode::json_untyped(&bytes).unwrap_or_else(|why| panic!("{}: {why}", path.display())).value
}

/// A value as the recordings show it.
fn format_value(value: &CelValue<'_>) -> String {
    match value {
        CelValue::Null => "null".to_owned(),
        CelValue::Bool(it) => it.to_string(),
        CelValue::Int(it) => it.to_string(),
        CelValue::Uint(it) => format!("{it}u"),
        CelValue::Double(_) => format!("d{}", text(value)),
        CelValue::String(it) => schema::problem::quoted(it),
        CelValue::Bytes(it) => {
            let digits: Vec<String> = it.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("b{}", digits.concat())
        }
        CelValue::Duration(_) => format!("D{}", text(value)),
        CelValue::Timestamp(_) => format!("t{}", text(value)),
        CelValue::Type(name) => format!("type:{name}"),
        CelValue::Url(url) => format!("url:{url}"),
        CelValue::Map(map) => format!("map:{}", map.len()),
        CelValue::List(list) => format!("[{}]", items(list).join(", ")),
        CelValue::Opaque(_) => "*cel.unknownPreserved".to_owned(),
    }
}

fn items(list: &List<'_>) -> Vec<String> {
    list.iter().map(|it| it.map_or_else(|_| "err".to_owned(), |it| format_value(&it))).collect()
}

/// The same as the function `string` makes it.
fn text(value: &CelValue<'_>) -> String {
    value.text().unwrap_or_default()
}

struct Case<'f> {
    file: &'f Value,
    env: Env,
}

impl Case<'_> {
    /// The results of an expression: kind, words, estimate and cost.
    fn run(&self, expr: &str) -> [String; 4] {
        let none = || String::new();
        let program = match self.env.compile(expr) {
            Ok(program) => program,
            Err(why) => return ["refused".to_owned(), why.to_string(), none(), none()],
        };
        let estimate = format!("{}-{}", program.cost().min, program.cost().max);
        let mut variables = Variables::new();
        for (name, field) in [("self", "self"), ("oldSelf", "old")] {
            if let Some(value) = self.file.at(&[field]) {
                variables = variables.with(name, value);
            }
        }
        let mut budget = Budget::default();
        let (kind, words) = match program.eval(&variables, &mut budget) {
            Ok(value) => ("gives", format_value(&value)),
            Err(why @ (EvalError::Failed(_) | EvalError::OverBudget)) => ("fails", why.to_string()),
        };
        [kind.to_owned(), words, estimate, budget.spent().to_string()]
    }
}

#[test]
fn expressions_match_recorded_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut differences = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = read(&path);
        let undeclared = file.at(&["undeclared"]).is_some();
        let declared = match file.at(&["schema"]) {
            Some(schema) => {
                let root = file.at(&["root"]).and_then(Value::as_bool).unwrap();
                Declaration::from_schema(schema, "selfType0", root).unwrap()
            }
            None => Declaration::any(),
        };
        let env = Env::new().variable("self", declared.clone()).variable("oldSelf", declared);
        let case = Case { file: &file, env };
        for recorded in file.items(&["cases"]) {
            let recorded: Vec<&str> = recorded.as_list().unwrap().iter().filter_map(Value::as_str).collect();
            let expected = &recorded[1..];
            let mut found = case.run(recorded[0]);
            if undeclared {
                // nothing is estimated or counted there
                found[2..].iter_mut().for_each(String::clear);
            }
            count += 1;
            if found[..] != *expected {
                let name = path.file_name().unwrap().to_string_lossy();
                let expr: String = recorded[0].chars().take(200).collect();
                differences.push(format!("{name}: {expr}\n  recorded {expected:?}\n  found    {found:?}"));
            }
        }
    }
    assert!(count > 0);
    let report = differences.join("\n");
    assert!(differences.is_empty(), "{} of {count} cases differ:\n{report}", differences.len());
}
