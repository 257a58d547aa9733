//! A tree of values, as the write path sees an object.
//!
//! Invariant: maps are sorted by key, so that lookup is a binary search and equality is structural. The table, not the
//! tree, decides the order in which fields are written.

use crate::text::{Text, equal, head, order};
use std::borrow::Cow;
use std::sync::Arc;

/// A JSON value. Quantities, times and bytes are text in their canonical form.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<Value>),
    Map(Map),
    /// An object that its table keeps as compact text, which only its owner parses. Managed fields are a large part of
    /// an object, and most code only passes them on. In a raw object, also a number whose text is not the canonical one.
    Json(Arc<str>),
}

/// Entries sorted by key, keys unique.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    entries: Vec<(Text, Value)>,
}

/// Maps up to this length are scanned instead of searched.
const SHORT: usize = 16;

impl Map {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Map { entries: Vec::with_capacity(capacity) }
    }

    /// Sorts the entries; the last of equal keys wins. Returns the duplicate keys.
    pub fn from_unsorted(mut entries: Vec<(Text, Value)>) -> (Self, Vec<Text>) {
        let mut repeated = Vec::new();
        if !entries.is_sorted_by(|a, b| order(&a.0, &b.0).is_lt()) {
            entries.sort_by(|a, b| order(&a.0, &b.0));
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    // the sort is stable, so the one dropped here came later in the text and must win
                    std::mem::swap(&mut later.1, &mut earlier.1);
                    if repeated.last() != Some(&earlier.0) {
                        repeated.push(earlier.0.clone());
                    }
                }
                same
            });
        }
        (Map { entries }, repeated)
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        let wanted = head(key);
        self.entries.binary_search_by(|(k, _)| head(k).cmp(&wanted).then_with(|| (**k).cmp(key)))
    }

    /// The position of a key. Most maps are short, and most names of one map differ in their length or first bytes:
    /// then a scan is less work than a search.
    fn position(&self, key: &str) -> Option<usize> {
        if self.entries.len() > SHORT {
            return self.find(key).ok();
        }
        self.entries.iter().position(|(k, _)| equal(k, key))
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|at| &self.entries[at].1)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).map(|at| &mut self.entries[at].1)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// The entry at a position in the order of keys.
    pub fn nth(&self, at: usize) -> Option<(&str, &Value)> {
        self.entries.get(at).map(|(k, v)| (&**k, v))
    }

    /// Creates a map from sorted entries with unique keys.
    pub fn from_sorted(entries: Vec<(Text, Value)>) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| *a.0 < *b.0), "entries come sorted");
        Map { entries }
    }

    /// Inserts a value, and returns the previous one.
    pub fn insert(&mut self, key: impl Into<Text>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value)),
            Err(at) => {
                self.entries.insert(at, (key, value));
                None
            }
        }
    }

    /// The value at `key`; inserts `Null` if it is missing.
    pub fn entry(&mut self, key: impl Into<Text>) -> &mut Value {
        let key = key.into();
        let at = match self.find(&key) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, (key, Value::Null));
                at
            }
        };
        &mut self.entries[at].1
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.position(key).map(|at| self.entries.remove(at).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.entries.retain_mut(|(k, v)| keep(k, v));
    }

    /// The map with every value replaced.
    pub fn map_values(&self, value: impl Fn(&Value) -> Value) -> Map {
        Map { entries: self.entries.iter().map(|(key, held)| (key.clone(), value(held))).collect() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(k, v)| (&**k, v))
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&str, &mut Value)> {
        self.entries.iter_mut().map(|(k, v)| (&**k, v))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(k, _)| &**k)
    }
}

impl IntoIterator for Map {
    type Item = (Text, Value);
    type IntoIter = std::vec::IntoIter<(Text, Value)>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl FromIterator<(Text, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Text, Value)>>(iter: I) -> Self {
        Map::from_unsorted(iter.into_iter().collect()).0
    }
}

impl Value {
    /// The name of its JSON type in error texts.
    pub fn json_type(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::List(_) => "array",
            Value::Map(_) | Value::Json(_) => "object",
        }
    }

    /// The name of its Go type in error texts.
    pub fn go_type(&self) -> &'static str {
        match self {
            Value::Null => "<nil>",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int64",
            Value::Float(_) => "float64",
            Value::String(_) => "string",
            Value::List(_) => "[]interface {}",
            Value::Map(_) | Value::Json(_) => "map[string]interface {}",
        }
    }

    pub fn map() -> Self {
        Value::Map(Map::new())
    }

    pub fn as_map(&self) -> Option<&Map> {
        if let Value::Map(map) = self { Some(map) } else { None }
    }

    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        if let Value::Map(map) = self { Some(map) } else { None }
    }

    pub fn as_list(&self) -> Option<&[Value]> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    pub fn as_list_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    pub fn as_int(&self) -> Option<i64> {
        if let Value::Int(number) = self { Some(*number) } else { None }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(truth) = self { Some(*truth) } else { None }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns the map; replaces any other value by an empty map.
    pub fn make_map(&mut self) -> &mut Map {
        if !matches!(self, Value::Map(_)) {
            *self = Value::map();
        }
        match self {
            Value::Map(map) => map,
            _ => unreachable!("made a map above"),
        }
    }

    /// Follows field names; `None` when one is missing.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, step| value.as_map()?.get(step))
    }

    pub fn at_mut(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter().try_fold(self, |value, step| value.as_map_mut()?.get_mut(step))
    }

    /// The text at a path of field names, empty when it is missing or not text.
    pub fn text(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or("")
    }

    /// The items at a path of field names, none when it is missing.
    pub fn items(&self, path: &[&str]) -> &[Value] {
        self.at(path).and_then(Value::as_list).unwrap_or(&[])
    }

    /// Sets the value at a path of field names, and creates missing maps.
    pub fn set(&mut self, path: &[&'static str], value: impl Into<Value>) {
        let mut here = self;
        for step in path {
            here = here.make_map().entry(*step);
        }
        *here = value.into();
    }

    /// Removes the value at a path of field names.
    pub fn unset(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        self.at_mut(parents)?.as_map_mut()?.remove(last)
    }
}

impl From<bool> for Value {
    fn from(it: bool) -> Self {
        Value::Bool(it)
    }
}
impl From<i64> for Value {
    fn from(it: i64) -> Self {
        Value::Int(it)
    }
}
impl From<String> for Value {
    fn from(it: String) -> Self {
        Value::String(it)
    }
}
impl From<&str> for Value {
    fn from(it: &str) -> Self {
        Value::String(it.to_owned())
    }
}
impl From<Cow<'_, str>> for Value {
    fn from(it: Cow<'_, str>) -> Self {
        Value::String(it.into_owned())
    }
}
impl From<Map> for Value {
    fn from(it: Map) -> Self {
        Value::Map(it)
    }
}
impl From<Vec<Value>> for Value {
    fn from(it: Vec<Value>) -> Self {
        Value::List(it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_stays() {
        let entries = vec![
            ("b".into(), 1.into()),
            ("a".into(), 2.into()),
            ("b".into(), 3.into()),
            ("b".into(), 4.into()),
        ];
        let (map, repeated) = Map::from_unsorted(entries);
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &Value::Int(2)), ("b", &Value::Int(4))]);
        assert_eq!(repeated, ["b"]);
    }

    #[test]
    fn the_order_is_that_of_the_bytes() {
        let keys = [
            "",
            "a",
            "a\0",
            "ab",
            "abcd",
            "abce",
            "abcdef",
            "abddef",
            "abcdefgh",
            "abcdefghijklmnopqrs",
            "abcdefghijkzmnopqrs",
            "abcdefgha",
            "abcdefgi",
            "b",
            "metadata",
            "metadatb",
            "é",
        ];
        for a in keys {
            for b in keys {
                assert_eq!(order(a, b), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(equal(a, b), a == b, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn paths_are_made_and_taken_away() {
        let mut value = Value::Null;
        value.set(&["a", "b"], 7);
        assert_eq!(value.at(&["a", "b"]), Some(&Value::Int(7)));
        assert_eq!(value.unset(&["a", "b"]), Some(Value::Int(7)));
        assert_eq!(value.at(&["a", "b"]), None);
        assert_eq!(value.unset(&["x", "y"]), None);
    }
}
