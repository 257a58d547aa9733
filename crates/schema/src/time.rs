//! Times and durations, in the text formats of the API.
//!
//! Times are RFC 3339; the canonical forms are UTC with whole seconds (`2006-01-02T15:04:05Z`) or with six
//! digits of fraction. Durations are written in hours, minutes and seconds (`1h2m3.5s`). Nothing here knows
//! what time it is.

use std::fmt;
use std::fmt::Write as _;
use time::{Date, Month};

/// The error of text that is not a time or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("parsing time {0} as {1}: cannot parse {2} as {3}")]
    Element(QuotedText, QuotedText, QuotedText, QuotedText),
    #[error("parsing time {0}: {1} out of range")]
    Range(QuotedText, &'static str),
    #[error("parsing time {0}: extra text: {1}")]
    Extra(QuotedText, QuotedText),
    #[error("time: invalid duration {0}")]
    Duration(QuotedText),
    #[error("time: missing unit in duration {0}")]
    MissingUnit(QuotedText),
    #[error("time: unknown unit {0} in duration {1}")]
    UnknownUnit(QuotedText, QuotedText),
}

/// Text from outside that messages show in quotes, cut where it is very long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedText(Box<str>);

impl QuotedText {
    fn new(text: &str) -> Self {
        QuotedText(text.chars().take(1 << 16).collect::<String>().into())
    }
}

impl fmt::Display for QuotedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' || !c.is_ascii() => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
                }
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// RFC 3339 with any offset to the canonical form in whole seconds; a fraction is dropped.
pub fn parse_time(text: &str) -> Result<String, TimeError> {
    Reader::new(text, SECONDS_LAYOUT).read(false).map(|(seconds, _)| format_time(seconds))
}

/// RFC 3339 with any offset and six digits of fraction to the canonical form; finer digits are dropped.
pub fn parse_micro_time(text: &str) -> Result<String, TimeError> {
    let (seconds, nanos) = Reader::new(text, MICROS_LAYOUT).read(true)?;
    Ok(format_micro_time(seconds.saturating_mul(1_000_000).saturating_add(i64::from(nanos) / 1000)))
}

/// Seconds since the epoch to the canonical form. Beyond the years 0 to 9999 the nearest end is given.
pub fn format_time(unix_seconds: i64) -> String {
    let mut out = civil(unix_seconds);
    out.push('Z');
    out
}

/// Microseconds since the epoch to the canonical form with six digits.
pub fn format_micro_time(unix_micros: i64) -> String {
    let mut out = civil(unix_micros.div_euclid(1_000_000));
    let _ = write!(out, ".{:06}Z", unix_micros.rem_euclid(1_000_000));
    out
}

/// Seconds since the epoch of an RFC 3339 text, with or without a fraction.
pub fn to_unix(text: &str) -> Option<i64> {
    Reader::new(text, SECONDS_LAYOUT).read(false).ok().map(|(seconds, _)| seconds)
}

/// Microseconds since the epoch of an RFC 3339 text, with or without a fraction.
pub fn to_unix_micros(text: &str) -> Option<i64> {
    let (seconds, nanos) = Reader::new(text, SECONDS_LAYOUT).read(false).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(i64::from(nanos) / 1000)
}

const DAY: i64 = 86_400;
/// Year 0 and the end of year 9999.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;
/// Julian day of the epoch.
const EPOCH_DAY: i32 = 2_440_588;

fn civil(unix_seconds: i64) -> String {
    let seconds = unix_seconds.clamp(FIRST, LAST);
    let day = EPOCH_DAY + seconds.div_euclid(DAY) as i32;
    let rest = seconds.rem_euclid(DAY);
    let (year, month, day) = Date::from_julian_day(day).unwrap_or(Date::MIN).to_calendar_date();
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let mut out = String::with_capacity(28);
    let mut number = |number: i64, width: u32, before: &str| {
        out.push_str(before);
        for place in (0..width).rev() {
            out.push(char::from(b'0' + (number / 10i64.pow(place) % 10) as u8));
        }
    };
    number(i64::from(year), 4, "");
    number(month as i64, 2, "-");
    number(i64::from(day), 2, "-");
    number(hour, 2, "T");
    number(minute, 2, ":");
    number(second, 2, ":");
    out
}

/// Reads one time from left to right; what is left is what a message shows.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, layout: &'static str) -> Self {
        Reader { text, rest: text, layout }
    }

    fn failed(&self, wanted: &str) -> TimeError {
        let [text, layout, rest, wanted] = [self.text, self.layout, self.rest, wanted].map(QuotedText::new);
        TimeError::Element(text, layout, rest, wanted)
    }

    fn number(&mut self, width: usize, wanted: &str) -> Result<u32, TimeError> {
        let digits = self.rest.get(..width).filter(|it| it.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|it| it.parse().ok()).ok_or_else(|| self.failed(wanted))?;
        self.rest = &self.rest[width..];
        Ok(number)
    }

    /// The message about four characters that begin with a digit and are no number shows what comes after them.
    fn year(&mut self) -> Result<u32, TimeError> {
        let begins = self.rest.starts_with(|c: char| c.is_ascii_digit());
        self.number(4, "2006").map_err(|why| match self.rest.get(4..) {
            Some(rest) if begins => {
                self.rest = rest;
                self.failed("2006")
            }
            _ => why,
        })
    }

    fn ranged(
        &mut self,
        wanted: &str,
        name: &'static str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, TimeError> {
        let number = self.number(2, wanted)?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(TimeError::Range(QuotedText::new(self.text), name))
        }
    }

    fn literal(&mut self, wanted: &str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(wanted).ok_or_else(|| self.failed(wanted))?;
        Ok(())
    }

    /// Seconds since the epoch and nanoseconds within the second.
    fn read(mut self, micros: bool) -> Result<(i64, u32), TimeError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.ranged("01", "month", 1..=12)?;
        self.literal("-")?;
        let day = self.number(2, "02")?;
        self.literal("T")?;
        let hour = self.ranged("15", "hour", 0..=23)?;
        self.literal(":")?;
        let minute = self.ranged("04", "minute", 0..=59)?;
        self.literal(":")?;
        let second = self.ranged("05", "second", 0..=59)?;
        let nanos = self.fraction(micros)?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(TimeError::Extra(QuotedText::new(self.text), QuotedText::new(self.rest)));
        }
        let date = Month::try_from(month as u8)
            .ok()
            .and_then(|month| Date::from_calendar_date(year as i32, month, u8::try_from(day).ok()?).ok());
        let Some(date) = date else { return Err(TimeError::Range(QuotedText::new(self.text), "day")) };
        let days = i64::from(date.to_julian_day() - EPOCH_DAY);
        let clock = i64::from(hour * 3600 + minute * 60 + second);
        Ok((days * DAY + clock - offset, nanos))
    }

    fn fraction(&mut self, micros: bool) -> Result<u32, TimeError> {
        if micros {
            let exact = self.rest.strip_prefix('.').and_then(|it| it.get(..6));
            let Some(digits) = exact.filter(|it| it.bytes().all(|b| b.is_ascii_digit())) else {
                return Err(self.failed(".000000"));
            };
            let number: u32 = digits.parse().map_err(|_| self.failed(".000000"))?;
            self.rest = &self.rest[7..];
            return Ok(number * 1000);
        }
        let Some(after) = self.rest.strip_prefix(['.', ',']) else { return Ok(0) };
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return Ok(0);
        }
        let digits = after[..count].bytes().chain(std::iter::repeat(b'0')).take(9);
        self.rest = &after[count..];
        Ok(digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    /// Seconds that the clock is ahead of UTC.
    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let Some(text) = self.rest.get(..6) else { return Err(self.failed("Z07:00")) };
        let bytes = text.as_bytes();
        let shaped = matches!(bytes[0], b'+' | b'-') && bytes[3] == b':';
        let pair = |at: usize| {
            text.get(at..at + 2).filter(|it| it.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
        };
        let (Some(hours), Some(minutes), true) = (pair(1), pair(4), shaped) else {
            return Err(self.failed("Z07:00"));
        };
        let (hours, minutes): (i64, i64) = (hours, minutes);
        if hours > 24 || minutes > 60 {
            return Err(TimeError::Range(QuotedText::new(self.text), "time zone offset"));
        }
        self.rest = &self.rest[6..];
        let seconds = hours * 3600 + minutes * 60;
        Ok(if bytes[0] == b'-' { -seconds } else { seconds })
    }
}

/// Nanoseconds of a text such as `1h2m3.5s`.
pub fn parse_duration(text: &str) -> Result<i64, TimeError> {
    let invalid = || TimeError::Duration(QuotedText::new(text));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "" => return Err(TimeError::MissingUnit(QuotedText::new(text))),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000i128,
            other => return Err(TimeError::UnknownUnit(QuotedText::new(other), QuotedText::new(text))),
        };
        let whole = whole.trim_start_matches('0');
        if whole.len() > 19 {
            return Err(invalid());
        }
        // digits finer than a billionth of an hour are less than a nanosecond together
        let fraction = &fraction[..fraction.len().min(18)];
        let part = fraction.parse::<i128>().unwrap_or(0) * unit / 10i128.pow(fraction.len() as u32);
        total += whole.parse::<i128>().unwrap_or(0) * unit + part;
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return Err(invalid());
        }
        rest = &after[end..];
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Nanoseconds as text: `1h0m0s`, `3.5s`, `300ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let fraction = |unit: u64, width: usize| {
        let rest = format!("{:0width$}", size % unit);
        let rest = rest.trim_end_matches('0');
        if rest.is_empty() { String::new() } else { format!(".{rest}") }
    };
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}{}µs", size / 1_000, fraction(1_000, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}{}ms", size / 1_000_000, fraction(1_000_000, 6)),
        _ => {
            let seconds = size / 1_000_000_000;
            let tail = format!("{}{}s", seconds % 60, fraction(1_000_000_000, 9));
            match (seconds / 3600, seconds / 60 % 60) {
                (0, 0) => format!("{sign}{tail}"),
                (0, minutes) => format!("{sign}{minutes}m{tail}"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{tail}"),
            }
        }
    }
}

/// A duration in the form that the API gives back.
pub fn canonical_duration(text: &str) -> Result<String, TimeError> {
    parse_duration(text).map(format_duration)
}

/// An age in the short form of tables.
pub fn human_duration(seconds: i64) -> String {
    let pair = |big: i64, unit: char, small: i64, part: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{part}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => pair(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => pair(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

/// The age of a time at `now_unix`, as tables show it; a time that is not there is `<unknown>`.
pub fn age(time: Option<&str>, now_unix: i64) -> String {
    match time.and_then(to_unix) {
        Some(then) => human_duration(now_unix.saturating_sub(then)),
        None => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc_seconds() {
        for (text, expected) in [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05.999999Z", "2020-01-02T03:04:05Z"),
            ("2020-01-01T00:30:00+01:00", "2019-12-31T23:30:00Z"),
            ("2020-02-29T23:30:00-01:30", "2020-03-01T01:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(parse_time(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(to_unix("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(to_unix("2006-01-02T15:04:05Z"), Some(1_136_214_245));
        assert_eq!(format_time(1_136_214_245), "2006-01-02T15:04:05Z");
        assert_eq!(format_time(-1), "1969-12-31T23:59:59Z");
        assert_eq!(format_time(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(format_time(i64::MIN), "0000-01-01T00:00:00Z");
    }

    #[test]
    fn micro_times_have_six_digits() {
        assert_eq!(
            parse_micro_time("2020-01-02T03:04:05.123456Z").as_deref(),
            Ok("2020-01-02T03:04:05.123456Z")
        );
        assert_eq!(
            parse_micro_time("2020-01-02T03:04:05.000000+00:30").as_deref(),
            Ok("2020-01-02T02:34:05.000000Z")
        );
        assert!(parse_micro_time("2020-01-02T03:04:05Z").is_err());
        assert!(parse_micro_time("2020-01-02T03:04:05.1Z").is_err());
        assert_eq!(format_micro_time(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(to_unix_micros("1970-01-01T00:00:01.5Z"), Some(1_500_000));
    }

    #[test]
    fn errors_match_upstream() {
        let why = |text| parse_time(text).unwrap_err().to_string();
        assert_eq!(
            why("yesterday"),
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#
        );
        assert_eq!(
            why("2020-01-02"),
            r#"parsing time "2020-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#
        );
        assert_eq!(
            why("1.2.3.4"),
            r#"parsing time "1.2.3.4" as "2006-01-02T15:04:05Z07:00": cannot parse "3.4" as "2006""#
        );
        let text = r#"parsing time "\xc3\xa9\x0a" as "2006-01-02T15:04:05Z07:00": cannot parse "\xc3\xa9\x0a" as "2006""#;
        assert_eq!(why("é\n"), text);
        assert_eq!(why("2020-13-02T03:04:05Z"), r#"parsing time "2020-13-02T03:04:05Z": month out of range"#);
        assert_eq!(why("2021-02-29T03:04:05Z"), r#"parsing time "2021-02-29T03:04:05Z": day out of range"#);
        assert_eq!(why("2020-01-02T03:04:05Zx"), r#"parsing time "2020-01-02T03:04:05Zx": extra text: "x""#);
        for text in [
            "",
            "2020-01-02T03:04:05",
            "2020-01-02T03:04:05é+é",
            "2020-01-02T24:00:00Z",
            "2020-1-02T03:04:05Z",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_and_written() {
        for (text, expected) in [
            ("1h2m3.5s", "1h2m3.5s"),
            ("300ms", "300ms"),
            ("-1.5h", "-1h30m0s"),
            ("0", "0s"),
            ("90s", "1m30s"),
            ("1h", "1h0m0s"),
            ("1.5us", "1.5µs"),
            ("1µs", "1µs"),
            ("12ns", "12ns"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("+5m", "5m0s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
            ("0.100000000000000000000h", "6m0s"),
        ] {
            assert_eq!(canonical_duration(text).as_deref(), Ok(expected), "{text}");
        }
        let why = |text| parse_duration(text).unwrap_err().to_string();
        assert_eq!(why("x"), r#"time: invalid duration "x""#);
        assert_eq!(why(""), r#"time: invalid duration """#);
        assert_eq!(why("3"), r#"time: missing unit in duration "3""#);
        assert_eq!(why("3d"), r#"time: unknown unit "d" in duration "3d""#);
        assert_eq!(why("9223372036854775808ns"), r#"time: invalid duration "9223372036854775808ns""#);
        assert!(parse_duration(&"9".repeat(10_000)).is_err());
    }

    #[test]
    fn ages_are_formatted_like_upstream() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_040, "3h4m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (51 * 3600, "2d3h"),
            (8 * DAY + 5, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            ((5 * 365 + 23) * DAY, "5y23d"),
            (9 * 365 * DAY, "9y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
        assert_eq!(age(Some("1970-01-01T00:00:00Z"), 61), "61s");
        assert_eq!(age(None, 61), "<unknown>");
    }
}
