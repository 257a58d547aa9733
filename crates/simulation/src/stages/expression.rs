//! Expressions in selectors and delays of stages: paths of jq, with `select`.
//!
//! `.metadata.annotations["a"]`, `.status.conditions.[] | select( .type == "Ready" ) | .status`

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// All elements of a list.
    Each,
    Index(usize),
    /// Values of which an expression equals a literal, or does not.
    Select {
        path: Vec<Step>,
        literal: Value,
        is_equal: bool,
    },
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression(Vec<Step>);

impl Expression {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text.trim() };
        let parsed = parser.pipeline().filter(|_| parser.rest.is_empty());
        parsed.map(Expression).ok_or_else(|| format!("{text:?} is not understood: paths and select are"))
    }

    /// The values that it finds, without nulls.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        find(&self.0, value)
    }
}

fn find<'v>(steps: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut values = vec![value];
    for step in steps {
        values = values.into_iter().flat_map(|value| apply(step, value)).filter(|it| !it.is_null()).collect();
    }
    values
}

fn apply<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => value.get(index).into_iter().collect(),
        Step::Each => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        },
        Step::Select { path, literal, is_equal } => {
            let is_found = find(path, value).first().copied().unwrap_or(&Value::Null) == literal;
            if is_found == *is_equal { vec![value] } else { Vec::new() }
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// Takes a text after spaces, if it is there.
    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn pipeline(&mut self) -> Option<Vec<Step>> {
        let mut steps = self.term()?;
        while self.take("|") {
            steps.extend(self.term()?);
        }
        self.rest = self.rest.trim_start();
        Some(steps)
    }

    fn term(&mut self) -> Option<Vec<Step>> {
        if !self.take("select") {
            return self.path();
        }
        let is_open = self.take("(");
        let path = self.path().filter(|_| is_open)?;
        let is_equal = self.take("==");
        if !is_equal && !self.take("!=") {
            return None;
        }
        let literal = self.literal()?;
        self.take(")").then(|| vec![Step::Select { path, literal, is_equal }])
    }

    fn path(&mut self) -> Option<Vec<Step>> {
        if !self.take(".") {
            return None;
        }
        let mut steps = Vec::new();
        loop {
            if self.rest.starts_with('[') {
                steps.push(self.bracket()?);
            } else {
                let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
                if !name.is_empty() {
                    steps.push(Step::Field(name.to_owned()));
                }
            }
            if !self.rest.starts_with('[') {
                let Some(rest) = self.rest.strip_prefix('.') else { return Some(steps) };
                self.rest = rest;
            }
        }
    }

    fn bracket(&mut self) -> Option<Step> {
        self.rest = self.rest.strip_prefix('[')?;
        if self.take("]") {
            return Some(Step::Each);
        }
        let step = match self.literal()? {
            Value::String(name) => Step::Field(name),
            Value::Number(number) => Step::Index(usize::try_from(number.as_u64()?).ok()?),
            _ => return None,
        };
        self.take("]").then_some(step)
    }

    fn literal(&mut self) -> Option<Value> {
        self.rest = self.rest.trim_start();
        let end = match self.rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"')? + 2,
            None => {
                self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(self.rest.len())
            }
        };
        let (literal, rest) = self.rest.split_at(end);
        self.rest = rest;
        serde_json::from_str(literal).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(text: &str) -> Vec<Value> {
        let object = json!({
            "metadata": {"annotations": {"a/b": "1"}, "ownerReferences": [{"kind": "Job"}, {"kind": "X"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}], "none": null},
        });
        Expression::parse(text).unwrap().find(&object).into_iter().cloned().collect()
    }

    #[test]
    fn paths_find_values() {
        assert_eq!(find(r#".metadata.annotations["a/b"]"#), [json!("1")]);
        assert_eq!(find(".metadata.ownerReferences.[].kind"), [json!("Job"), json!("X")]);
        assert_eq!(find(".metadata.ownerReferences[1].kind"), [json!("X")]);
        assert_eq!(find(r#".status.conditions.[] | select( .type == "Ready" ) | .status"#), [json!("True")]);
        assert_eq!(find(r#".status.conditions[] | select(.type != "Ready") | .status"#), [json!("False")]);
        assert!(find(".status.none").is_empty() && find(".spec.x.y").is_empty());
    }

    #[test]
    fn other_expressions_are_refused() {
        for text in ["", "metadata", ".a | length", ".a + 1", "select(.a == 1", r#".a["b"#, ".a |"] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}
