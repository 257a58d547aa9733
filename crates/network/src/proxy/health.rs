//! The health of the proxy: whether it keeps up with changes.

use std::time::{Duration, SystemTime};

use env::World;
use http::StatusCode;
use parking_lot::Mutex;

use crate::http_server::Answer;

/// See the module.
pub struct ProxyHealth {
    world: World,
    timeout: Duration,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    /// When the oldest change arrived that is not written yet, on the monotonic clock.
    pending: Option<Duration>,
    last_updated: Option<SystemTime>,
}

impl ProxyHealth {
    /// A proxy is unhealthy if a change waits for longer than the timeout.
    pub fn new(world: World, timeout: Duration) -> Self {
        Self { world, timeout, times: Mutex::default() }
    }

    /// A change arrived.
    pub fn queue_update(&self) {
        let now = self.world.elapsed();
        self.times.lock().pending.get_or_insert(now);
    }

    /// All changes are written.
    pub fn set_updated(&self) {
        let mut times = self.times.lock();
        times.pending = None;
        times.last_updated = Some(self.world.now());
    }

    pub fn is_healthy(&self) -> bool {
        let now = self.world.elapsed();
        self.times.lock().pending.is_none_or(|since| now.saturating_sub(since) < self.timeout)
    }

    /// The answer to `/healthz`. A proxy without changes counts as updated just now.
    pub fn answer(&self) -> Answer {
        let now = self.world.now();
        let (status, updated) = match self.is_healthy() {
            true => (StatusCode::OK, Some(now)),
            false => (StatusCode::SERVICE_UNAVAILABLE, self.times.lock().last_updated),
        };
        let body =
            format!(r#"{{"lastUpdated": "{}","currentTime": "{}"}}"#, format(updated), format(Some(now)));
        Answer::json(status, body)
    }
}

/// A time as upstream writes it: `2023-01-02 15:04:05.000000 +0000 UTC`.
fn format(time: Option<SystemTime>) -> String {
    let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let Some(since) = since else { return "0001-01-01 00:00:00 +0000 UTC".to_owned() };
    let text = schema::time::format_micro_time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    text.replace('T', " ").replace('Z', " +0000 UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_falls_behind_is_unhealthy() {
        let world = env::Simulated::new(1_700_000_000, 1);
        let health = ProxyHealth::new(world.clone(), Duration::from_secs(60));
        assert_eq!(
            health.answer().body,
            r#"{"lastUpdated": "2023-11-14 22:13:20.000000 +0000 UTC","currentTime": "2023-11-14 22:13:20.000000 +0000 UTC"}"#
        );
        health.set_updated();
        health.queue_update();
        world.advance(Duration::from_secs(59));
        health.queue_update();
        assert!(health.is_healthy());
        world.advance(Duration::from_secs(1));
        let answer = health.answer();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.body.contains(r#""lastUpdated": "2023-11-14 22:13:20"#), "{}", answer.body);
        health.set_updated();
        assert_eq!(health.answer().status, StatusCode::OK);
    }
}
