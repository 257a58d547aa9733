//! The parser of schedules.

use crate::due::{Due, Fields};
use crate::zone::Zone;
use schema::time;

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A field: its bounds, and the names of its numbers from the lowest on.
struct Bounds {
    least: i64,
    most: i64,
    names: &'static [&'static str],
}

/// Minutes, hours, days of the month, months, days of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds { least: 1, most: 12, names: MONTHS },
    Bounds { least: 0, most: 6, names: DAYS },
];

/// The schedule of a text, and the zone that it names; or why it is invalid.
pub(crate) fn schedule(text: &str) -> Result<(Due, Option<Zone>), String> {
    let zoned = ["TZ=", "CRON_TZ="].iter().find_map(|start| text.strip_prefix(start));
    let (zone, rest) = match zoned {
        None => (None, text),
        Some(zoned) => {
            let (zone, rest) = zoned.split_once(' ').unwrap_or((zoned, ""));
            let known = Zone::named(zone).map_err(|why| format!("provided bad location {zone}: {why}"))?;
            (Some(known), rest.trim())
        }
    };
    Ok((due(rest)?, zone))
}

fn due(text: &str) -> Result<Due, String> {
    if text.starts_with('@') {
        return word(text);
    }
    let texts: Vec<&str> = text.split_whitespace().collect();
    if texts.len() != FIELDS.len() {
        let count = texts.len();
        return Err(format!(
            "expected exactly {} fields, found {count}: [{}]",
            FIELDS.len(),
            texts.join(" ")
        ));
    }
    let mut read = [Field::default(); FIELDS.len()];
    for ((text, bounds), field) in texts.iter().zip(&FIELDS).zip(&mut read) {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            field.add(range(part, bounds)?);
        }
    }
    let [minutes, hours, days, months, weekdays] = read;
    Ok(Due::At(Fields {
        minutes: minutes.bits,
        hours: hours.bits,
        days: days.bits,
        months: months.bits,
        weekdays: weekdays.bits,
        either: !days.any && !weekdays.any,
    }))
}

fn word(word: &str) -> Result<Due, String> {
    if let Some(duration) = word.strip_prefix("@every ") {
        return match time::parse_duration(duration) {
            // whole seconds, at least one
            Ok(nanos) => Ok(Due::Every((nanos / 1_000_000_000).max(1))),
            Err(why) => Err(format!("failed to parse duration {word}: {why}")),
        };
    }
    due(match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return Err(format!("unrecognized descriptor: {word}")),
    })
}

/// The numbers of a field.
#[derive(Clone, Copy, Default)]
struct Field {
    bits: u64,
    /// Whether it is unrestricted.
    any: bool,
}

impl Field {
    fn add(&mut self, other: Field) {
        self.bits |= other.bits;
        self.any |= other.any;
    }
}

fn range(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let (parts, ends): (Vec<&str>, Vec<&str>);
    parts = text.split('/').collect();
    ends = parts[0].split('-').collect();
    let mut any = false;
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => {
            any = true;
            (bounds.least, bounds.most)
        }
        [one] => {
            let number = parse(one, bounds)?;
            (number, number)
        }
        [start, end] => (parse(start, bounds)?, parse(end, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            // a number with a step ranges to the end
            if ends.len() == 1 {
                end = bounds.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.least {
        Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.least))
    } else if end > bounds.most {
        Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.most))
    } else if start > end {
        Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"))
    } else if step == 0 {
        Err(format!("step of range should be a positive number: {text}"))
    } else {
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        let bits = (start..=end).step_by(step).fold(0, |bits, number| bits | 1u64 << number);
        Ok(Field { bits, any: any && step == 1 })
    }
}

fn parse(text: &str, bounds: &Bounds) -> Result<i64, String> {
    match bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
        Some(at) => Ok(bounds.least + at as i64),
        None => number(text),
    }
}

fn number(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let refused =
        |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused("invalid syntax"));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number),
        Err(_) => Err(refused("value out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_checked() {
        let good = [
            "* * * * *",
            "*/15 0-23/2 1,15 JAN-mar mon",
            "? ? ? ? ?",
            "*-5 5/15 , +1 *",
            "@daily",
            "@every 1h30m",
            "TZ=Europe/Berlin * * * * *",
        ];
        for text in good {
            assert_eq!(schedule(text).map(drop), Ok(()), "{text}");
        }
        let bad = |text: &str, why: &str| assert_eq!(schedule(text).map(drop), Err(why.to_owned()));
        bad("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        bad("60 * * * *", "end of range (60) above maximum (59): 60");
        bad("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        bad("5-2 * * * *", "beginning of range (5) beyond end of range (2): 5-2");
        bad("1-2-3 * * * *", "too many hyphens: 1-2-3");
        bad("*/2/3 * * * *", "too many slashes: */2/3");
        bad("*/0 * * * *", "step of range should be a positive number: */0");
        bad("*/-1 * * * *", "negative number (-1) not allowed: -1");
        bad("* * * foo *", "failed to parse int from foo: strconv.Atoi: parsing \"foo\": invalid syntax");
        bad("@reboot", "unrecognized descriptor: @reboot");
        bad("@every x", "failed to parse duration @every x: time: invalid duration \"x\"");
        bad("CRON_TZ=No * * * * *", "provided bad location No: unknown time zone No");
        bad("TZ=UTC", "expected exactly 5 fields, found 0: []");
    }
}
