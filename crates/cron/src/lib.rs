//! Schedules in the notation of cron, and when they are due.
//!
//! Five fields, a word for what is common, or `@every` and a duration; before them a time zone may stand. What is
//! wrong with a schedule is told in the words that clients know.
//!
//! What always holds: a time is due when the clock on the wall of the zone shows it. What the wall never shows,
//! because clocks are put forward, is not due that day; what it shows twice is due twice.

mod due;
mod parse;
mod zone;

pub use zone::{Zone, check_zone};

use due::{Due, Wall, has};

const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;
const MINUTE: i64 = 60;
/// For how many years a schedule is searched; one that is due in none of them never is.
const YEARS: i16 = 5;

/// When something is to be done again and again. Times are Unix seconds.
#[derive(Debug, Clone)]
pub struct Schedule {
    due: Due,
    zone: Zone,
}

impl Schedule {
    /// What a text says; without a zone of its own it is meant in this one.
    pub fn parse(text: &str, zone: Zone) -> Result<Self, String> {
        let (due, own) = parse::schedule(text)?;
        Ok(Schedule { due, zone: own.unwrap_or(zone) })
    }

    /// The first time after another; none where it is never due.
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

    /// The last time that is after `from` and not after `until`. What is due every so often is counted from `from`.
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

    /// When the next day begins. A day whose clocks are changed is longer or shorter, and may have no midnight.
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
