//! Strict reader of plugin configuration, which reports all problems at once.
//!
//! An unknown field is an error, because an operator's typo could otherwise disable a restriction unnoticed.

use schema::Value;
use std::time::Duration;

/// One object of a configuration, and its path.
#[derive(Clone)]
pub struct Part<'v> {
    value: &'v Value,
    path: String,
}

/// The problems, each with its path.
#[derive(Debug, Default)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    pub fn add(&mut self, at: &str, why: impl AsRef<str>) {
        let why = why.as_ref();
        self.0.push(if at.is_empty() { why.to_owned() } else { format!("{at}: {why}") });
    }

    /// The problems one by one, if there are any.
    pub fn into_list(self) -> Result<(), Vec<String>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }

    /// The result, or the problems if there are any.
    pub fn into_result<T>(self, result: T) -> Result<T, String> {
        if self.0.is_empty() { Ok(result) } else { Err(self.0.join("; ")) }
    }
}

/// The whole configuration, of this kind and one of these versions.
pub fn whole<'v>(
    value: &'v Value,
    (group, versions, kind): (&str, &[&str], &str),
    fields: &[&str],
    problems: &mut ConfigErrors,
) -> Part<'v> {
    let versions: Vec<String> = versions.iter().map(|version| format!("{group}/{version}")).collect();
    let (given_version, given_kind) = (value.text(&["apiVersion"]), value.text(&["kind"]));
    if !versions.iter().any(|version| version == given_version) {
        problems.add("apiVersion", format!("{given_version:?} is none of {}", versions.join(", ")));
    }
    if given_kind != kind {
        problems.add("kind", format!("{given_kind:?} is not {kind}"));
    }
    let part = Part { value, path: String::new() };
    part.only(&[fields, &["apiVersion", "kind"]].concat(), problems);
    part
}

/// Like [`whole`], for a configuration whose kind differs by version.
pub fn whole_of<'v>(
    value: &'v Value,
    forms: &[(String, &str)],
    fields: &[&str],
    problems: &mut ConfigErrors,
) -> Part<'v> {
    let given = (value.text(&["apiVersion"]), value.text(&["kind"]));
    if !forms.iter().any(|(version, kind)| (version.as_str(), *kind) == given) {
        let expected: Vec<_> = forms.iter().map(|(version, kind)| format!("{version} {kind}")).collect();
        problems.add("", format!("{:?} of {:?} is none of {}", given.1, given.0, expected.join(", ")));
    }
    let part = Part { value, path: String::new() };
    part.only(&[fields, &["apiVersion", "kind"]].concat(), problems);
    part
}

impl<'v> Part<'v> {
    /// The root of a configuration without kind and version.
    pub fn root(value: &'v Value) -> Self {
        Part { value, path: String::new() }
    }

    /// The path of the object.
    pub fn path(&self) -> String {
        self.path.clone()
    }

    /// The path of a field.
    pub fn at(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Reports all fields but these.
    pub fn only(&self, fields: &[&str], problems: &mut ConfigErrors) {
        let Some(map) = self.value.as_map() else {
            return problems.add(&self.path, "must be an object");
        };
        for field in map.keys().filter(|field| !fields.contains(field)) {
            problems.add(&self.at(field), "unknown field");
        }
    }

    fn get(&self, field: &str) -> Option<&'v Value> {
        self.value.at(&[field]).filter(|it| !it.is_null())
    }

    fn typed<T>(
        &self,
        field: &str,
        (type_name, read): (&str, impl Fn(&'v Value) -> Option<T>),
        problems: &mut ConfigErrors,
    ) -> Option<T> {
        let value = self.get(field)?;
        let read = read(value);
        if read.is_none() {
            problems.add(&self.at(field), format!("must be {type_name}"));
        }
        read
    }

    pub fn text(&self, field: &str, problems: &mut ConfigErrors) -> Option<&'v str> {
        self.typed(field, ("a text", Value::as_str), problems)
    }

    pub fn int(&self, field: &str, problems: &mut ConfigErrors) -> Option<i64> {
        self.typed(field, ("a whole number", Value::as_int), problems)
    }

    /// A whole number from 0 on.
    pub fn count(&self, field: &str, problems: &mut ConfigErrors) -> Option<u64> {
        let read = |value: &Value| value.as_int()?.try_into().ok();
        self.typed(field, ("a whole number from 0 on", read), problems)
    }

    pub fn number(&self, field: &str, problems: &mut ConfigErrors) -> Option<f64> {
        let read = |value: &Value| match value {
            Value::Float(number) => Some(*number),
            other => other.as_int().map(|it| it as f64),
        };
        self.typed(field, ("a number", read), problems)
    }

    pub fn flag(&self, field: &str, problems: &mut ConfigErrors) -> Option<bool> {
        self.typed(field, ("true or false", Value::as_bool), problems)
    }

    /// A duration such as `1m30s`.
    pub fn duration(&self, field: &str, problems: &mut ConfigErrors) -> Option<Duration> {
        let read = |value: &Value| {
            let nanoseconds = schema::time::parse_duration(value.as_str()?).ok()?;
            Some(Duration::from_nanos(nanoseconds.try_into().ok()?))
        };
        self.typed(field, ("a duration such as 1m30s", read), problems)
    }

    /// One of several texts, as the value that it stands for.
    pub fn choice<T: Copy>(
        &self,
        field: &str,
        choices: &[(&str, T)],
        problems: &mut ConfigErrors,
    ) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let read = |value: &Value| {
            let text = value.as_str()?;
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
        };
        self.typed(field, (&format!("one of {}", names.join(", ")), read), problems)
    }

    pub fn texts(&self, field: &str, problems: &mut ConfigErrors) -> Vec<&'v str> {
        let read = |value: &'v Value| value.as_list()?.iter().map(Value::as_str).collect();
        self.typed(field, ("a list of texts", read), problems).unwrap_or_default()
    }

    /// A nested object with arbitrary fields.
    pub fn any(&self, field: &str) -> Option<Part<'v>> {
        Some(Part { value: self.get(field)?, path: self.at(field) })
    }

    /// A nested object with these fields only.
    pub fn part(&self, field: &str, fields: &[&str], problems: &mut ConfigErrors) -> Option<Part<'v>> {
        let part = self.any(field)?;
        part.only(fields, problems);
        Some(part)
    }

    /// The objects of a list.
    pub fn parts(&self, field: &str, fields: &[&str], problems: &mut ConfigErrors) -> Vec<Part<'v>> {
        let items = self.typed(field, ("a list", Value::as_list), problems).unwrap_or_default();
        let parts = items.iter().enumerate().map(|(at, value)| {
            let part = Part { value, path: format!("{}[{at}]", self.at(field)) };
            part.only(fields, problems);
            part
        });
        parts.collect()
    }

    /// All fields, each a string.
    pub fn entries(&self, problems: &mut ConfigErrors) -> Vec<(&'v str, &'v str)> {
        if self.value.as_map().is_none() {
            problems.add(&self.path, "must be an object");
        }
        let fields = self.value.as_map().into_iter().flat_map(|map| map.keys());
        fields.filter_map(|field| Some((field, self.text(field, problems)?))).collect()
    }
}
