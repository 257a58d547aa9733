//! Time zones by name.
//!
//! The rules are the machine's, since those are kept up to date; where it has none, those that came with the build.

use crate::check_zone;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::OnceLock;

/// Where machines keep the rules of zones.
const DIRECTORY: &str = "/usr/share/zoneinfo";

/// What a clock on a wall shows where.
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
        let found = machine.as_ref().and_then(|rules| rules.get(name).ok());
        let found = found.or_else(|| BUILT_IN.get_or_init(TimeZoneDatabase::bundled).get(name).ok());
        found.map(Zone).ok_or_else(|| format!("unknown time zone {name}"))
    }

    pub(crate) fn wall(&self, time: i64) -> Option<DateTime> {
        Some(self.0.to_datetime(Timestamp::from_second(time).ok()?))
    }
}
