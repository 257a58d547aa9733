//! Timestamps and durations.

use crate::fault::{Outcome, fail, no_such_overload};
use jiff::Timestamp as JiffTimestamp;
use jiff::tz::TimeZone;

/// A point in time, with the offset in which it was written.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    /// Since the epoch.
    pub seconds: i64,
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

/// The first and last valid second, of the years 1 to 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;
const SECOND: i64 = 1_000_000_000;

impl PartialEq for Timestamp {
    fn eq(&self, other: &Timestamp) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<std::cmp::Ordering> {
        (self.seconds, self.nanos).partial_cmp(&(other.seconds, other.nanos))
    }
}

impl Timestamp {
    pub(crate) fn from_unix(seconds: i64) -> Outcome<Timestamp> {
        if !(FIRST..=LAST).contains(&seconds) {
            return fail("timestamp overflow");
        }
        Ok(Timestamp { seconds, nanos: 0, offset: 0 })
    }

    pub(crate) fn add(self, nanos: i64) -> Outcome<Timestamp> {
        let sum = i64::from(self.nanos) + nanos % SECOND;
        let seconds = self.seconds + nanos / SECOND + sum.div_euclid(SECOND);
        let moved = Timestamp::from_unix(seconds)?;
        Ok(Timestamp { nanos: sum.rem_euclid(SECOND) as u32, offset: self.offset, ..moved })
    }

    /// Nanoseconds since another point in time.
    pub(crate) fn since(self, other: Timestamp) -> Outcome<i64> {
        let nanos = i64::from(self.nanos) - i64::from(other.nanos);
        let since = (self.seconds - other.seconds).checked_mul(SECOND).and_then(|it| it.checked_add(nanos));
        since.map_or_else(|| fail("integer overflow"), Ok)
    }

    /// The RFC 3339 form, with a fraction if there is one.
    pub(crate) fn text(self) -> String {
        let at = Civil::of(self.seconds + i64::from(self.offset));
        let mut out = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        );
        if self.nanos > 0 {
            out.push_str(format!(".{:09}", self.nanos).trim_end_matches('0'));
        }
        match self.offset {
            0 => out.push('Z'),
            seconds => {
                let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.abs() / 60);
                out.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
            }
        }
        out
    }
}

/// A calendar date and time of day.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    /// From 0 on.
    day_of_year: i64,
    /// From Sunday on.
    day_of_week: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

const DAY: i64 = 86_400;

impl Civil {
    fn of(seconds: i64) -> Civil {
        let days = seconds.div_euclid(DAY);
        let clock = seconds.rem_euclid(DAY);
        // a year that is not too late
        let mut year = 1970 + days.div_euclid(if days < 0 { 365 } else { 366 });
        while days_before(year + 1) <= days {
            year += 1;
        }
        let day_of_year = days - days_before(year);
        let mut month = 1;
        while month < 12 && days_before_month(year, month + 1) <= day_of_year {
            month += 1;
        }
        Civil {
            year,
            month,
            day: day_of_year - days_before_month(year, month) + 1,
            day_of_year,
            day_of_week: (days + 4).rem_euclid(7),
            hour: clock / 3600,
            minute: clock / 60 % 60,
            second: clock % 60,
        }
    }
}

/// Days from the epoch to the beginning of a year.
fn days_before(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

/// Days from the beginning of a year to that of a month.
fn days_before_month(year: i64, month: i64) -> i64 {
    const DAYS: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    DAYS[(month - 1) as usize] + i64::from(leap && month > 2)
}

/// RFC 3339, with any offset.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let (clock, offset) = match text.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        None => {
            let at = text.len().checked_sub(6).filter(|at| text.is_char_boundary(*at))?;
            let (clock, zone) = text.split_at(at);
            let sign = match zone.as_bytes()[0] {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = zone[1..].split_once(':')?;
            let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            (clock, sign * (hours * 3600 + minutes * 60))
        }
    };
    let (date, clock) = clock.split_at_checked(10)?;
    let day = days(date)?;
    let (whole, fraction) = clock.split_at_checked(9)?;
    let mut parts = whole.strip_prefix('T')?.splitn(3, ':').map(|it| number(it, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = match fraction.strip_prefix(['.', ',']) {
        None if fraction.is_empty() => 0,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit()) => {
            let digits = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
            digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))
        }
        _ => return None,
    };
    let seconds = day * DAY + hour * 3600 + minute * 60 + second - offset;
    Some(Timestamp { seconds, nanos, offset: offset as i32 })
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|it| it.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// Days since the epoch.
fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4)?;
    let (month, day) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let length = match month {
        12 => 31,
        1..=11 => days_before_month(year, month + 1) - days_before_month(year, month),
        _ => return None,
    };
    let fits = parts.next().is_none() && (1..=length).contains(&day);
    fits.then(|| days_before(year) + days_before_month(year, month) + day - 1)
}

/// A time as the format `date-time` allows it: also without an offset.
pub(crate) fn parse_date_time(text: &str) -> Outcome<Timestamp> {
    if text.is_empty() {
        return Timestamp::from_unix(0);
    }
    match parse_timestamp(text).or_else(|| parse_timestamp(&format!("{text}Z"))) {
        Some(time) => Ok(time),
        None => fail(format!(
            "Invalid date-time formatted string {text}: {}",
            unreadable(text, "2006-01-02T15:04:05")
        )),
    }
}

pub(crate) fn parse_date(text: &str) -> Outcome<Timestamp> {
    match days(text) {
        Some(days) => Ok(Timestamp { seconds: days * DAY, nanos: 0, offset: 0 }),
        None => fail(format!("Invalid date formatted string {text}: {}", unreadable(text, "2006-01-02"))),
    }
}

fn unreadable(text: &str, layout: &str) -> String {
    let formatted = schema::problem::quoted(text);
    format!("parsing time {formatted} as \"{layout}\": cannot parse {formatted} as \"2006\"")
}

/// A duration as the format `duration` allows it: also in words, `2 days`.
pub(crate) fn parse_any_duration(text: &str) -> Outcome<i64> {
    if let Ok(nanos) = schema::time::parse_duration(text) {
        return Ok(nanos);
    }
    match in_words(text) {
        Some(nanos) => Ok(nanos),
        None => fail(format!("Invalid duration {text}: unable to parse {text} as duration")),
    }
}

fn in_words(text: &str) -> Option<i64> {
    const UNITS: &[(&[&str], i64)] = &[
        (&["ns", "nano"], 1),
        (&["us", "µs", "μs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], SECOND),
        (&["m", "min"], 60 * SECOND),
        (&["h", "hr", "hour"], 3600 * SECOND),
        (&["d", "day"], 24 * 3600 * SECOND),
        (&["w", "wk", "week"], 7 * 24 * 3600 * SECOND),
    ];
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let count: i64 = rest[..end].parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let unit = rest[..end].to_lowercase();
        rest = &rest[end..];
        let found = UNITS.iter().find(|(names, _)| {
            let long = names.last().is_some_and(|name| unit.starts_with(name));
            long || names.contains(&unit.as_str())
        });
        if let Some((_, nanos)) = found {
            total = Some(total.unwrap_or(0).wrapping_add(count.wrapping_mul(*nanos)));
        }
    }
    total
}

/// A part of a time in a zone, by the name of its function.
pub(crate) fn part(function: &str, time: Timestamp, zone: Option<&str>) -> Outcome<i64> {
    let offset = zone.map_or(Ok(0), |zone| offset(time.seconds, zone))?;
    let at = Civil::of(time.seconds + offset);
    Ok(match function {
        "getFullYear" => at.year,
        "getMonth" => at.month - 1,
        "getDayOfYear" => at.day_of_year,
        "getDayOfMonth" => at.day - 1,
        "getDate" => at.day,
        "getDayOfWeek" => at.day_of_week,
        "getHours" => at.hour,
        "getMinutes" => at.minute,
        "getSeconds" => at.second,
        "getMilliseconds" => i64::from(time.nanos / 1_000_000),
        _ => return Err(no_such_overload()),
    })
}

/// The seconds by which a zone is ahead of UTC. A zone is a name, or hours and minutes: `-02:30`. The server's own
/// zone is UTC, wherever it runs.
fn offset(at: i64, zone: &str) -> Outcome<i64> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        if ["", "UTC", "Local"].contains(&zone) {
            return Ok(0);
        }
        let Ok(zone) = TimeZone::get(zone) else { return fail(format!("unknown time zone {zone}")) };
        let (first, last) = (JiffTimestamp::MIN.as_second(), JiffTimestamp::MAX.as_second());
        let at = JiffTimestamp::from_second(at.clamp(first, last)).unwrap_or(JiffTimestamp::UNIX_EPOCH);
        return Ok(i64::from(zone.to_offset(at).seconds()));
    };
    let parse = |text: &str| match text.parse::<i32>() {
        Ok(number) => Ok(i64::from(number)),
        Err(_) => fail(format!("strconv.Atoi: parsing {}: invalid syntax", schema::problem::quoted(text))),
    };
    let (hours, minutes) = (parse(hours)?, parse(minutes)?);
    Ok(hours * 3600 + if zone.starts_with('-') { -minutes * 60 } else { minutes * 60 })
}

/// The whole duration in one unit, by the name of its function.
pub(crate) fn part_of_duration(function: &str, nanos: i64) -> Option<i64> {
    Some(match function {
        "getHours" => nanos / (3600 * SECOND),
        "getMinutes" => nanos / (60 * SECOND),
        "getSeconds" => nanos / SECOND,
        "getMilliseconds" => nanos / 1_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, expected) in [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05.120Z", "2020-01-02T03:04:05.12Z"),
            ("2020-01-02T03:04:05.000000001-02:30", "2020-01-02T03:04:05.000000001-02:30"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ] {
            let time = parse_timestamp(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(time.text(), expected);
        }
        for text in
            ["", "2020-01-02", "2020-13-02T03:04:05Z", "2020-01-02T24:04:05Z", "2020-01-02t03:04:05Z", "é"]
        {
            assert!(parse_timestamp(text).is_none(), "{text}");
        }
        assert_eq!(
            parse_timestamp("1970-01-01T00:00:01.5Z").map(|it| (it.seconds, it.nanos)),
            Some((1, 500_000_000))
        );
    }

    #[test]
    fn parts_depend_on_the_zone() {
        let time = parse_timestamp("2009-02-13T23:31:30.123Z").unwrap();
        let get = |function: &str, zone: Option<&str>| {
            part(function, time, zone).unwrap_or_else(|why| panic!("{function}: {why:?}"))
        };
        assert_eq!(get("getHours", None), 23);
        assert_eq!(get("getHours", Some("02:00")), 1);
        assert_eq!(get("getDayOfMonth", Some("02:00")), 13);
        assert_eq!(get("getMinutes", Some("-02:45")), 46);
        assert_eq!(get("getHours", Some("America/New_York")), 18);
        assert_eq!(get("getMilliseconds", None), 123);
        assert_eq!(get("getDayOfWeek", None), 5);
        assert_eq!(get("getDayOfYear", None), 43);
        assert!(part("getHours", time, Some("Nowhere/Land")).is_err());
        assert!(part("getHours", time, Some("x:00")).is_err());
    }

    #[test]
    fn durations_can_be_in_words() {
        assert_eq!(parse_any_duration("1h30m").ok(), Some(5400 * SECOND));
        assert_eq!(parse_any_duration("2 days").ok(), Some(48 * 3600 * SECOND));
        assert_eq!(parse_any_duration("1 week 1 sec").ok(), Some((7 * 86_400 + 1) * SECOND));
        assert!(parse_any_duration("soon").is_err());
    }
}
