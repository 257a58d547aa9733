//! One requirement of a label selector.

use schema::format;
use schema::problem::quoted;
use std::fmt;

/// One condition on labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted: an object is matched with all of them by a search.
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Requirement {
    pub fn new(key: impl Into<String>, operator: Operator, mut values: Vec<String>) -> Self {
        values.sort();
        Requirement { key: key.into(), operator, values }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The problem of a requirement that the API does not accept in labels.
    pub fn problem(&self) -> Option<String> {
        let key = &self.key;
        if let Some(problem) = format::qualified_name(key).first() {
            return Some(format!("key: Invalid value: {}: {problem}", quoted(key)));
        }
        self.values.iter().enumerate().find_map(|(at, value)| {
            let problems = format::label_value(value);
            let problem = problems.first()?;
            Some(format!("values[{at}][{key}]: Invalid value: {}: {problem}", quoted(value)))
        })
    }

    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let found = label(&self.key);
        let listed =
            || found.is_some_and(|value| self.values.binary_search_by(|one| (**one).cmp(value)).is_ok());
        let number = || Some((found?.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match self.operator {
            Operator::Equals | Operator::In => listed(),
            Operator::NotEquals | Operator::NotIn => !listed(),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan => number().is_some_and(|(is, bound)| is > bound),
            Operator::LessThan => number().is_some_and(|(is, bound)| is < bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, &self.values);
        let set = || values.join(",");
        match self.operator {
            Operator::Exists => write!(out, "{key}"),
            Operator::DoesNotExist => write!(out, "!{key}"),
            Operator::Equals => write!(out, "{key}={}", set()),
            Operator::NotEquals => write!(out, "{key}!={}", set()),
            Operator::GreaterThan => write!(out, "{key}>{}", set()),
            Operator::LessThan => write!(out, "{key}<{}", set()),
            Operator::In => write!(out, "{key} in ({})", set()),
            Operator::NotIn => write!(out, "{key} notin ({})", set()),
        }
    }
}
