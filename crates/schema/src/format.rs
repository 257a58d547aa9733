//! Named forms of text: labels, names, addresses, keys.
//!
//! Each check gives every rule that the text breaks, in the words that clients of the API know; an empty
//! answer means the text is fine and cost no allocation. A check looks at each byte once or twice and never
//! at anything but the text.

use crate::problem::quoted;
use crate::table::Format;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The messages of all format errors of a text; empty if it is valid.
pub type FormatErrors = Vec<String>;

/// Checks a text against the form that a table names.
pub fn check(format: Format, text: &str) -> FormatErrors {
    match format {
        Format::Dns1123Label => dns1123_label(text),
        Format::Dns1123Subdomain => dns1123_subdomain(text),
        Format::Dns1035Label => dns1035_label(text),
        Format::QualifiedName => qualified_name(text),
        Format::LabelValue => label_value(text),
        Format::PathSegment => path_segment(text),
        Format::IpAddress => ip(text),
        Format::PortName => port_name(text),
        Format::EnvName => env_name(text),
        Format::ConfigKey => config_key(text),
    }
}

/// The longest DNS label, label value and name part of a qualified name.
pub const LABEL_MAX: usize = 63;
/// The longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;
/// Bytes that the keys and values of annotations may have together.
pub const ANNOTATIONS_MAX: usize = 256 * 1024;

const LABEL_EXPRESSION: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const NAME_EXPRESSION: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// "must be no more than N characters".
pub fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}

/// "must be between A and B, inclusive".
pub fn out_of_range(least: i64, most: i64) -> String {
    format!("must be between {least} and {most}, inclusive")
}

/// A rule in words, with examples and the expression that says the same.
fn shape(words: &str, examples: &[&str], expression: &str) -> String {
    let mut out = format!("{words} (");
    for (at, example) in examples.iter().enumerate() {
        out.push_str(if at == 0 { "e.g. '" } else { " or '" });
        out.push_str(example);
        out.push_str("', ");
    }
    out + "regex used for validation is '" + expression + "')"
}

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// At least one byte, the first and the last of one class and those between of another.
fn framed(text: &[u8], first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    match text {
        [] => false,
        [only] => first(*only) && last(*only),
        [start, middle @ .., end] => first(*start) && last(*end) && middle.iter().all(|byte| inner(*byte)),
    }
}

fn is_dns1123_label(text: &str) -> bool {
    framed(text.as_bytes(), lower_or_digit, |b| lower_or_digit(b) || b == b'-', lower_or_digit)
}

fn is_dns1123_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns1123_label)
}

fn is_name_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    framed(text.as_bytes(), |b| b.is_ascii_alphanumeric(), inner, |b| b.is_ascii_alphanumeric())
}

/// A label of a host name that may start with a digit.
pub fn dns1123_label(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    if text.len() > LABEL_MAX {
        wrong.push(too_long(LABEL_MAX));
    }
    if !is_dns1123_label(text) {
        let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                     and must start and end with an alphanumeric character";
        wrong.push(shape(words, &["my-name", "123-abc"], LABEL_EXPRESSION));
    }
    wrong
}

/// Labels joined by dots.
pub fn dns1123_subdomain(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    if text.len() > SUBDOMAIN_MAX {
        wrong.push(too_long(SUBDOMAIN_MAX));
    }
    if !is_dns1123_subdomain(text) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                     and must start and end with an alphanumeric character";
        let expression = format!(r"{LABEL_EXPRESSION}(\.{LABEL_EXPRESSION})*");
        wrong.push(shape(words, &["example.com"], &expression));
    }
    wrong
}

/// `*.` and a subdomain.
pub fn wildcard_subdomain(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    if text.len() > SUBDOMAIN_MAX {
        wrong.push(too_long(SUBDOMAIN_MAX));
    }
    if !text.strip_prefix("*.").is_some_and(is_dns1123_subdomain) {
        let words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                     consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        let expression = format!(r"\*\.{LABEL_EXPRESSION}(\.{LABEL_EXPRESSION})*");
        wrong.push(shape(words, &["*.example.com"], &expression));
    }
    wrong
}

/// A label of a host name that starts with a letter.
pub fn dns1035_label(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    if text.len() > LABEL_MAX {
        wrong.push(too_long(LABEL_MAX));
    }
    let inner = |b: u8| lower_or_digit(b) || b == b'-';
    if !framed(text.as_bytes(), |b| b.is_ascii_lowercase(), inner, lower_or_digit) {
        let words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                     start with an alphabetic character, and end with an alphanumeric character";
        wrong.push(shape(words, &["my-name", "abc-123"], "[a-z]([-a-z0-9]*[a-z0-9])?"));
    }
    wrong
}

/// A name with an optional subdomain and slash before it, as label and annotation keys are.
pub fn qualified_name(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    let words = |subject: &str| {
        shape(&format!("{subject} {NAME_WORDS}"), &["MyName", "my.name", "123-abc"], NAME_EXPRESSION)
    };
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            let tail = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![words("a qualified name") + tail];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            wrong.extend(dns1123_subdomain(prefix).iter().map(|why| format!("prefix part {why}")));
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        wrong.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_name_part(name) {
        wrong.push(words("name part"));
    }
    wrong
}

/// The value of a label.
pub fn label_value(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    if text.len() > LABEL_MAX {
        wrong.push(too_long(LABEL_MAX));
    }
    if !text.is_empty() && !is_name_part(text) {
        let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                     and must start and end with an alphanumeric character";
        wrong.push(shape(words, &["MyValue", "my_value", "12345"], &format!("({NAME_EXPRESSION})?")));
    }
    wrong
}

/// The key of an annotation: a qualified name whose case does not count.
pub fn annotation_key(key: &str) -> FormatErrors {
    if key.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) {
        qualified_name(key)
    } else {
        qualified_name(&key.to_lowercase())
    }
}

/// The bytes of all keys and values, when they are too many together.
pub fn annotations_too_large<'a>(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> Option<usize> {
    let total = annotations.map(|(key, value)| key.len() + value.len()).sum();
    (total > ANNOTATIONS_MAX).then_some(total)
}

/// The name of a port or service as IANA registers them.
pub fn port_name(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    let bytes = text.as_bytes();
    if bytes.len() > 15 {
        wrong.push(too_long(15));
    }
    if bytes.is_empty() || !bytes.iter().all(|b| lower_or_digit(*b) || *b == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !bytes.iter().any(u8::is_ascii_lowercase) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// The number of a port.
pub fn port_number(number: i64) -> FormatErrors {
    if (1..=65535).contains(&number) { Vec::new() } else { vec![out_of_range(1, 65535)] }
}

/// The name of an environment variable.
pub fn env_name(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let starts = text.as_bytes().first().is_some_and(|b| !b.is_ascii_digit());
    if !starts || !text.as_bytes().iter().all(inner) {
        let words = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', \
                     and must not start with a digit";
        let examples = ["my.env-name", "MY_ENV.NAME", "MyEnvName1"];
        wrong.push(shape(words, &examples, "[-._a-zA-Z][-._a-zA-Z0-9]*"));
    }
    wrong.extend(upward(text));
    wrong
}

/// The key of a config map or secret.
pub fn config_key(text: &str) -> FormatErrors {
    let mut wrong = FormatErrors::new();
    if text.len() > SUBDOMAIN_MAX {
        wrong.push(too_long(SUBDOMAIN_MAX));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if text.is_empty() || !text.bytes().all(allowed) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        wrong.push(shape(words, &["key.name", "KEY_NAME", "key-name"], "[-._a-zA-Z0-9]+"));
    }
    wrong.extend(upward(text));
    wrong
}

/// A name that would lead elsewhere when it becomes a file.
fn upward(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// A name that stands between slashes of a path.
pub fn path_segment(text: &str) -> FormatErrors {
    if matches!(text, "." | "..") { vec![format!("may not be '{text}'")] } else { path_segment_prefix(text) }
}

/// The beginning of such a name, to which something will be added.
pub fn path_segment_prefix(text: &str) -> FormatErrors {
    let contains = |c: char| text.contains(c).then(|| format!("may not contain '{c}'"));
    contains('/').into_iter().chain(contains('%')).collect()
}

/// The error of a client that gets an object by a name that cannot be a part of a path.
pub fn lookup_error(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("resource name may not be empty".to_owned());
    }
    let wrong = path_segment(name);
    (!wrong.is_empty()).then(|| format!("invalid resource name {}: [{}]", quoted(name), wrong.join(" ")))
}

/// An address; leading zeros in the numbers of an IPv4 address are allowed and mean nothing.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        // an IPv4 address in IPv6 clothes is the IPv4 address
        return Some(ip.to_canonical());
    }
    if !text.contains(':') {
        return sloppy_v4(text).map(IpAddr::V4);
    }
    // an IPv6 address may end in dotted numbers
    let (head, tail) = text.rsplit_once(':')?;
    let plain = format!("{head}:{}", sloppy_v4(tail)?);
    plain.parse::<Ipv6Addr>().ok().map(|ip| IpAddr::V6(ip).to_canonical())
}

fn sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))?;
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| octets.into())
}

/// An address and the length of its prefix.
pub fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let ip = parse_ip(address)?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = length.trim_start_matches('0');
    let length: u8 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    // written as IPv6, so its prefix counts the bits of IPv6
    let v6 = address.contains(':');
    (length <= if v6 { 128 } else { 32 }).then_some((ip, length))
}

/// An address of either family.
pub fn ip(text: &str) -> FormatErrors {
    match parse_ip(text) {
        Some(_) => Vec::new(),
        None => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// An address and the length of its prefix.
pub fn cidr(text: &str) -> FormatErrors {
    match parse_cidr(text) {
        Some(_) => Vec::new(),
        None => vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()],
    }
}

/// The name of a header of an HTTP message.
pub fn http_header_name(text: &str) -> FormatErrors {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![shape(words, &["X-Header-Name"], "[-A-Za-z0-9]+")]
}

/// A name as the C language has them.
pub fn c_identifier(text: &str) -> FormatErrors {
    let starts = text.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if starts && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Vec::new();
    }
    let words = "a valid C identifier must start with alphabetic character or '_', \
                 followed by a string of alphanumeric characters or '_'";
    vec![shape(words, &["my_name", "MY_NAME", "MyName"], "[A-Za-z_][A-Za-z0-9_]*")]
}

/// Digits and a percent sign.
pub fn percent(text: &str) -> FormatErrors {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    let words = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![shape(words, &["1%", "93%"], "[0-9]+%")]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    #[test]
    fn labels_and_subdomains() {
        for good in ["a", "0", "a-b", "a--b", &"a".repeat(63)] {
            assert!(dns1123_label(good).is_empty(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é"] {
            assert_eq!(dns1123_label(bad), [LABEL], "{bad}");
        }
        assert_eq!(dns1123_label(&"A".repeat(64)), ["must be no more than 63 characters", LABEL]);
        assert!(dns1123_subdomain("a.b-c.0").is_empty());
        for bad in ["", ".", "a..b", "a.", ".a", "a.-b"] {
            assert_eq!(dns1123_subdomain(bad), [SUBDOMAIN], "{bad}");
        }
        assert_eq!(dns1123_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert!(dns1035_label("a1").is_empty());
        assert_eq!(
            dns1035_label("1a"),
            [
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert!(wildcard_subdomain("*.a.b").is_empty());
        assert_eq!(wildcard_subdomain("*a").len(), 1);
    }

    #[test]
    fn qualified_names_complain_part_by_part() {
        for good in ["a", "A.b_c-d", "example.com/Name"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        assert_eq!(qualified_name(""), ["name part must be non-empty", NAME]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("A/a"), [format!("prefix part {SUBDOMAIN}")]);
        assert_eq!(qualified_name("a/"), ["name part must be non-empty", NAME]);
        assert_eq!(qualified_name(&"a".repeat(64)), ["name part must be no more than 63 characters"]);
        assert!(qualified_name("a/b/c")[0].starts_with("a qualified name must consist"));
        assert!(qualified_name("a/b/c")[0].ends_with("(e.g. 'example.com/MyName')"));
        assert!(label_value("").is_empty() && label_value("a.B").is_empty());
        assert_eq!(label_value("-").len(), 1);
        assert!(annotation_key("Example.com/a").is_empty());
        assert_eq!(annotations_too_large([("k", "v")].into_iter()), None);
        let large = "x".repeat(ANNOTATIONS_MAX);
        assert_eq!(annotations_too_large([("k", &*large)].into_iter()), Some(ANNOTATIONS_MAX + 1));
    }

    #[test]
    fn ports_keys_and_segments() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("--").len(), 3);
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("").len(), 2);
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert!(env_name("A.b").is_empty());
        assert_eq!(env_name("1a").len(), 1);
        assert_eq!(env_name("..a"), ["must not start with '..'"]);
        assert!(config_key("a..b").is_empty());
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(path_segment("."), ["may not be '.'"]);
        assert_eq!(path_segment("a/%"), ["may not contain '/'", "may not contain '%'"]);
        assert!(path_segment_prefix(".").is_empty());
        assert_eq!(lookup_error("a.b"), None);
        assert_eq!(lookup_error("").unwrap(), "resource name may not be empty");
        let why = r#"invalid resource name "a/%": [may not contain '/' may not contain '%']"#;
        assert_eq!(lookup_error("a/%").unwrap(), why);
        assert!(http_header_name("X-A").is_empty() && !http_header_name("X_A").is_empty());
        assert!(c_identifier("_a1").is_empty() && !c_identifier("1a").is_empty());
        assert!(percent("10%").is_empty() && !percent("%").is_empty() && !percent("1").is_empty());
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_ip("010.0.0.001"), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(parse_ip("::ffff:1.2.3.4"), Some(IpAddr::from([1, 2, 3, 4])));
        assert_eq!(parse_ip("::ffff:01.2.3.4"), Some(IpAddr::from([1, 2, 3, 4])));
        for bad in ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "::1%eth0", "a", "1.2.3.+4", ":::"] {
            assert_eq!(parse_ip(bad), None, "{bad}");
            assert_eq!(ip(bad), ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]);
        }
        assert_eq!(parse_cidr("10.0.0.0/08"), Some((IpAddr::from([10, 0, 0, 0]), 8)));
        assert!(parse_cidr("2001:db8::/128").is_some());
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/129"] {
            assert_eq!(parse_cidr(bad), None, "{bad}");
        }
    }
}
