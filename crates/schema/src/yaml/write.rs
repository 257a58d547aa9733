//! From a [`Value`] to block YAML.
//!
//! The writer keeps the column, whether it has just written white space, and whether the line so far is only
//! indentation; from these three follow all line breaks. Text is written plain where it reads back as the
//! same text, in single quotes where a plain text would be taken for syntax, in double quotes where it would
//! be taken for something other than text or holds what cannot be shown, and as a `|` block where it has
//! lines.

use super::resolve::{Plain, is_base_sixty, resolve, short_float};
use crate::decode;
use crate::value::{Map, Value};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Writes a value as one document, ending in a line break.
pub fn emit(value: &Value) -> String {
    let mut out = Writer::new();
    out.node(value, Place::Root);
    out.finish()
}

/// Writes a document one of whose fields is a long list, item by item, so that it is never whole in memory.
pub struct ListWriter {
    writer: Writer,
    /// The fields that stand behind the list.
    after: Vec<(Cow<'static, str>, Value)>,
}

impl ListWriter {
    /// `document` has all other fields; `key` is the name of the list, which has at least one item.
    pub fn new(document: Map, key: &str) -> Self {
        let mut writer = Writer::new();
        writer.deeper(false, false);
        let (mut before, mut after): (Vec<_>, Vec<_>) = document
            .into_iter()
            .filter(|(name, _)| name != key)
            .partition(|(name, _)| natural(name, key).is_lt());
        before.sort_by(|a, b| natural(&a.0, &b.0));
        after.sort_by(|a, b| natural(&a.0, &b.0));
        for (name, value) in &before {
            writer.entry(name, value);
        }
        writer.key(key);
        ListWriter { writer, after }
    }

    pub fn item(&mut self, item: &Value) {
        self.writer.item(item);
    }

    /// How many bytes are written and not taken yet.
    pub fn pending(&self) -> usize {
        self.writer.out.len()
    }

    /// Takes the output so far.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.writer.out)
    }

    /// Writes the rest of the document.
    pub fn finish(mut self) -> String {
        for (name, value) in &self.after {
            self.writer.entry(name, value);
        }
        self.writer.finish()
    }
}

/// Columns after which the next space becomes a line break.
const WIDTH: usize = 80;
const STEP: i32 = 2;
/// Keys that are longer stand on a line of their own after a question mark.
const LONGEST_KEY: usize = 128;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Item,
    Value,
    Key,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

struct Writer {
    out: String,
    column: usize,
    whitespace: bool,
    indention: bool,
    indent: i32,
}

impl Writer {
    fn new() -> Self {
        Writer { out: String::new(), column: 0, whitespace: true, indention: true, indent: -1 }
    }

    fn finish(mut self) -> String {
        if self.column != 0 {
            self.line_break();
        }
        self.out
    }

    fn node(&mut self, value: &Value, place: Place) {
        match value {
            Value::Null => self.scalar("null", Style::Plain, place),
            Value::Bool(truth) => self.scalar(if *truth { "true" } else { "false" }, Style::Plain, place),
            Value::Int(number) => self.scalar(&number.to_string(), Style::Plain, place),
            Value::Float(number) => self.scalar(&short_float(&format!("{number:e}")), Style::Plain, place),
            Value::String(text) => self.scalar(text, wanted(text), place),
            Value::List(items) if items.is_empty() => self.empty("[", "]"),
            Value::Map(map) if map.is_empty() => self.empty("{", "}"),
            Value::List(items) => self.list(items, place),
            Value::Map(map) => self.map(map),
            Value::Json(_) => self.node(&decode::open(value), place),
        }
    }

    fn empty(&mut self, open: &str, close: &str) {
        self.indicator(open, true, false);
        self.indicator(close, false, false);
        self.whitespace = false;
    }

    fn list(&mut self, items: &[Value], place: Place) {
        let before = self.indent;
        // the dashes of a list that is the value of a key stand below that key
        let same = place == Place::Value && !self.indention;
        self.deeper(false, same);
        for item in items {
            self.item(item);
        }
        self.indent = before;
    }

    fn item(&mut self, item: &Value) {
        self.new_line();
        self.indicator("-", true, true);
        self.node(item, Place::Item);
    }

    fn map(&mut self, map: &Map) {
        let before = self.indent;
        self.deeper(false, false);
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|a, b| natural(a.0, b.0));
        for (key, value) in entries {
            self.entry(key, value);
        }
        self.indent = before;
    }

    fn entry(&mut self, key: &str, value: &Value) {
        self.key(key);
        self.node(value, Place::Value);
    }

    fn key(&mut self, key: &str) {
        self.new_line();
        let style = wanted(key);
        if key.len() <= LONGEST_KEY && !Shape::of(key).breaks {
            self.scalar(key, style, Place::Key);
            self.indicator(":", false, false);
        } else {
            self.indicator("?", true, true);
            self.scalar(key, style, Place::Value);
            self.new_line();
            self.indicator(":", true, true);
        }
    }

    fn deeper(&mut self, flow: bool, same: bool) {
        if self.indent < 0 {
            self.indent = if flow { STEP } else { 0 };
        } else if !same {
            self.indent += STEP;
        }
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    /// Goes to the column of the indentation, on this line if that is still possible.
    fn new_line(&mut self) {
        let indent = usize::try_from(self.indent).unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(&mut self, text: &str, spaced: bool, keeps_indention: bool) {
        if spaced && !self.whitespace {
            self.put(' ');
        }
        for c in text.chars() {
            self.put(c);
        }
        self.whitespace = false;
        self.indention = self.indention && keeps_indention;
    }

    fn scalar(&mut self, text: &str, wanted: Style, place: Place) {
        let before = self.indent;
        self.deeper(true, false);
        let may_break = place != Place::Key;
        match possible(text, wanted, place) {
            Style::Plain => self.plain(text, may_break),
            Style::Single => self.single(text, may_break),
            Style::Double => self.double(text, may_break),
            Style::Literal => self.literal(text),
        }
        self.indent = before;
    }

    fn plain(&mut self, text: &str, may_break: bool) {
        if !self.whitespace && !text.is_empty() {
            self.put(' ');
        }
        let mut spaces = false;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c == ' ' && may_break && !spaces && self.column > WIDTH && rest.peek() != Some(&' ') {
                self.new_line();
            } else {
                self.put(c);
            }
            spaces = c == ' ';
            if c != ' ' {
                self.indention = false;
            }
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn single(&mut self, text: &str, may_break: bool) {
        self.indicator("'", true, false);
        let mut spaces = false;
        let mut rest = text.chars().peekable();
        let mut first = true;
        while let Some(c) = rest.next() {
            if c == ' ' {
                let inside = !first && rest.peek().is_some_and(|next| *next != ' ');
                if may_break && !spaces && self.column > WIDTH && inside {
                    self.new_line();
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                if c == '\'' {
                    self.put(c);
                }
                self.put(c);
                spaces = false;
            }
            first = false;
        }
        self.indicator("'", false, false);
    }

    fn double(&mut self, text: &str, may_break: bool) {
        self.indicator("\"", true, false);
        let mut spaces = false;
        let mut first = true;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if !is_printable(c) || matches!(c, '\n' | '"' | '\\') {
                self.escaped(c);
                spaces = false;
            } else if c == ' ' {
                if may_break && !spaces && self.column > WIDTH && !first && rest.peek().is_some() {
                    self.new_line();
                    if rest.peek() == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
            first = false;
        }
        self.indicator("\"", false, false);
    }

    fn escaped(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => {
                let code = c as u32;
                let long = match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                long.chars().for_each(|c| self.put(c));
                return;
            }
        };
        self.put('\\');
        self.put(short);
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false);
        if text.starts_with([' ', '\n']) {
            self.put('2');
        }
        let mut last = text.chars().rev();
        match (last.next(), last.next()) {
            (Some('\n'), None | Some('\n')) => self.put('+'),
            (Some('\n'), _) => {}
            _ => self.put('-'),
        }
        self.line_break();
        (self.whitespace, self.indention) = (true, true);
        let mut breaks = true;
        for c in text.chars() {
            if c == '\n' {
                self.line_break();
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.new_line();
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
        self.whitespace = breaks;
    }
}

/// Characters that are written unescaped. The line separators of Unicode break lines for some readers
/// and not for others, so they are escaped too.
fn is_printable(c: char) -> bool {
    match c {
        '\u{2028}' | '\u{2029}' => false,
        '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' => true,
        _ => false,
    }
}

/// The style that the meaning of a text asks for.
fn wanted(text: &str) -> Style {
    if text.contains('\n') {
        Style::Literal
    } else if resolve(text) == Plain::Text && !is_base_sixty(text) {
        Style::Plain
    } else {
        Style::Double
    }
}

/// The style that the characters of a text allow.
fn possible(text: &str, wanted: Style, place: Place) -> Style {
    let shape = Shape::of(text);
    let key = place == Place::Key;
    let mut style = if key && shape.breaks { Style::Double } else { wanted };
    if style == Style::Plain && (!shape.plain || (text.is_empty() && key)) {
        style = Style::Single;
    }
    if style == Style::Single && !shape.single {
        style = Style::Double;
    }
    if style == Style::Literal && (!shape.literal || key) {
        style = Style::Double;
    }
    style
}

/// Which styles can carry a text.
struct Shape {
    breaks: bool,
    plain: bool,
    single: bool,
    literal: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut breaks, mut break_space, mut space_break) = (false, false, false, false);
        let mut before: Option<char> = None;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let blank = |c: char| matches!(c, ' ' | '\t' | '\n');
            let blank_after = rest.peek().is_none_or(|next| blank(*next));
            indicators |= match (c, before) {
                ('-' | '?', None) | (':', _) => blank_after,
                ('#', Some(before)) => blank(before),
                (c, None) => "#,[]{}&*!|>'\"%@`".contains(c),
                _ => false,
            };
            special |= !is_printable(c);
            breaks |= matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
            break_space |= c == ' ' && before == Some('\n');
            space_break |= c == '\n' && before == Some(' ');
            before = Some(c);
        }
        let edges = text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        Shape {
            breaks,
            plain: !edges && !break_space && !space_break && !special && !breaks && !indicators,
            single: !break_space && !space_break && !special,
            literal: !text.is_empty() && !text.ends_with(' ') && !space_break && !special,
        }
    }
}

/// The order of keys: letters after everything else, numbers inside by their size.
fn natural(a: &str, b: &str) -> Ordering {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    let (Some(x), Some(y)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return rest_a.len().cmp(&rest_b.len());
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // zeros inside a number count, zeros at its beginning do not
    let inside = (x == '0' || y == '0')
        && a[..same].bytes().rev().take_while(u8::is_ascii_digit).any(|digit| digit != b'0');
    let number = |text: &str| {
        let digits = text.bytes().take_while(u8::is_ascii_digit);
        digits.fold((i64::from(inside), 0), |(sum, count), digit| {
            (sum.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')), count + 1)
        })
    };
    number(rest_a).cmp(&number(rest_b)).then(x.cmp(&y))
}
