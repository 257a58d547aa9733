//! Cron schedules: parsing, and the next and last due times.
//!
//! A schedule has five fields, or is a macro such as `@daily`, or `@every` with a duration; a time zone may precede
//! it. Errors are in upstream's words.
//!
//! Invariants: a schedule is due when the local time of its zone matches. A local time that is skipped because
//! clocks go forward is not due that day; one that occurs twice is due twice.

mod due;
mod parse;
mod zone;

pub use zone::{Zone, check_zone};

use due::{Due, Wall, has};

const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;
const MINUTE: i64 = 60;
/// How many years are searched; a schedule that is due in none of them never is.
const YEARS: i16 = 5;

/// A schedule. Times are Unix seconds.
#[derive(Debug, Clone)]
pub struct Schedule {
    due: Due,
    zone: Zone,
}

impl Schedule {
    /// Parses a schedule; without its own zone it is in this one.
    pub fn parse(text: &str, zone: Zone) -> Result<Self, String> {
        let (due, own) = parse::schedule(text)?;
        Ok(Schedule { due, zone: own.unwrap_or(zone) })
    }

    /// The first due time after another; `None` if there is none.
    pub fn next(&self, after: i64) -> Option<i64> {
        let fields = match &self.due {
            Due::Every(pause) => return after.checked_add(*pause),
            Due::At(fields) => fields,
        };
        let mut time = after.checked_add(1)?;
        let odd = self.wall(time)?.second % MINUTE;
        time += (MINUTE - odd) % MINUTE;
        let last = self.wall(time)?.date.year().saturating_add(YEARS);
        loop {
            let wall = self.wall(time)?;
            if wall.date.year() > last {
                return None;
            }
            if !fields.has_day(&wall) {
                time = self.next_midnight(time, wall.second)?;
            } else if !has(fields.hours, wall.second / HOUR) {
                time += HOUR - wall.second % HOUR;
            } else if !has(fields.minutes, wall.second % HOUR / MINUTE) {
                time += MINUTE;
            } else {
                return Some(time);
            }
        }
    }

    /// The last due time that is after `from` and not after `until`. Periods count from `from`.
    pub fn latest(&self, from: i64, until: i64) -> Option<i64> {
        let fields = match &self.due {
            Due::Every(pause) => {
                let passed = until.checked_sub(from).filter(|passed| passed >= pause)?;
                return Some(from + passed / pause * pause);
            }
            Due::At(fields) => fields,
        };
        let mut time = until - self.wall(until)?.second % MINUTE;
        while time > from {
            let wall = self.wall(time)?;
            if !fields.has_day(&wall) {
                time = self.evening_before(time, wall.second)?;
            } else if !has(fields.hours, wall.second / HOUR) {
                time -= wall.second % HOUR + MINUTE;
            } else if !has(fields.minutes, wall.second % HOUR / MINUTE) {
                time -= MINUTE;
            } else {
                return Some(time);
            }
        }
        None
    }

    fn wall(&self, time: i64) -> Option<Wall> {
        let wall = self.zone.wall(time)?;
        let clock = wall.time();
        let second =
            i64::from(clock.hour()) * HOUR + i64::from(clock.minute()) * MINUTE + i64::from(clock.second());
        Some(Wall { date: wall.date(), second })
    }

    /// The start of the next day. A day with a clock change is longer or shorter, and may have no midnight.
    fn next_midnight(&self, time: i64, second: i64) -> Option<i64> {
        let there = time.checked_add(DAY - second)?;
        let wall = self.wall(there)?;
        if wall.second > DAY / 2 {
            return there.checked_add(DAY - wall.second);
        }
        let back = there - wall.second;
        Some(if self.wall(back)?.date == wall.date { back } else { there })
    }

    /// The last minute of the day before.
    fn evening_before(&self, time: i64, second: i64) -> Option<i64> {
        let there = time.checked_sub(second + MINUTE)?;
        let wall = self.wall(there)?;
        let late = there + (DAY - MINUTE - wall.second);
        Some(if late < time && self.wall(late)?.date == wall.date { late } else { there })
    }
}

#[cfg(test)]
mod tests;
