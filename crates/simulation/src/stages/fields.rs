//! Reads the fields of a document. Every mistake is reported with its path, and a field that is not read is one.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// An object of a document, and the mistakes of the document so far.
pub struct Fields<'d> {
    path: String,
    fields: Option<&'d Map<String, Value>>,
    read: Vec<&'static str>,
}

impl<'d> Fields<'d> {
    pub fn new(path: &str, value: &'d Value, errors: &mut Vec<String>) -> Self {
        if !matches!(value, Value::Object(_) | Value::Null) {
            errors.push(format!("{path}: must be an object"));
        }
        Fields { path: path.to_owned(), fields: value.as_object(), read: Vec::new() }
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// A field that is there.
    pub fn get(&mut self, name: &'static str) -> Option<&'d Value> {
        self.read.push(name);
        self.fields?.get(name).filter(|it| !it.is_null())
    }

    pub fn object(&mut self, name: &'static str, errors: &mut Vec<String>) -> Option<Fields<'d>> {
        let path = self.path(name);
        self.get(name).map(|value| Fields::new(&path, value, errors))
    }

    /// The objects of a list.
    pub fn objects(&mut self, name: &'static str, errors: &mut Vec<String>) -> Vec<Fields<'d>> {
        let path = self.path(name);
        let Some(value) = self.get(name) else { return Vec::new() };
        let Some(items) = value.as_array() else {
            errors.push(format!("{path}: must be a list"));
            return Vec::new();
        };
        let items = items.iter().enumerate();
        items.map(|(at, item)| Fields::new(&format!("{path}[{at}]"), item, errors)).collect()
    }

    pub fn text(&mut self, name: &'static str, errors: &mut Vec<String>) -> Option<String> {
        let value = self.get(name)?;
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            _ => {
                errors.push(format!("{}: must be a text", self.path(name)));
                None
            }
        }
    }

    pub fn number(&mut self, name: &'static str, errors: &mut Vec<String>) -> Option<u64> {
        let value = self.get(name)?;
        if value.as_u64().is_none() {
            errors.push(format!("{}: must be a number from 0 on", self.path(name)));
        }
        value.as_u64()
    }

    pub fn flag(&mut self, name: &'static str, errors: &mut Vec<String>) -> bool {
        let Some(value) = self.get(name) else { return false };
        if !value.is_boolean() {
            errors.push(format!("{}: must be true or false", self.path(name)));
        }
        value.as_bool() == Some(true)
    }

    pub fn texts(&mut self, name: &'static str, errors: &mut Vec<String>) -> BTreeMap<String, String> {
        let Some(inner) = self.object(name, errors) else { return BTreeMap::new() };
        let mut texts = BTreeMap::new();
        for (key, value) in inner.fields.into_iter().flatten() {
            match value.as_str() {
                Some(text) => drop(texts.insert(key.clone(), text.to_owned())),
                None => errors.push(format!("{}: must be a text", inner.path(key))),
            }
        }
        texts
    }

    /// Reports the fields that were not read.
    pub fn end(self, errors: &mut Vec<String>) {
        let names = self.fields.into_iter().flat_map(Map::keys);
        for name in names.filter(|it| !self.read.contains(&it.as_str())) {
            errors.push(format!("{}: is not understood", self.path(name)));
        }
    }
}
