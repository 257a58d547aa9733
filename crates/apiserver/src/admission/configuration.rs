//! Strict reader of plugin configuration that reports all problems at once.
//!
//! A field that nobody knows is an error, because what an operator wrote in vain is a hole that nobody sees.

use schema::Value;

/// One object of a configuration, and where it is.
#[derive(Clone)]
pub struct Part<'v> {
    value: &'v Value,
    path: String,
}

/// What is wrong, each with its place.
#[derive(Debug, Default)]
pub struct Wrong(Vec<String>);

impl Wrong {
    pub fn say(&mut self, at: &str, why: impl AsRef<str>) {
        let why = why.as_ref();
        self.0.push(if at.is_empty() { why.to_owned() } else { format!("{at}: {why}") });
    }

    /// The result, unless anything was wrong.
    pub fn unless<T>(self, result: T) -> Result<T, String> {
        if self.0.is_empty() { Ok(result) } else { Err(self.0.join("; ")) }
    }
}

/// The whole configuration, which must be of this kind and of one of these versions.
pub fn whole<'v>(
    value: &'v Value,
    (group, versions, kind): (&str, &[&str], &str),
    fields: &[&str],
    wrong: &mut Wrong,
) -> Part<'v> {
    let versions: Vec<String> = versions.iter().map(|version| format!("{group}/{version}")).collect();
    let (given, given_kind) = (value.text(&["apiVersion"]), value.text(&["kind"]));
    if !versions.iter().any(|version| version == given) {
        wrong.say("apiVersion", format!("{given:?} is none of {}", versions.join(", ")));
    }
    if given_kind != kind {
        wrong.say("kind", format!("{given_kind:?} is not {kind}"));
    }
    let part = Part { value, path: String::new() };
    part.only(&[fields, &["apiVersion", "kind"]].concat(), wrong);
    part
}

/// The same for a configuration whose kind is called differently in its versions.
pub fn whole_of<'v>(
    value: &'v Value,
    forms: &[(String, &str)],
    fields: &[&str],
    wrong: &mut Wrong,
) -> Part<'v> {
    let given = (value.text(&["apiVersion"]), value.text(&["kind"]));
    if !forms.iter().any(|(version, kind)| (version.as_str(), *kind) == given) {
        let known: Vec<_> = forms.iter().map(|(version, kind)| format!("{version} {kind}")).collect();
        wrong.say("", format!("{:?} of {:?} is none of {}", given.1, given.0, known.join(", ")));
    }
    let part = Part { value, path: String::new() };
    part.only(&[fields, &["apiVersion", "kind"]].concat(), wrong);
    part
}

impl<'v> Part<'v> {
    /// The root of a configuration that has neither kind nor version.
    pub fn root(value: &'v Value) -> Self {
        Part { value, path: String::new() }
    }

    /// Where a field of it is.
    pub fn at(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// No other fields than these.
    pub fn only(&self, fields: &[&str], wrong: &mut Wrong) {
        let Some(map) = self.value.as_map() else {
            return wrong.say(&self.path, "must be an object");
        };
        for field in map.keys().filter(|field| !fields.contains(field)) {
            wrong.say(&self.at(field), "there is no such field");
        }
    }

    fn get(&self, field: &str) -> Option<&'v Value> {
        self.value.at(&[field]).filter(|it| !it.is_null())
    }

    fn typed<T>(
        &self,
        field: &str,
        (what, read): (&str, impl Fn(&'v Value) -> Option<T>),
        wrong: &mut Wrong,
    ) -> Option<T> {
        let value = self.get(field)?;
        let read = read(value);
        if read.is_none() {
            wrong.say(&self.at(field), format!("must be {what}"));
        }
        read
    }

    pub fn text(&self, field: &str, wrong: &mut Wrong) -> Option<&'v str> {
        self.typed(field, ("a text", Value::as_str), wrong)
    }

    pub fn int(&self, field: &str, wrong: &mut Wrong) -> Option<i64> {
        self.typed(field, ("a whole number", Value::as_int), wrong)
    }

    pub fn texts(&self, field: &str, wrong: &mut Wrong) -> Vec<&'v str> {
        let read = |value: &'v Value| value.as_list()?.iter().map(Value::as_str).collect();
        self.typed(field, ("a list of texts", read), wrong).unwrap_or_default()
    }

    /// An object below this one whose fields are not known by name.
    pub fn any(&self, field: &str) -> Option<Part<'v>> {
        Some(Part { value: self.get(field)?, path: self.at(field) })
    }

    /// An object below this one, with no other fields than these.
    pub fn part(&self, field: &str, fields: &[&str], wrong: &mut Wrong) -> Option<Part<'v>> {
        let part = self.any(field)?;
        part.only(fields, wrong);
        Some(part)
    }

    /// The objects of a list.
    pub fn parts(&self, field: &str, fields: &[&str], wrong: &mut Wrong) -> Vec<Part<'v>> {
        let items = self.typed(field, ("a list", Value::as_list), wrong).unwrap_or_default();
        let parts = items.iter().enumerate().map(|(at, value)| {
            let part = Part { value, path: format!("{}[{at}]", self.at(field)) };
            part.only(fields, wrong);
            part
        });
        parts.collect()
    }

    /// All fields, each a text.
    pub fn entries(&self, wrong: &mut Wrong) -> Vec<(&'v str, &'v str)> {
        if self.value.as_map().is_none() {
            wrong.say(&self.path, "must be an object");
        }
        let fields = self.value.as_map().into_iter().flat_map(|map| map.keys());
        fields.filter_map(|field| Some((field, self.text(field, wrong)?))).collect()
    }
}
