//! Runtime values.
//!
//! Values of an object are read in place, by their declaration; nothing is copied before it is needed. Values that
//! an expression creates are reference-counted.

use crate::declaration::{Declaration, ListKind, Object, Shape};
use crate::escape;
use crate::fault::{Fault, Outcome, fail, no_such_overload};
use crate::time::{self, Timestamp};
use crate::url::Url;
use base64::Engine;
use schema::{Value, decode};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// A value of the language.
#[derive(Debug, Clone)]
pub enum CelValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Map<'a>),
    /// A type, by its name.
    Type(&'static str),
    Url(Arc<Url>),
    /// Preserved in the object but not described.
    Opaque(&'a Value),
}

/// Text of an object, or created by an expression.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

#[derive(Debug, Clone)]
pub enum List<'a> {
    /// In an object.
    Tree(TreeList<'a>),
    /// Created by an expression; for concatenated lists of objects, with the identity of their items.
    Owned(Arc<Vec<CelValue<'a>>>, Option<ItemKind<'a>>),
}

#[derive(Debug, Clone, Copy)]
pub struct TreeList<'a> {
    items: &'a [Value],
    item: &'a Declaration,
    kind: ItemKind<'a>,
}

/// The list type of a list in an object, which defines the identity of its items.
#[derive(Debug, Clone, Copy)]
pub struct ItemKind<'a>(pub(crate) &'a ListKind);

#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// A structure in an object; its keys are fields as expressions write them.
    Object(&'a schema::Map, Fields<'a>),
    /// A map in an object.
    Tree(&'a schema::Map, Values<'a>),
    /// Created by an expression.
    Owned(Arc<OwnedMap<'a>>),
}

/// The fields of a structure.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub(crate) &'a Object);

/// The declaration of a map's values.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(pub(crate) &'a Declaration);

/// A map that an expression created, in the order of its creation.
#[derive(Debug, Default)]
pub struct OwnedMap<'a> {
    pub(crate) entries: Vec<(CelValue<'a>, CelValue<'a>)>,
    index: HashMap<Key, usize>,
}

/// The comparable form of map keys and set members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// The bits of a number.
    Double(u64),
    String(String),
    Bytes(Arc<[u8]>),
    Duration(i64),
    Time(i64, u32),
    List(Vec<Key>),
    /// In the order of its keys' names.
    Map(Vec<(Key, Key)>),
    Other(String),
}

impl<'a> OwnedMap<'a> {
    pub(crate) fn new(entries: Vec<(CelValue<'a>, CelValue<'a>)>) -> Outcome<OwnedMap<'a>> {
        let mut map = OwnedMap::default();
        for (key, value) in entries {
            match key.key()? {
                // NaN is not equal to any number, including itself
                Key::Double(bits) if f64::from_bits(bits).is_nan() => map.entries.push((key, value)),
                index => match map.index.get(&index) {
                    Some(at) => map.entries[*at].1 = value,
                    None => {
                        map.index.insert(index, map.entries.len());
                        map.entries.push((key, value));
                    }
                },
            }
        }
        Ok(map)
    }

    /// The value of a key, whichever type of number it is.
    fn find(&self, key: &CelValue<'_>) -> Option<&CelValue<'a>> {
        let get = |key: Key| self.index.get(&key).map(|at| &self.entries[*at].1);
        if let Some(found) = key.key().ok().and_then(get) {
            return Some(found);
        }
        match key {
            CelValue::Double(number) => whole(*number)
                .and_then(|it| get(Key::Int(it)))
                .or_else(|| unsigned(*number).and_then(|it| get(Key::Uint(it)))),
            CelValue::Int(number) => get(Key::Uint(u64::try_from(*number).ok()?)),
            CelValue::Uint(number) => get(Key::Int(i64::try_from(*number).ok()?)),
            _ => None,
        }
    }
}

/// The integer that a number is, exactly.
pub(crate) fn whole(number: f64) -> Option<i64> {
    let fits = number > i64::MIN as f64 && number < i64::MAX as f64 && number.fract() == 0.0;
    fits.then_some(number as i64)
}

fn unsigned(number: f64) -> Option<u64> {
    let fits = number >= 0.0 && number < u64::MAX as f64 && number.fract() == 0.0;
    fits.then_some(number as u64)
}

/// The declaration of undeclared values: the tree decides the type.
static ANY: Declaration = Declaration { shape: Shape::Dyn, nullable: true, largest: 0, smallest: 1 };
static ATOMIC: ListKind = ListKind::Atomic;

impl<'a> CelValue<'a> {
    pub fn string(text: impl Into<Arc<str>>) -> CelValue<'a> {
        CelValue::String(Text::Shared(text.into()))
    }

    pub(crate) fn list(items: Vec<CelValue<'a>>) -> CelValue<'a> {
        CelValue::List(List::Owned(Arc::new(items), None))
    }

    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null_type",
            CelValue::Bool(_) => "bool",
            CelValue::Int(_) => "int",
            CelValue::Uint(_) => "uint",
            CelValue::Double(_) => "double",
            CelValue::String(_) => "string",
            CelValue::Bytes(_) => "bytes",
            CelValue::Duration(_) => "google.protobuf.Duration",
            CelValue::Timestamp(_) => "google.protobuf.Timestamp",
            CelValue::List(_) => "list",
            CelValue::Map(_) => "map",
            CelValue::Type(_) => "type",
            CelValue::Url(_) => "kubernetes.URL",
            CelValue::Opaque(_) => "unknown",
        }
    }

    /// Reads a part of an object by its declaration.
    pub fn read(value: &'a Value, declared: &'a Declaration) -> Outcome<CelValue<'a>> {
        if value.is_null() {
            return if declared.nullable {
                Ok(CelValue::Null)
            } else {
                fail("invalid data, got null for schema with nullable=false")
            };
        }
        let text = || match value {
            Value::String(text) => Ok(text.as_str()),
            other => fail(format!("invalid data, expected string, got {}", other.go_type())),
        };
        Ok(match &declared.shape {
            Shape::Dyn => return Ok(CelValue::any(value)),
            Shape::IntOrString => match value {
                Value::String(text) => CelValue::String(Text::Borrowed(text)),
                Value::Int(number) => CelValue::Int(*number),
                _ => {
                    return fail(
                        "invalid data, expected XIntOrString value to be either a string or integer",
                    );
                }
            },
            Shape::Bool => match value {
                Value::Bool(truth) => CelValue::Bool(*truth),
                other => return fail(format!("invalid data, expected bool, got {}", other.go_type())),
            },
            Shape::Int => match value {
                Value::Int(number) => CelValue::Int(*number),
                other => return fail(format!("invalid data, expected int, got {}", other.go_type())),
            },
            Shape::Double => match value {
                Value::Int(number) => CelValue::Double(*number as f64),
                Value::Float(number) => CelValue::Double(*number),
                other => return fail(format!("invalid data, expected float, got {}", other.go_type())),
            },
            Shape::String => CelValue::String(Text::Borrowed(text()?)),
            Shape::Bytes => {
                let text = text()?;
                let bytes = base64::engine::general_purpose::URL_SAFE.decode(text);
                let bytes = bytes.map_err(|_| Fault::new(invalid_bytes(text)))?;
                CelValue::Bytes(bytes.into())
            }
            Shape::Duration => CelValue::Duration(time::parse_any_duration(text()?)?),
            Shape::Date => CelValue::Timestamp(time::parse_date(text()?)?),
            Shape::DateTime => CelValue::Timestamp(time::parse_date_time(text()?)?),
            Shape::List(item, kind) => match value {
                Value::List(items) => {
                    CelValue::List(List::Tree(TreeList { items, item, kind: ItemKind(kind) }))
                }
                _ => return fail("invalid data, expected an array for the provided schema with type=array"),
            },
            Shape::Map(values) => match value {
                Value::Map(map) => CelValue::Map(Map::Tree(map, Values(values))),
                _ => return fail("invalid data, expected a map for the provided schema with type=object"),
            },
            Shape::Object(object) => match value {
                Value::Map(_) if !object.known => {
                    return fail(
                        "invalid object type, expected either Properties or AdditionalProperties with Allows=true and non-empty Schema",
                    );
                }
                Value::Map(map) => CelValue::Map(Map::Object(map, Fields(object))),
                _ => return fail("invalid data, expected a map for the provided schema with type=object"),
            },
            Shape::Opaque => CelValue::Opaque(value),
            Shape::Unreadable => {
                return fail(
                    "invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got ",
                );
            }
        })
    }

    /// Reads an undeclared value.
    pub fn any(value: &'a Value) -> CelValue<'a> {
        match value {
            Value::Null => CelValue::Null,
            Value::Bool(truth) => CelValue::Bool(*truth),
            Value::Int(number) => CelValue::Int(*number),
            Value::Float(number) => CelValue::Double(*number),
            Value::String(text) => CelValue::String(Text::Borrowed(text)),
            Value::List(items) => {
                CelValue::List(List::Tree(TreeList { items, item: &ANY, kind: ItemKind(&ATOMIC) }))
            }
            Value::Map(map) => CelValue::Map(Map::Tree(map, Values(&ANY))),
            Value::Json(_) => to_owned(&decode::open(value)),
        }
    }

    /// The number of items, entries, characters or bytes; `None` for values without a size.
    pub(crate) fn size(&self) -> Option<usize> {
        Some(match self {
            CelValue::String(text) => text.chars().count(),
            CelValue::Bytes(bytes) => bytes.len(),
            CelValue::List(list) => list.len(),
            CelValue::Map(map) => map.len(),
            _ => return None,
        })
    }

    /// Its comparable form as a key or set member.
    pub(crate) fn key(&self) -> Outcome<Key> {
        Ok(match self {
            CelValue::Null => Key::Null,
            CelValue::Bool(it) => Key::Bool(*it),
            CelValue::Int(it) => Key::Int(*it),
            CelValue::Uint(it) => Key::Uint(*it),
            // zero is zero, whatever its sign
            CelValue::Double(it) => Key::Double((it + 0.0).to_bits()),
            CelValue::String(it) => Key::String(it.to_string()),
            CelValue::Bytes(it) => Key::Bytes(it.clone()),
            CelValue::Duration(it) => Key::Duration(*it),
            CelValue::Timestamp(it) => Key::Time(it.seconds, it.nanos),
            CelValue::List(list) => Key::List(list.iter().map(|it| it?.key()).collect::<Outcome<_>>()?),
            CelValue::Map(map) => {
                let mut entries = Vec::with_capacity(map.len());
                for key in map.keys() {
                    let value = map.find(&key)?.ok_or_else(no_such_overload)?;
                    entries.push((key.key()?, value.key()?));
                }
                entries.sort_by_cached_key(|(key, _)| format!("{key:?}"));
                Key::Map(entries)
            }
            CelValue::Type(name) => Key::Other((*name).to_owned()),
            CelValue::Url(url) => Key::Other(url.to_string()),
            CelValue::Opaque(value) => to_owned(value).key()?,
        })
    }
}

/// An owned value of any type.
fn to_owned<'a>(value: &Value) -> CelValue<'a> {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(truth) => CelValue::Bool(*truth),
        Value::Int(number) => CelValue::Int(*number),
        Value::Float(number) => CelValue::Double(*number),
        Value::String(text) => CelValue::string(text.as_str()),
        Value::List(items) => CelValue::list(items.iter().map(to_owned).collect()),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| (CelValue::string(key), to_owned(value))).collect();
            CelValue::Map(Map::Owned(Arc::new(OwnedMap::new(entries).unwrap_or_default())))
        }
        Value::Json(_) => to_owned(&decode::open(value)),
    }
}

fn invalid_bytes(text: &str) -> String {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let at = text.bytes().position(|b| !fits(b)).unwrap_or(text.len() / 4 * 4);
    format!("Invalid byte formatted string {text}: illegal base64 data at input byte {at}")
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Tree(list) => list.items.len(),
            List::Owned(items, _) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at a position.
    pub fn at(&self, at: usize) -> Outcome<CelValue<'a>> {
        let item = match self {
            List::Tree(list) => list.items.get(at).map(|item| CelValue::read(item, list.item)),
            List::Owned(items, _) => items.get(at).cloned().map(Ok),
        };
        item.unwrap_or_else(|| fail(format!("index out of bounds: {at}")))
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Outcome<CelValue<'a>>> + '_ {
        (0..self.len()).map(|at| self.at(at))
    }

    /// The identity of the items, if the list has a declared type.
    pub(crate) fn kind(&self) -> Option<&'a ListKind> {
        match self {
            List::Tree(list) => (!list.is_undeclared()).then_some(list.kind.0),
            List::Owned(_, kind) => kind.map(|it| it.0),
        }
    }

    /// Whether it is part of a declared object.
    pub(crate) fn is_declared(&self) -> bool {
        self.kind().is_some()
    }
}

impl TreeList<'_> {
    fn is_undeclared(&self) -> bool {
        std::ptr::eq(self.item, &ANY)
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Object(map, _) | Map::Tree(map, _) => map.len(),
            Map::Owned(map) => map.entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys that expressions see.
    pub fn keys(&self) -> Vec<CelValue<'a>> {
        match self {
            Map::Tree(map, _) => map.keys().map(|key| CelValue::String(Text::Borrowed(key))).collect(),
            Map::Owned(map) => map.entries.iter().map(|(key, _)| key.clone()).collect(),
            Map::Object(map, fields) => {
                let fields = map.keys().filter_map(|key| fields.0.field(key));
                let name = |escaped: &'a Option<String>, name: &'a str| escaped.as_deref().unwrap_or(name);
                fields.map(|it| CelValue::String(Text::Borrowed(name(&it.escaped, &it.name)))).collect()
            }
        }
    }

    /// The value of a key.
    pub fn find(&self, key: &CelValue<'_>) -> Outcome<Option<CelValue<'a>>> {
        match self {
            Map::Owned(map) => Ok(map.find(key).cloned()),
            Map::Tree(_, values) if std::ptr::eq(values.0, &ANY) => match key {
                CelValue::String(key) => self.find_text(key),
                _ => Ok(None),
            },
            _ => match key {
                CelValue::String(key) => self.find_text(key),
                _ => Err(no_such_overload()),
            },
        }
    }

    pub(crate) fn find_text(&self, key: &str) -> Outcome<Option<CelValue<'a>>> {
        match self {
            Map::Owned(map) => Ok(map.find(&CelValue::String(Text::Borrowed(key))).cloned()),
            Map::Tree(map, values) => map.get(key).map(|it| CelValue::read(it, values.0)).transpose(),
            Map::Object(..) => match escape::unescape(key) {
                Some(name) => self.find_field(&name),
                None => Ok(None),
            },
        }
    }

    /// The value of a field, by its name in the tree; null counts as absent.
    pub(crate) fn find_field(&self, name: &str) -> Outcome<Option<CelValue<'a>>> {
        let Map::Object(map, fields) = self else { return self.find_text(name) };
        let Some(value) = map.get(name).filter(|it| !it.is_null()) else { return Ok(None) };
        fields.0.field(name).map(|field| CelValue::read(value, &field.declaration)).transpose()
    }

    /// Whether it is part of a declared object.
    pub(crate) fn is_declared(&self) -> bool {
        match self {
            Map::Object(..) => true,
            Map::Tree(_, values) => !std::ptr::eq(values.0, &ANY),
            Map::Owned(_) => false,
        }
    }
}
