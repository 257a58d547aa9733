//! From YAML text to a [`Value`].
//!
//! The events of the parser are put together on a stack of our own, so depth is a number and not a matter of
//! luck. Anchored nodes are copied when they are used; the copies are weighed, and a document whose aliases
//! multiply is refused before it has grown.

use super::refusal;
use super::resolve::{Plain, resolve, short_float};
use crate::decode::float_value;
use crate::source::LargeIntegers;
use crate::text::Text;
use crate::value::{Map, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The limit of the expansion of a document.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of text.
    pub bytes: usize,
    /// Lists and maps inside each other.
    pub depth: usize,
    /// Bytes, roughly, that anchors and aliases may copy.
    pub copies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 3 << 20, depth: 512, copies: 16 << 20 }
    }
}

/// The most duplicate keys that are reported.
const MOST_REPEATED: usize = 1024;

/// A parsed document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub value: Value,
    /// `line 4: key "paused" already set in map`, in the order of the text. The last of them stays.
    pub repeated: Vec<String>,
    /// The integers of 2^63 and more, for which the value has floats.
    pub integers: LargeIntegers,
}

/// The error of text that is not supported YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error converting YAML to JSON: {cause}")]
pub struct YamlError {
    cause: String,
}

impl YamlError {
    fn new(cause: impl Into<String>) -> Self {
        YamlError { cause: cause.into() }
    }

    /// The message without the words about conversion: `yaml: line 1: ...`.
    pub fn cause(&self) -> &str {
        &self.cause
    }
}

/// Reads the first document of a text; an empty text is null.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Document, YamlError> {
    if bytes.len() > limits.bytes {
        return Err(YamlError::new(format!("yaml: document is larger than {} bytes", limits.bytes)));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| YamlError::new("yaml: invalid leading UTF-8 octet"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(line) = line_of_control(text) {
        return Err(at_line(line, "control characters are not allowed"));
    }
    document(text, limits).or_else(|why| match refusal::first_document(text) {
        Some(first) => document(first, limits),
        None => Err(why),
    })
}

fn document(text: &str, limits: Limits) -> Result<Document, YamlError> {
    if let Some(value) = plain_json(text, limits) {
        return Ok(Document { value, repeated: Vec::new(), integers: LargeIntegers::default() });
    }
    // the parser is a guest here: should it ever panic, that is an error of this one document
    catch_unwind(AssertUnwindSafe(|| Reader::new(text, limits).document()))
        .unwrap_or_else(|_| Err(YamlError::new("yaml: document could not be understood")))
}

/// JSON that is beyond doubt, without the way through YAML, which has other ideas about tabs and escapes.
fn plain_json(text: &str, limits: Limits) -> Option<Value> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let decoded = crate::decode::json_untyped(text.as_bytes()).ok()?;
    let fits = decoded.strict_errors.is_empty() && depth(&decoded.value) <= limits.depth;
    let mut value = decoded.value;
    (fits && whole_numbers(&mut value)).then_some(value)
}

/// Floats that are whole become integers, as they do in YAML. False if there is one that may be a larger integer there.
fn whole_numbers(value: &mut Value) -> bool {
    const LARGE: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Float(number) if (LARGE..=u64::MAX as f64).contains(number) => false,
        Value::Float(number) => {
            *value = float_value(*number);
            true
        }
        Value::List(items) => items.iter_mut().all(whole_numbers),
        Value::Map(map) => map.iter_mut().all(|(_, value)| whole_numbers(value)),
        _ => true,
    }
}

fn line_of_control(text: &str) -> Option<usize> {
    // most text is plain, which is seen without a look at each character; no way out of the loop early, so
    // that many bytes are looked at together
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) | (byte == b'\n') | (byte == b'\t') | (byte == b'\r');
    if text.bytes().fold(true, |all, byte| all & plain(byte)) {
        return None;
    }
    let wrong = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    };
    let at = text.find(wrong)?;
    Some(text[..at].bytes().filter(|b| *b == b'\n').count())
}

/// A message with its line, counted from zero; the first line is not named.
fn at_line(line: usize, what: &str) -> YamlError {
    YamlError::new(if line == 0 {
        format!("yaml: {what}")
    } else {
        format!("yaml: line {}: {what}", line + 1)
    })
}

/// A scalar as a key.
struct Node {
    value: Value,
    merge: bool,
    /// Whether the value was written as a float; it is an integer if it is whole.
    is_float: bool,
}

struct Entry {
    key: Text,
    key_type: KeyType,
    value: Value,
    line: usize,
    /// When the value was complete.
    order: usize,
}

enum Frame {
    List { anchor: usize, line: usize, items: Vec<Value> },
    Map { anchor: usize, line: usize, entries: Vec<Entry>, key: Option<Key> },
}

/// The YAML type of a key. Keys of different types are not duplicates, even with the same text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyType {
    Bool,
    Int,
    Float,
    Text,
}

enum Key {
    Text {
        key: Text,
        key_type: KeyType,
    },
    Merge,
    /// Refused together with its value.
    Null,
}

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    limits: Limits,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Value>,
    copied: usize,
    order: usize,
    repeated: Vec<(usize, String)>,
    integers: LargeIntegers,
    /// Whether a number is not finite.
    infinite: bool,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, limits: Limits) -> Self {
        Reader {
            text,
            parser: Parser::new_from_str(text),
            limits,
            stack: Vec::new(),
            anchors: HashMap::new(),
            copied: 0,
            order: 0,
            repeated: Vec::new(),
            integers: LargeIntegers::default(),
            infinite: false,
        }
    }

    fn document(mut self) -> Result<Document, YamlError> {
        let value = self.root()?;
        // a value that a later one has replaced does not count
        if self.infinite
            && let Some(formatted) = infinite(&value)
        {
            return Err(YamlError::new(format!("json: unsupported value: {formatted}")));
        }
        self.repeated.sort_by_key(|(order, _)| *order);
        let repeated = self.repeated.into_iter().map(|(_, message)| message).collect();
        Ok(Document { value, repeated, integers: self.integers })
    }

    /// Reads to the end of the document. Text that cannot be parsed is reported before nodes without a meaning, wherever
    /// they stand, as upstream parses a document before it looks at its nodes.
    fn root(&mut self) -> Result<Value, YamlError> {
        let mut root = Ok(Value::Null);
        while let Some(event) = self.parser.next_event() {
            let (event, span) = event.map_err(|why| self.refused(&why))?;
            if matches!(event, Event::StreamEnd | Event::DocumentEnd) {
                break;
            }
            if root.is_err() {
                continue;
            }
            if self.stack.len() > self.limits.depth {
                return Err(self.too_deep());
            }
            match self.read(event, span.start.line()) {
                Ok(None) => {}
                Ok(Some(whole)) => root = Ok(whole),
                Err(why) => root = Err(why),
            }
        }
        root
    }

    /// Takes an event; gives the document if it is complete. `line` is where the node begins, counted from one.
    fn read(&mut self, event: Event<'_>, mut line: usize) -> Result<Option<Value>, YamlError> {
        let node = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = scalar(text, style, tag.as_deref(), &mut self.integers)?;
                self.infinite |= infinite(&node.value).is_some();
                self.remember(anchor, &node.value)?;
                node
            }
            Event::Alias(id) => Node { value: self.copy(id)?, merge: false, is_float: false },
            Event::SequenceStart(anchor, _) => {
                self.stack.push(Frame::List { anchor, line, items: Vec::new() });
                return Ok(None);
            }
            Event::MappingStart(anchor, _) => {
                self.stack.push(Frame::Map { anchor, line, entries: Vec::new(), key: None });
                return Ok(None);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (value, start) = self.pop()?;
                line = start;
                Node { value, merge: false, is_float: false }
            }
            _ => return Ok(None),
        };
        self.put(node, line)
    }

    fn too_deep(&self) -> YamlError {
        YamlError::new(format!("yaml: exceeded max depth of {}", self.limits.depth))
    }

    /// The list or map that ends here, and the line where it began.
    fn pop(&mut self) -> Result<(Value, usize), YamlError> {
        let (anchor, line, value) = match self.stack.pop() {
            Some(Frame::List { anchor, line, items }) => (anchor, line, Value::List(items)),
            Some(Frame::Map { anchor, line, entries, .. }) => (anchor, line, self.close(entries)),
            None => return Err(YamlError::new("yaml: did not find expected node content")),
        };
        self.remember(anchor, &value)?;
        Ok((value, line))
    }

    /// Sorts the entries and notes the keys that came more than once.
    fn close(&mut self, mut entries: Vec<Entry>) -> Value {
        if !entries.is_sorted_by(|a, b| a.key < b.key) {
            entries.sort_by(|a, b| (&a.key, a.key_type).cmp(&(&b.key, b.key_type)));
            for pair in entries.windows(2) {
                let again = &pair[1];
                let is_duplicate = (&pair[0].key, pair[0].key_type) == (&again.key, again.key_type);
                if is_duplicate && self.repeated.len() < MOST_REPEATED {
                    let formatted = match again.key_type {
                        KeyType::Text => crate::problem::quoted(&again.key),
                        _ => again.key.to_string(),
                    };
                    self.repeated.push((
                        again.order,
                        format!("line {}: key {formatted} already set in map", again.line),
                    ));
                }
            }
        }
        Value::Map(Map::from_unsorted(entries.into_iter().map(|it| (it.key, it.value)).collect()).0)
    }

    /// Puts a finished node where it belongs; gives it back when it is the whole document.
    fn put(&mut self, node: Node, line: usize) -> Result<Option<Value>, YamlError> {
        self.order += 1;
        let order = self.order;
        match self.stack.last_mut() {
            None => return Ok(Some(node.value)),
            Some(Frame::List { items, .. }) => items.push(node.value),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                None => *key = Some(as_key(node)?),
                Some(Key::Text { key, key_type }) => {
                    entries.push(Entry { key, key_type, value: node.value, line, order });
                }
                Some(Key::Null) => return Err(null_key(&node.value)),
                Some(Key::Merge) => merge(node.value, entries, line, order)?,
            },
        }
        Ok(None)
    }

    fn remember(&mut self, anchor: usize, value: &Value) -> Result<(), YamlError> {
        if anchor > 0 {
            self.weigh(value)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(())
    }

    fn copy(&mut self, id: usize) -> Result<Value, YamlError> {
        let Some(value) = self.anchors.get(&id).cloned() else {
            return Err(YamlError::new("yaml: anchor value contains itself"));
        };
        self.weigh(&value)?;
        if self.stack.len() + depth(&value) > self.limits.depth {
            return Err(self.too_deep());
        }
        Ok(value)
    }

    fn weigh(&mut self, value: &Value) -> Result<(), YamlError> {
        self.copied += weight(value);
        if self.copied > self.limits.copies {
            return Err(YamlError::new("yaml: document contains excessive aliasing"));
        }
        Ok(())
    }

    /// The parser's complaint in the words that clients know.
    fn refused(&self, why: &ScanError) -> YamlError {
        let line = why.marker().line().saturating_sub(1);
        YamlError::new(refusal::message(self.text, why.marker().index(), line))
    }
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    integers: &mut LargeIntegers,
) -> Result<Node, YamlError> {
    let plain = |value: Value| Ok(Node { value, merge: false, is_float: false });
    let Some(tag) = tag else {
        if style != ScalarStyle::Plain {
            return plain(text.into());
        }
        return meaning(resolve(&text), text, integers);
    };
    if !tag.is_yaml_core_schema() {
        return plain(text.into());
    }
    let found = resolve(&text);
    match (&*tag.suffix, &found) {
        ("str", _) => plain(text.into()),
        ("binary", _) => {
            let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            match STANDARD.decode(compact) {
                Ok(bytes) => plain(String::from_utf8_lossy(&bytes).into()),
                Err(_) => Err(YamlError::new("yaml: !!binary value contains invalid base64 data")),
            }
        }
        ("float", Plain::Int(_) | Plain::Large(_)) => meaning(found, text, integers),
        (wanted, found) if wanted == found.tag() => meaning(found.clone(), text, integers),
        (wanted @ ("int" | "float" | "bool" | "null" | "timestamp" | "merge"), found) => {
            Err(YamlError::new(format!("yaml: cannot decode !!{} `{text}` as a !!{wanted}", found.tag())))
        }
        _ => plain(text.into()),
    }
}

fn meaning(plain: Plain, text: Cow<'_, str>, integers: &mut LargeIntegers) -> Result<Node, YamlError> {
    let merge = plain == Plain::Merge;
    let is_float = matches!(plain, Plain::Float(_));
    let value = match plain {
        Plain::Null => Value::Null,
        Plain::Bool(truth) => truth.into(),
        Plain::Int(number) => number.into(),
        Plain::Large(number) => Value::Float(integers.float(number)),
        // keys may be infinite, values may not: that is found out when the document is complete
        Plain::Float(number) => float_value(number),
        Plain::Timestamp | Plain::Merge | Plain::Text => text.into(),
    };
    Ok(Node { value, merge, is_float })
}

fn as_key(node: Node) -> Result<Key, YamlError> {
    if node.merge {
        return Ok(Key::Merge);
    }
    let (key, key_type) = match node.value {
        Value::String(text) => (text, KeyType::Text),
        Value::Int(number) if node.is_float => (number.to_string(), KeyType::Float),
        Value::Int(number) => (number.to_string(), KeyType::Int),
        Value::Float(number) if number.is_nan() => (".nan".to_owned(), KeyType::Float),
        Value::Float(number) if number.is_infinite() => {
            ((if number > 0.0 { ".inf" } else { "-.inf" }).to_owned(), KeyType::Float)
        }
        Value::Float(number) => (short_float(&format!("{:e}", number as f32)), KeyType::Float),
        Value::Bool(truth) => (truth.to_string(), KeyType::Bool),
        Value::Null => return Ok(Key::Null),
        value @ (Value::List(_) | Value::Map(_) | Value::Json(_)) => {
            return Err(YamlError::new(format!("yaml: invalid map key: {}", go_syntax(&value))));
        }
    };
    Ok(Key::Text { key: Cow::Owned(key), key_type })
}

/// A value as Go writes it in source text.
fn go_syntax(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::problem::quoted(text),
        Value::Float(number) => {
            infinite(value).map_or_else(|| crate::problem::float_text(*number), str::to_owned)
        }
        Value::List(items) => {
            format!("[]interface {{}}{{{}}}", joined(items.iter().map(go_syntax).collect()))
        }
        Value::Map(map) => {
            let entry = |(key, value): (&str, &Value)| {
                format!("{}:{}", crate::problem::quoted(key), go_syntax(value))
            };
            format!("map[interface {{}}]interface {{}}{{{}}}", joined(map.iter().map(entry).collect()))
        }
        other => String::from_utf8_lossy(&crate::encode::untyped(other)).into_owned(),
    }
}

/// JSON has no key for null. The value is shown as Go shows it.
fn null_key(value: &Value) -> YamlError {
    let formatted = match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => crate::problem::quoted(text),
        Value::Float(number) => crate::problem::float_text(*number),
        other => String::from_utf8_lossy(&crate::encode::untyped(other)).into_owned(),
    };
    YamlError::new(format!("Unsupported map key of type: %!s(<nil>), key: <nil>, value: {formatted}"))
}

/// The first number that is not finite, for which JSON has no words.
fn infinite(value: &Value) -> Option<&'static str> {
    match value {
        Value::Float(number) if number.is_nan() => Some("NaN"),
        Value::Float(f64::INFINITY) => Some("+Inf"),
        Value::Float(f64::NEG_INFINITY) => Some("-Inf"),
        Value::List(items) => items.iter().find_map(infinite),
        Value::Map(map) => map.iter().find_map(|(_, value)| infinite(value)),
        _ => None,
    }
}

/// Adds the entries of a map, or of each map of a list, of which the first counts most.
fn merge(value: Value, entries: &mut Vec<Entry>, line: usize, order: usize) -> Result<(), YamlError> {
    let mut add = |map: Map| {
        let key_type = KeyType::Text;
        entries.extend(map.into_iter().map(|(key, value)| Entry { key, key_type, value, line, order }));
    };
    match value {
        Value::Map(map) => add(map),
        Value::List(items) if items.iter().all(|it| matches!(it, Value::Map(_))) => {
            for item in items.into_iter().rev() {
                if let Value::Map(map) = item {
                    add(map);
                }
            }
        }
        _ => return Err(YamlError::new("yaml: map merge requires map or sequence of maps as the value")),
    }
    Ok(())
}

/// The approximate size of a copy of a value, in bytes.
fn weight(value: &Value) -> usize {
    const NODE: usize = 32;
    NODE + match value {
        Value::String(text) => text.len(),
        Value::List(items) => items.iter().map(weight).sum(),
        Value::Map(map) => map.iter().map(|(key, value)| NODE + key.len() + weight(value)).sum(),
        _ => 0,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(map) => 1 + map.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
