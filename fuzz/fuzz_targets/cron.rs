//! Cron schedules: due times grow, and looking backwards finds what looking forwards found.

#![no_main]

use cron::{Schedule, Zone};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some([text, from]) = fuzz::texts(data) else { return };
    let Ok(schedule) = Schedule::parse(text, Zone::UTC) else { return };
    let from: i64 = from.parse().unwrap_or(1_700_000_000);
    let Some(due) = schedule.next(from) else { return };
    assert!(due > from, "{text}");
    // beyond is beyond the times of the API
    if (0..4_000_000_000).contains(&from) {
        assert_eq!(schedule.latest(from, due), Some(due), "{text} after {from}");
        assert_eq!(schedule.latest(from, due - 1), None, "{text} after {from}");
    }
});
