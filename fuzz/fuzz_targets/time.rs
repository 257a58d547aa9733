//! Times and durations: canonical forms are fixed points, and another reader of RFC 3339 agrees.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schema::time as times;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

fuzz_target!(|data: &[u8]| {
    let Some(text) = fuzz::text(data) else { return };
    if let Ok(canonical) = times::parse_time(text) {
        assert_eq!(times::parse_time(&canonical).as_deref(), Ok(&*canonical), "{text}");
        let unix = times::to_unix(text).expect("the seconds of a time");
        if let Ok(theirs) = OffsetDateTime::parse(text, &Rfc3339) {
            assert_eq!(unix, theirs.unix_timestamp(), "{text}");
        }
        let _ = times::age(Some(text), 1_700_000_000);
    }
    if let Ok(canonical) = times::parse_micro_time(text) {
        assert_eq!(times::parse_micro_time(&canonical).as_deref(), Ok(&*canonical), "{text}");
    }
    let _ = times::to_unix_micros(text);
    if let Ok(nanos) = times::parse_duration(text) {
        let printed = times::format_duration(nanos);
        assert_eq!(times::parse_duration(&printed), Ok(nanos), "{text} {printed}");
        assert_eq!(times::canonical_duration(text).as_deref(), Ok(&*printed));
        let _ = times::human_duration(nanos);
    }
});
