//! When schedules are due, above all where clocks are changed.

use super::*;
use schema::time::{format_time, to_unix};

fn at(text: &str) -> i64 {
    to_unix(text).unwrap()
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, Zone::UTC).unwrap()
}

fn next(text: &str, after: &str, expected: &[&str]) {
    let schedule = schedule(text);
    let mut time = at(after);
    for expected in expected {
        let found = schedule.next(time);
        assert_eq!(found.map(format_time).as_deref(), Some(*expected), "{text} after {}", format_time(time));
        time = found.unwrap();
    }
}

#[test]
fn the_next_time_follows() {
    next("* * * * *", "2023-11-14T22:13:20Z", &["2023-11-14T22:14:00Z", "2023-11-14T22:15:00Z"]);
    next("*/15 * * * *", "2023-11-14T22:45:00Z", &["2023-11-14T23:00:00Z"]);
    next("0 0 29 2 *", "2023-11-14T22:45:00Z", &["2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"]);
    next("30 6-16/4 * * 1-5", "2023-11-17T14:30:00Z", &["2023-11-20T06:30:00Z", "2023-11-20T10:30:00Z"]);
    next("@hourly", "2023-12-31T23:00:00Z", &["2024-01-01T00:00:00Z"]);
    next("@weekly", "2023-11-14T22:45:00Z", &["2023-11-19T00:00:00Z"]);
    next("@monthly", "2023-11-14T22:45:00Z", &["2023-12-01T00:00:00Z"]);
    next("@yearly", "2023-11-14T22:45:00Z", &["2024-01-01T00:00:00Z"]);
    next("@every 90s", "2023-11-14T22:45:01Z", &["2023-11-14T22:46:31Z", "2023-11-14T22:48:01Z"]);
    next("@every 10ms", "2023-11-14T22:45:01Z", &["2023-11-14T22:45:02Z"]);
}

#[test]
fn day_of_month_or_day_of_week_is_enough() {
    // a Friday, and a 13th
    next("0 0 13 * FRI", "2023-11-14T00:00:00Z", &["2023-11-17T00:00:00Z", "2023-11-24T00:00:00Z"]);
    // every other day leaves no choice open, all days do
    next("0 0 */2 * FRI", "2023-11-14T00:00:00Z", &["2023-11-15T00:00:00Z", "2023-11-17T00:00:00Z"]);
    next("0 0 */1 * FRI", "2023-11-14T00:00:00Z", &["2023-11-17T00:00:00Z", "2023-11-24T00:00:00Z"]);
}

#[test]
fn impossible_dates_are_never_due() {
    assert_eq!(schedule("59 23 31 2 *").next(at("2023-11-14T00:00:00Z")), None);
    assert_eq!(schedule("59 23 31 2 *").latest(at("2013-11-14T00:00:00Z"), at("2023-11-14T00:00:00Z")), None);
    assert_eq!(schedule("* * * * *").next(i64::MAX), None);
    assert_eq!(schedule("* * * * *").next(i64::MAX - 1), None);
    assert_eq!(schedule("@every 1h").next(i64::MAX), None);
}

#[test]
fn clocks_are_put_forward_and_back() {
    // no half past two on the 26th of March in Berlin, and two of them on the 29th of October
    let zoned = "TZ=Europe/Berlin 30 2 * * *";
    next(zoned, "2023-03-25T00:00:00Z", &["2023-03-25T01:30:00Z", "2023-03-27T00:30:00Z"]);
    next(
        zoned,
        "2023-10-28T01:00:00Z",
        &["2023-10-29T00:30:00Z", "2023-10-29T01:30:00Z", "2023-10-30T01:30:00Z"],
    );
    // days that are shorter and longer begin at midnight all the same
    let zoned = "CRON_TZ=America/New_York 15 0 * * MON";
    next(zoned, "2023-03-11T12:00:00Z", &["2023-03-13T04:15:00Z"]);
    next(zoned, "2023-11-04T12:00:00Z", &["2023-11-06T05:15:00Z"]);
    // this zone had no midnight when summer began
    let zoned = "TZ=America/Sao_Paulo 0 0 * * *";
    next(zoned, "2018-11-03T02:00:00Z", &["2018-11-03T03:00:00Z", "2018-11-05T02:00:00Z"]);
    // half an hour
    let zoned = "TZ=Australia/Lord_Howe 45 1 * * *";
    next(zoned, "2023-04-01T10:00:00Z", &["2023-04-01T14:45:00Z", "2023-04-01T15:15:00Z"]);
}

/// The same, minute by minute.
fn naive(schedule: &Schedule, from: i64, until: i64) -> Vec<i64> {
    let Due::At(fields) = &schedule.due else { panic!() };
    let matches = |time: &i64| {
        let wall = schedule.wall(*time).unwrap();
        fields.has_day(&wall)
            && has(fields.hours, wall.second / HOUR)
            && has(fields.minutes, wall.second % HOUR / MINUTE)
    };
    (from / MINUTE + 1..=until / MINUTE).map(|minute| minute * MINUTE).filter(matches).collect()
}

#[test]
fn search_matches_a_scan_of_every_minute() {
    let zones = ["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo"];
    let mut state: u64 = 0x5eed_0001;
    println!("seed {state:#x}");
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..60 {
        let zone = zones[draw(zones.len() as u64) as usize];
        let days = ["*", "*/3", "1,15", "28-31"][draw(4) as usize];
        let weekdays = ["*", "SUN", "1-5"][draw(3) as usize];
        let text = format!(
            "TZ={zone} {} {} {days} * {weekdays}",
            draw(60),
            ["*", "0", "1", "2", "23"][draw(5) as usize]
        );
        let schedule = schedule(&text);
        // a month, somewhere in years with all kinds of changes
        let from = at("2016-01-01T00:00:00Z") + draw(7 * 365) as i64 * DAY + draw(DAY as u64) as i64;
        let until = from + 30 * DAY;
        let expected = naive(&schedule, from, until);
        let mut found = Vec::new();
        let mut time = from;
        while let Some(next) = schedule.next(time).filter(|next| *next <= until) {
            found.push(next);
            time = next;
        }
        assert_eq!(found, expected, "{text} from {}", format_time(from));
        assert_eq!(
            schedule.latest(from, until),
            expected.last().copied(),
            "{text} until {}",
            format_time(until)
        );
    }
}
