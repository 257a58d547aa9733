//! Text formats that a schema can name; an unknown format has no rule.

use schema::pattern::LazyRegex;
use schema::{format, time, url};
use std::sync::LazyLock;

/// Whether a text has the form.
pub(super) fn fits(form: &str, text: &str) -> bool {
    match form {
        "date-time" | "datetime" => time::parse_time(text).is_ok(),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "ipv4" => format::parse_ip(text).is_some_and(|it| it.is_ipv4()),
        "ipv6" => format::parse_ip(text).is_some_and(|it| it.is_ipv6()),
        "cidr" => format::parse_cidr(text).is_some(),
        "mac" => is_mac(text),
        "byte" => is_base64(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "hostname" => is_hostname(text),
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_card(text),
        "ssn" => matches(&SSN, text),
        "hexcolor" => matches(&HEX_COLOR, text),
        "rgbcolor" => is_rgb(text),
        _ => true,
    }
}

/// Whether a form is one that texts of objects are judged by. `password` is one that every text has.
pub(super) fn is_known(form: &str) -> bool {
    matches!(
        &*form.replace('-', ""),
        "bsonobjectid"
            | "byte"
            | "cidr"
            | "creditcard"
            | "date"
            | "datetime"
            | "duration"
            | "email"
            | "hexcolor"
            | "hostname"
            | "ipv4"
            | "ipv6"
            | "isbn"
            | "isbn10"
            | "isbn13"
            | "mac"
            | "password"
            | "rgbcolor"
            | "ssn"
            | "uri"
            | "uuid"
            | "uuid3"
            | "uuid4"
            | "uuid5"
    )
}

fn matches(expression: &LazyRegex, text: &str) -> bool {
    expression.regex().is_some_and(|it| it.is_match(text))
}

static SSN: LazyLock<LazyRegex> = LazyLock::new(|| LazyRegex::new("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<LazyRegex> =
    LazyLock::new(|| LazyRegex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static LETTER: LazyLock<LazyRegex> = LazyLock::new(|| LazyRegex::new(r"^\p{L}$"));
static LETTER_OR_SYMBOL: LazyLock<LazyRegex> = LazyLock::new(|| LazyRegex::new(r"^[\p{L}\p{S}]$"));
static UUID: LazyLock<LazyRegex> =
    LazyLock::new(|| LazyRegex::new("^[^-]{8}-?[^-]{4}-?[^-]{4}-?[^-]{4}-?[^-]{12}$"));
static AMOUNT: LazyLock<LazyRegex> = LazyLock::new(|| LazyRegex::new(r"([0-9]+)\s*([A-Za-zµ]+)"));

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && time::parse_time(&format!("{text}T00:00:00Z")).is_ok()
}

/// Numbers with units, as one word or as words: `1h30m`, `2 days`. Text beside them is not looked at.
fn is_duration(text: &str) -> bool {
    if time::parse_duration(text).is_ok() {
        return true;
    }
    let Some(amount) = AMOUNT.regex() else { return false };
    let mut is_found = false;
    for found in amount.captures_iter(text) {
        if found[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = found[2].to_lowercase();
        is_found |= UNITS.contains(&&*unit) || UNIT_STARTS.iter().any(|start| unit.starts_with(start));
    }
    is_found
}

const UNITS: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
/// Units that may go on.
const UNIT_STARTS: &[&str] = &["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];

fn is_mac(text: &str) -> bool {
    let parts = |separator: char, digits: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|it| it.len() == digits && is_hex(it))
    };
    parts(':', 2, &[6, 8, 20]) || parts('-', 2, &[6, 8, 20]) || parts('.', 4, &[3, 4, 10])
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: String = text.chars().filter(|it| *it != '-').collect();
    let placed = matches(&UUID, text);
    let variant = digits.chars().nth(16).is_some_and(|it| "89abAB".contains(it));
    placed
        && is_hex(&digits)
        && version.is_none_or(|it| digits.chars().nth(12) == Some(it) && (it == '3' || variant))
}

fn is_email(text: &str) -> bool {
    let address = match text.split_once('<') {
        Some((_, rest)) => rest.strip_suffix('>').unwrap_or(""),
        None => text,
    };
    let atom = |it: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
        !it.is_empty() && it.split('.').all(|part| !part.is_empty() && part.chars().all(fits))
    };
    address.rsplit_once('@').is_some_and(|(local, domain)| atom(local) && atom(domain))
}

fn is_uri(text: &str) -> bool {
    text == "*"
        || !text.contains(' ')
            && url::parse(text).is_ok_and(|it| !it.scheme.is_empty() || text.starts_with('/'))
}

/// Labels of letters, digits and symbols, of which the last is two letters or more where there are several. The only
/// label of a name has at most one hyphen, behind its first character.
fn is_hostname(text: &str) -> bool {
    let is = |class: &LazyRegex, c: char| matches(class, c.encode_utf8(&mut [0; 4]));
    let edge = |c: char| c.is_ascii_alphanumeric() || is(&LETTER_OR_SYMBOL, c);
    let label = |it: &str| {
        let ends = [it.chars().next(), it.chars().next_back()];
        it.chars().all(|c| c == '-' || edge(c)) && ends.into_iter().all(|c| c.is_some_and(edge))
    };
    let fits = match text.rsplit_once('.') {
        Some((labels, last)) => {
            let letters = last.chars().filter(|c| is(&LETTER, *c)).count();
            letters >= 2 && letters == last.chars().count() && labels.split('.').all(label)
        }
        None => {
            let mut rest = text.chars();
            let first = rest.next().is_some_and(edge);
            let rest = rest.as_str();
            first && rest.strip_prefix('-').unwrap_or(rest).chars().all(edge)
        }
    };
    fits && text.len() <= 255 && text.split('.').all(|it| it.len() <= 63)
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|it| *it != ' ' && *it != '-').collect()
}

/// Groups of four characters, the last with its padding. An empty text is none.
fn is_base64(text: &str) -> bool {
    let symbols = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_symbol = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !symbols.is_empty() && text.len().is_multiple_of(4) && symbols.bytes().all(is_symbol)
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let value = |(at, c): (usize, char)| match c {
        'X' if at == 9 => Some(10),
        c => c.to_digit(10),
    };
    let sum: Option<u32> =
        digits.chars().enumerate().map(|(at, c)| Some((at as u32 + 1) * value((at, c))?)).sum();
    digits.len() == 10 && sum.is_some_and(|it| it % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let sum: Option<u32> =
        digits.chars().enumerate().map(|(at, c)| Some((1 + at as u32 % 2 * 2) * c.to_digit(10)?)).sum();
    digits.len() == 13 && sum.is_some_and(|it| it % 10 == 0)
}

/// Digits whose weighted sum ends in zero.
fn is_card(text: &str) -> bool {
    let digits = digits_of(text);
    let weighted = |(at, c): (usize, char)| {
        let digit = c.to_digit(10)?;
        Some(if at % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 })
    };
    let sum: Option<u32> = digits.chars().rev().enumerate().map(weighted).sum();
    (13..=19).contains(&digits.len()) && sum.is_some_and(|it| it % 10 == 0)
}

fn is_rgb(text: &str) -> bool {
    let inside = text.strip_prefix("rgb(").and_then(|it| it.strip_suffix(')'));
    let parts: Vec<_> = inside.unwrap_or_default().split(',').map(|it| it.trim().parse::<u8>()).collect();
    parts.len() == 3 && parts.iter().all(Result::is_ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_distinguished() {
        for (form, yes, no) in [
            ("date", "2020-01-31", "2020-13-01"),
            ("date-time", "2020-01-01T00:00:00Z", "2020-01-01"),
            ("duration", "1 day", "5"),
            ("duration", "a89b-42d3", "42x"),
            ("duration", "3 Seconds", "99999999999999999999 s"),
            ("ipv4", "1.2.3.4", "::1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("mac", "00:00:5e:00:53:01", "x"),
            ("byte", "aGk=", ""),
            ("byte", "aB==", "a==="),
            ("byte", "AAAA", "AA=A"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("email", "a@b.c", "a.b.c"),
            ("uri", "http://a/b", "a b"),
            ("uri", "*", "**"),
            ("hostname", "example.com", "a_b"),
            ("hostname", "YQ==", "a.b"),
            ("hostname", "a-b", "a-b-c"),
            ("hostname", "a-b-c.example", "-a"),
            ("isbn10", "0-306-40615-2", "0-306-40615-3"),
            ("isbn13", "978-0-306-40615-7", "978-0-306-40615-8"),
            ("creditcard", "4111111111111111", "4111111111111112"),
            ("rgbcolor", "rgb(1, 2, 3)", "rgb(1,2,300)"),
            ("hexcolor", "#fff", "#ff"),
        ] {
            assert!(fits(form, yes) && !fits(form, no), "{form}");
        }
        assert!(fits("bogus", "anything"));
    }
}
