//! The types of plain scalars.

/// The type of a plain scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    /// Whole, but only as an unsigned number.
    Large(u64),
    Float(f64),
    /// Kept as text, but must be quoted when it is written.
    Timestamp,
    Merge,
    Text,
}

impl Plain {
    /// The short name of its tag.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Plain::Null => "null",
            Plain::Bool(_) => "bool",
            Plain::Int(_) | Plain::Large(_) => "int",
            Plain::Float(_) => "float",
            Plain::Timestamp => "timestamp",
            Plain::Merge => "merge",
            Plain::Text => "str",
        }
    }
}

pub(super) fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Plain::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Plain::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Plain::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Plain::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Plain::Float(f64::NEG_INFINITY),
        "<<" => return Plain::Merge,
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => float(text).map_or(Plain::Text, Plain::Float),
        b'+' | b'-' | b'0'..=b'9' => number(text),
        _ => Plain::Text,
    }
}

fn number(text: &str) -> Plain {
    if is_timestamp(text) {
        return Plain::Timestamp;
    }
    // cheap way out for the long texts that only begin like a number
    if text.len() > 400 {
        return Plain::Text;
    }
    let compact = text.replace('_', "");
    let unsigned = compact.strip_prefix(['+', '-']).unwrap_or(&compact);
    let negative = compact.starts_with('-');
    if let Some(size) = magnitude(unsigned) {
        let signed = if negative { -i128::from(size) } else { i128::from(size) };
        if let Ok(small) = i64::try_from(signed) {
            return Plain::Int(small);
        }
        if !compact.starts_with(['+', '-']) {
            return Plain::Large(size);
        }
    }
    float(&compact).map_or(Plain::Text, Plain::Float)
}

/// Digits with the prefix of their base; a leading zero alone means octal.
fn magnitude(text: &str) -> Option<u64> {
    let lower = |prefix: char| text.strip_prefix('0')?.strip_prefix([prefix, prefix.to_ascii_uppercase()]);
    let (digits, radix) = if let Some(rest) = lower('x') {
        (rest, 16)
    } else if let Some(rest) = lower('b') {
        (rest, 2)
    } else if let Some(rest) = lower('o') {
        (rest, 8)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    // a second sign is not for us
    digits
        .starts_with(|c: char| c.is_ascii_alphanumeric())
        .then(|| u64::from_str_radix(digits, radix).ok())?
}

/// A decimal number with a point or an exponent; too large a number is not one.
fn float(text: &str) -> Option<f64> {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = digits(rest);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let (number, end) = digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
        if number.is_empty() || !end.is_empty() {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    text.parse::<f64>().ok().filter(|it| it.is_finite())
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// A date, or a date and a time of day, in the forms that YAML 1.1 knows.
fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let year = number_of(&mut rest, 4..=4);
    let (Some(year), true) = (year, rest.starts_with('-')) else { return false };
    rest = &rest[1..];
    let Some(month) = number_of(&mut rest, 1..=2).filter(|it| (1..=12).contains(it)) else { return false };
    let Some(after) = rest.strip_prefix('-') else { return false };
    rest = after;
    if number_of(&mut rest, 1..=2).is_none_or(|day| !(1..=days(year, month)).contains(&day)) {
        return false;
    }
    match rest.strip_prefix(['T', 't', ' ']) {
        Some(time) => clock(time, !rest.starts_with(' ')),
        None => rest.is_empty(),
    }
}

fn clock(mut rest: &str, zone_needed: bool) -> bool {
    for (at, most) in [23, 59, 59].into_iter().enumerate() {
        if at > 0 {
            let Some(after) = rest.strip_prefix(':') else { return false };
            rest = after;
        }
        if number_of(&mut rest, 1..=2).is_none_or(|it| it > most) {
            return false;
        }
    }
    if let Some(after) = rest.strip_prefix('.') {
        let (fraction, after) = digits(after);
        if fraction.is_empty() {
            return false;
        }
        rest = after;
    }
    match rest {
        "" => !zone_needed,
        "Z" => zone_needed,
        _ if !zone_needed => false,
        _ => {
            let b = rest.as_bytes();
            b.len() == 6
                && matches!(b[0], b'+' | b'-')
                && b[3] == b':'
                && [1, 2, 4, 5].iter().all(|at| b[*at].is_ascii_digit())
        }
    }
}

fn number_of(rest: &mut &str, width: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let (found, after) = digits(rest);
    let number = width.contains(&found.len()).then(|| found.parse().ok())??;
    *rest = after;
    Some(number)
}

fn days(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Numbers in base sixty, which older parsers still read.
pub(super) fn is_base_sixty(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let Some((head, tail)) = rest.split_once(':') else { return false };
    let tail = match tail.split_once('.') {
        Some((tail, fraction)) if fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') => tail,
        Some(_) => return false,
        None => tail,
    };
    let sixtieth = |part: &str| match part.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    head.starts_with(|c: char| c.is_ascii_digit())
        && head.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        && tail.split(':').all(sixtieth)
}

/// The shortest text of a float: `1.5`, `1e+20`. `scientific` is Rust's own (`1.5e0`).
pub(super) fn short_float(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits}{}", "0".repeat(whole - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
}
