//! Checks of single values that several kinds share: text forms, addresses, numbers, paths.
//!
//! Each check appends its problems, with the texts of the API. No check knows a kind.

use crate::read;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::problem::{Problem, REPEATED_LIMIT, Reason, quoted};
use schema::table::Format;
use schema::{Path, Value, format};
use std::collections::HashSet;
use std::net::IpAddr;

pub(crate) use schema::problem::Problems;

/// Problems that each show the same list. The first is always reported, the others up to a byte limit.
#[derive(Default)]
pub(crate) struct SharedListProblems {
    formatted: Option<String>,
    /// The number of bytes shown so far.
    bytes: usize,
}

impl SharedListProblems {
    /// Whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.bytes > REPEATED_LIMIT
    }

    /// Reports a problem; it shows `list`, the same each time.
    pub fn report(&mut self, path: &Path<'_>, list: impl FnOnce() -> String, why: &str, out: &mut Problems) {
        if self.is_full() {
            return;
        }
        let formatted = self.formatted.get_or_insert_with(list);
        self.bytes += formatted.len();
        if self.bytes == formatted.len() || self.bytes <= REPEATED_LIMIT {
            out.push(invalid_formatted(path, formatted, why));
        }
    }
}

/// A set of texts. A small one is scanned; only a large one is hashed.
#[derive(Default)]
pub(crate) struct TextSet<'t> {
    few: Vec<&'t str>,
    many: HashSet<&'t str>,
}

impl<'t> TextSet<'t> {
    const FEW: usize = 16;

    pub fn contains(&self, text: &str) -> bool {
        self.few.contains(&text) || self.many.contains(text)
    }

    /// Inserts a text; returns whether it is new.
    pub fn insert(&mut self, text: &'t str) -> bool {
        if self.few.contains(&text) {
            return false;
        }
        if self.few.len() == Self::FEW {
            return self.many.insert(text);
        }
        self.few.push(text);
        true
    }
}

impl<'t> FromIterator<&'t str> for TextSet<'t> {
    fn from_iter<I: IntoIterator<Item = &'t str>>(texts: I) -> Self {
        let mut seen = TextSet::default();
        for text in texts {
            seen.insert(text);
        }
        seen
    }
}

fn form(form: Format, text: &str, path: &Path<'_>, out: &mut Problems) {
    out.extend(format::check(form, text).iter().map(|why| Problem::invalid_text(path, text, why)));
}

pub(crate) fn label(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::Dns1123Label, text, path, out);
}

pub(crate) fn subdomain(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::Dns1123Subdomain, text, path, out);
}

pub(crate) fn qualified_name(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::QualifiedName, text, path, out);
}

pub(crate) fn label_value(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::LabelValue, text, path, out);
}

pub(crate) fn env_name(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::EnvName, text, path, out);
}

pub(crate) fn config_key(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::ConfigKey, text, path, out);
}

pub(crate) fn port_name(text: &str, path: &Path<'_>, out: &mut Problems) {
    form(Format::PortName, text, path, out);
}

/// Whether a text has a form.
pub(crate) fn is(form: Format, text: &str) -> bool {
    format::check(form, text).is_empty()
}

/// The reasons why a text does not have a form.
pub(crate) fn why(form: Format, text: &str) -> Vec<String> {
    format::check(form, text)
}

/// A text that must be given.
pub(crate) fn required(text: &str, path: &Path<'_>, out: &mut Problems) {
    if text.is_empty() {
        out.push(Problem::required(path, ""));
    }
}

/// A field that must be given below a value.
pub(crate) fn required_field(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    required(value.text(&[field]), &path.field(field), out);
}

/// One of a few texts, named in this order; empty is missing.
pub(crate) fn one_of(text: &str, allowed: &[&str], path: &Path<'_>, out: &mut Problems) {
    if text.is_empty() {
        out.push(Problem::required(path, ""));
    } else if !allowed.contains(&text) {
        out.push(unsupported(path, text, allowed));
    }
}

/// An unsupported value, with the supported ones in the given order.
pub(crate) fn unsupported(path: &Path<'_>, text: &str, supported: &[&str]) -> Problem {
    unsupported_formatted(path, &quoted(text), supported)
}

/// The same for a value that is shown as it is given here.
pub(crate) fn unsupported_formatted(path: &Path<'_>, formatted: &str, supported: &[&str]) -> Problem {
    let supported: Vec<_> = supported.iter().map(|one| quoted(one)).collect();
    let message = format!("Unsupported value: {formatted}: supported values: {}", supported.join(", "));
    Problem { reason: Reason::NotSupported, field: path.to_string(), message }
}

/// An invalid value that is shown as it is given here.
pub(crate) fn invalid_formatted(path: &Path<'_>, formatted: &str, detail: &str) -> Problem {
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let message = format!("Invalid value: {formatted}{detail}");
    Problem { reason: Reason::Invalid, field: path.to_string(), message }
}

pub(crate) fn invalid_int(path: &Path<'_>, number: i64, detail: &str) -> Problem {
    Problem::invalid(path, &Value::Int(number), detail)
}

pub(crate) fn duplicate_text(path: &Path<'_>, text: &str) -> Problem {
    Problem::duplicate(path, &Value::from(text))
}

pub(crate) fn not_found(path: &Path<'_>, text: &str) -> Problem {
    Problem::not_found(path, &Value::from(text))
}

/// A field that is not given.
pub(crate) fn null(path: &Path<'_>, detail: &str) -> Problem {
    Problem::invalid_text(path, "null", detail)
}

pub(crate) fn between(number: i64, least: i64, most: i64, path: &Path<'_>, out: &mut Problems) {
    if number < least || number > most {
        out.push(invalid_int(path, number, &format!("must be between {least} and {most}, inclusive")));
    }
}

/// A user or group number.
pub(crate) fn account_id(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    if let Some(number) = read::opt_int(value, &[field]) {
        between(number, 0, i64::from(i32::MAX), &path.field(field), out);
    }
}

pub(crate) fn port_number(number: i64, path: &Path<'_>, out: &mut Problems) {
    between(number, 1, 65535, path, out);
}

/// A port given as a number or by its name.
pub(crate) fn port(value: Option<&Value>, path: &Path<'_>, out: &mut Problems) {
    match value {
        Some(Value::String(name)) => port_name(name, path, out),
        other => port_number(other.and_then(Value::as_int).unwrap_or(0), path, out),
    }
}

pub(crate) fn not_negative(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    let number = read::int(value, &[field]);
    if number < 0 {
        out.push(invalid_int(&path.field(field), number, "must be greater than or equal to 0"));
    }
}

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(crate) fn file_mode(value: &Value, field: &str, path: &Path<'_>, out: &mut Problems) {
    if let Some(mode) = read::opt_int(value, &[field]).filter(|mode| !(0..=0o777).contains(mode)) {
        out.push(invalid_int(&path.field(field), mode, FILE_MODE));
    }
}

pub(crate) fn has_backsteps(text: &str) -> bool {
    text.split('/').any(|part| part == "..")
}

/// A path without steps upwards.
pub(crate) fn no_backsteps(text: &str, path: &Path<'_>, out: &mut Problems) {
    if has_backsteps(text) {
        out.push(Problem::invalid_text(path, text, "must not contain '..'"));
    }
}

/// A path that stays below where it starts.
pub(crate) fn descending_path(text: &str, path: &Path<'_>, out: &mut Problems) {
    if text.starts_with('/') {
        out.push(Problem::invalid_text(path, text, "must be a relative path"));
    }
    no_backsteps(text, path, out);
}

/// A descending path that leaves names with two leading dots to the node.
pub(crate) fn unreserved_path(text: &str, path: &Path<'_>, out: &mut Problems) {
    descending_path(text, path, out);
    if text.starts_with("..") && !has_backsteps(text) {
        out.push(Problem::invalid_text(path, text, "must not start with '..'"));
    }
}

/// Labels with their values.
pub(crate) fn labels(value: &Value, path: &Path<'_>, out: &mut Problems) {
    for (key, value) in value.as_map().into_iter().flat_map(|it| it.iter()) {
        qualified_name(key, path, out);
        label_value(read::text(value), path, out);
    }
}

pub(crate) fn ip(text: &str, path: &Path<'_>, out: &mut Problems) {
    if format::parse_ip(text).is_none() {
        out.push(Problem::invalid_text(path, text, "must be valid IP address"));
    }
}

/// Whether both families occur in a list of addresses.
pub(crate) fn is_dual_stack(addresses: &[IpAddr]) -> bool {
    addresses.iter().any(IpAddr::is_ipv4) && addresses.iter().any(IpAddr::is_ipv6)
}

pub(crate) fn header_name(text: &str, path: &Path<'_>, out: &mut Problems) {
    out.extend(format::http_header_name(text).iter().map(|why| Problem::invalid_text(path, text, why)));
}

/// A list of texts as messages show it.
pub(crate) fn format_texts(items: &[Value]) -> String {
    let items: Vec<_> = items.iter().map(|it| quoted(read::text(it))).collect();
    format!("[]string{{{}}}", items.join(", "))
}

/// Bytes as messages show them; of many only the first.
pub(crate) fn format_bytes(bytes: &[u8]) -> String {
    const MOST: usize = 256;
    if bytes.is_empty() {
        return "[]byte(nil)".to_owned();
    }
    let formatted: Vec<_> = bytes.iter().take(MOST).map(|byte| format!("0x{byte:x}")).collect();
    let more = if bytes.len() > MOST { ", ..." } else { "" };
    format!("[]byte{{{}{more}}}", formatted.join(", "))
}

/// The bytes behind base64 text; none where it is not that, which decoding has refused before.
pub(crate) fn bytes_of(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

/// The number of bytes that base64 text encodes.
pub(crate) fn byte_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|&b| b == b'=').count().min(text.len() / 4 * 3)
}

pub(crate) fn base64_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_bytes() {
        for length in 0..20 {
            assert_eq!(byte_len(&base64_of(&vec![7; length])), length);
        }
    }

    #[test]
    fn error_texts_format_values_like_upstream() {
        assert_eq!(format_texts(&["a".into(), "b\"".into()]), r#"[]string{"a", "b\""}"#);
        assert_eq!(format_bytes(&[0, 255]), "[]byte{0x0, 0xff}");
    }
}
