//! Time zones by name.
//!
//! The rules are those of the operating system, which are kept up to date; without them, those of the build.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::OnceLock;

/// All time zone names, sorted.
static ZONES: &str = include_str!("timezones.txt");

/// Upstream reads zones as files of their names, and reports problems of these files.
const LONGEST_PART: usize = 255;

/// Where operating systems keep time zone rules.
const DIRECTORY: &str = "/usr/share/zoneinfo";

/// A time zone: converts instants to local time.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of a name, or why there is none.
    pub fn named(name: &str) -> Result<Self, String> {
        check_zone(name)?;
        if matches!(name, "" | "UTC" | "Local") {
            return Ok(Zone::UTC);
        }
        static MACHINE: OnceLock<Option<TimeZoneDatabase>> = OnceLock::new();
        static BUILT_IN: OnceLock<TimeZoneDatabase> = OnceLock::new();
        let machine = MACHINE.get_or_init(|| TimeZoneDatabase::from_dir(DIRECTORY).ok());
        let zone = machine.as_ref().and_then(|rules| rules.get(name).ok());
        let zone = zone.or_else(|| BUILT_IN.get_or_init(TimeZoneDatabase::bundled).get(name).ok());
        zone.map(Zone).ok_or_else(|| format!("unknown time zone {name}"))
    }

    pub(crate) fn wall(&self, time: i64) -> Option<DateTime> {
        Some(self.0.to_datetime(Timestamp::from_second(time).ok()?))
    }
}

/// Validates the name of a time zone.
pub fn check_zone(zone: &str) -> Result<(), String> {
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(());
    }
    if zone.starts_with(['/', '\\']) || zone.split(['/', '\\']).any(|part| part == "..") {
        return Err("time: invalid location name".to_owned());
    }
    if ZONES.lines().any(|known| known == zone) {
        return Ok(());
    }
    let inside = |known: &str| known.strip_prefix(zone).is_some_and(|rest| rest.starts_with('/'));
    if zone.split('/').any(|part| part.len() > LONGEST_PART) {
        Err("file name too long".to_owned())
    } else if ZONES.lines().any(inside) {
        Err("is a directory".to_owned())
    } else {
        Err(format!("unknown time zone {zone}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_names() {
        assert_eq!(check_zone("America/New_York"), Ok(()));
        assert_eq!(check_zone("europe/berlin"), Err("unknown time zone europe/berlin".to_owned()));
        assert_eq!(check_zone("../x"), Err("time: invalid location name".to_owned()));
        assert!(ZONES.lines().is_sorted());
        let unknown: Vec<_> = ZONES.lines().filter(|zone| Zone::named(zone).is_err()).collect();
        assert_eq!(unknown, [""; 0]);
    }
}
