//! `/simulation/clock`: the clock of a cluster whose users hold it (`--clock manual`).
//!
//! GET tells the time and the next deadline. POST moves the clock, and returns what changed on the way:
//!
//! | parameter | meaning |
//! |---|---|
//! | `advance` | by how much, such as `1h` |
//! | `settle` | until nothing changes any more, at most by this |
//! | `quiet` | how long nothing must have changed, for `settle` (10s) |
//! | `step`, `pause` | stops every `step` for `pause` of real time, so that programs outside can react |
//!
//! The clock coasts where nothing but upkeep happens: see [`env::Paused`].
//!
//! Only who may POST to this path, the administrators by default, moves the clock. Heartbeats (leases) are no changes.

use super::request_context::RequestContext;
use super::service::Service;
use crate::serve::Body;
use bytes::Bytes;
use cache::{Interest, TryRecvError};
use env::{Env, Paused};
use http::header::{self, HeaderValue};
use http::{Method, Response};
use rest::{ApiError, Collection};
use schema::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The path of the clock.
pub(super) const PATH: &str = "/simulation/clock";

/// The changes that one response lists; it counts the others.
const LISTED: usize = 10_000;
/// The clock stops at so many deadlines at once. Changes are collected then, and before a leap, long before the caches drop
/// them.
const STRIDE: usize = 32;
/// The default of `quiet`.
const QUIET: Duration = Duration::from_secs(10);
/// How often `settle` looks for changes.
const SETTLE_STRIDE: Duration = Duration::from_secs(1);
/// Changes of these resources are heartbeats.
const HEARTBEATS: &str = "leases";

/// How a request moves the clock.
#[derive(Debug, PartialEq, Eq)]
struct Movement {
    /// At most by this.
    limit: Duration,
    /// Ends before the limit if nothing has changed for so long.
    quiet: Option<Duration>,
    /// By how much at once.
    step: Option<Duration>,
    /// Real time between steps.
    pause: Duration,
}

impl Movement {
    /// Reads the parameters of a request.
    fn read<'q>(parameter: impl Fn(&str) -> Option<&'q str>) -> Result<Self, String> {
        let duration = |name: &str| match parameter(name) {
            None | Some("") => Ok::<_, String>(None),
            Some(text) => {
                let nanoseconds =
                    schema::time::parse_duration(text).map_err(|why| format!("{name}: {why}"))?;
                let nanoseconds =
                    u64::try_from(nanoseconds).map_err(|_| format!("{name}: time goes forward only"))?;
                Ok(Some(Duration::from_nanos(nanoseconds)))
            }
        };
        let (advance, settle) = (duration("advance")?, duration("settle")?);
        let quiet = duration("quiet")?;
        let (limit, quiet) = match (advance, settle) {
            (Some(limit), None) if quiet.is_none() => (limit, None),
            (None, Some(limit)) => (limit, Some(quiet.unwrap_or(QUIET))),
            (Some(_), None) => return Err("quiet is for settle".to_owned()),
            (Some(_), Some(_)) => return Err("give advance or settle, not both".to_owned()),
            (None, None) => return Err("give advance or settle, such as advance=1h".to_owned()),
        };
        let longest = quiet.map(|_| SETTLE_STRIDE);
        let (step, pause) = (duration("step")?, duration("pause")?.unwrap_or_default());
        match step {
            Some(Duration::ZERO) => return Err("step: must be more than nothing".to_owned()),
            None if !pause.is_zero() => return Err("pause is for step".to_owned()),
            _ => {}
        }
        Ok(Movement { limit, quiet, step: step.into_iter().chain(longest).min(), pause })
    }
}

impl Service {
    pub(super) async fn move_clock(&self, context: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        let Some(clock) = &self.clock else { return Err(ApiError::no_such_path()) };
        let mut out = Value::map();
        match context.info.method {
            Method::GET => {
                if let Some(next) = clock.next_deadline() {
                    out.set(&["nextDeadline"], time(next));
                }
            }
            Method::POST => {
                let query = &context.info.query;
                let movement = Movement::read(|name| query.get(name)).map_err(ApiError::bad_request)?;
                let begin = clock.elapsed();
                let mut changes = Changes::new(self.api.storage.collections());
                let is_settled = changes.follow(clock, &movement, || self.api.storage.collections()).await;
                // what has expired
                self.api.storage.store.tick().await;
                let moved = clock.elapsed().saturating_sub(begin);
                tracing::info!(?moved, user = context.user.name, "the clock was moved");
                let nanos = i64::try_from(moved.as_nanos()).unwrap_or(i64::MAX);
                out.set(&["advanced"], schema::time::format_duration(nanos));
                if let Some(is_settled) = is_settled {
                    out.set(&["settled"], is_settled);
                }
                out.set(&["changes"], Value::List(changes.list));
                if changes.omitted > 0 {
                    out.set(&["omittedChanges"], Value::from(changes.omitted as i64));
                }
            }
            _ => return Err(ApiError::method_not_allowed()),
        }
        out.set(&["now"], time(clock.elapsed()));
        let mut response = Response::new(Body::full(Bytes::from(schema::encode::untyped(&out))));
        let media = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, media);
        Ok(response)
    }
}

fn time(at: Duration) -> String {
    schema::time::format_micro_time(i64::try_from(at.as_micros()).unwrap_or(i64::MAX))
}

/// The changes since a moment, in the order of their revisions.
struct Changes {
    /// The last revision that was looked at, by the prefix of a collection's keys.
    seen: HashMap<String, u64>,
    list: Vec<Value>,
    omitted: usize,
}

impl Changes {
    fn new(collections: Vec<Arc<Collection>>) -> Self {
        let seen = collections.iter().map(|it| (it.prefix.clone(), it.cache.newest())).collect();
        Changes { seen, list: Vec::new(), omitted: 0 }
    }

    /// Moves the clock, and collects the changes on the way. Returns whether the cluster has settled, if the
    /// movement is to end there.
    async fn follow(
        &mut self,
        clock: &Paused,
        movement: &Movement,
        collections: impl Fn() -> Vec<Arc<Collection>>,
    ) -> Option<bool> {
        let end = clock.elapsed().saturating_add(movement.limit);
        // what has begun before goes on first
        clock.advance(Duration::ZERO).await;
        let mut changed_at = clock.elapsed();
        let mut stop = changed_at;
        loop {
            if self.collect(&collections()) {
                changed_at = clock.elapsed();
            }
            let now = clock.elapsed();
            if movement.quiet.is_some_and(|quiet| now.saturating_sub(changed_at) >= quiet) {
                return Some(true);
            }
            if now >= end {
                return movement.quiet.map(|_| false);
            }
            if now >= stop {
                if !movement.pause.is_zero() {
                    env::io::sleep(movement.pause).await;
                }
                stop = movement.step.map_or(end, |step| now.saturating_add(step).min(end));
            }
            clock.advance_in_part(stop, STRIDE).await;
        }
    }

    /// Adds what is new. Returns whether there was anything.
    fn collect(&mut self, collections: &[Arc<Collection>]) -> bool {
        let mut new = Vec::new();
        for collection in collections {
            let newest = collection.cache.newest();
            let seen = self.seen.entry(collection.prefix.clone()).or_insert(0);
            if newest <= *seen || collection.kind.plural == HEARTBEATS {
                continue;
            }
            let after = std::mem::replace(seen, newest);
            let Ok(mut events) = collection.cache.watch_after(after, Interest::All) else {
                // the cache has dropped some already: more than it holds happened in a moment
                self.omitted += 1;
                continue;
            };
            loop {
                match events.try_recv() {
                    Ok(event) => new.push((event, collection)),
                    Err(TryRecvError::Empty | TryRecvError::Ended) => break,
                    Err(TryRecvError::Lagged(_)) => {
                        self.omitted += 1;
                        break;
                    }
                }
            }
        }
        new.sort_by_key(|(event, _)| event.revision);
        let has_changed = !new.is_empty();
        for (event, collection) in new {
            if self.list.len() >= LISTED {
                self.omitted += 1;
                continue;
            }
            let kind = match (event.deleted, &event.previous) {
                (true, _) => "DELETED",
                (false, None) => "ADDED",
                (false, Some(_)) => "MODIFIED",
            };
            let resource = match &*collection.group {
                "" => collection.kind.plural.to_string(),
                group => format!("{}.{group}", collection.kind.plural),
            };
            let mut change = Value::map();
            change.set(&["time"], time(event.at));
            change.set(&["type"], kind);
            change.set(&["resource"], resource);
            if !event.key.namespace().is_empty() {
                change.set(&["namespace"], event.key.namespace());
            }
            change.set(&["name"], event.key.name());
            self.list.push(change);
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &'static [(&'static str, &'static str)]) -> Result<Movement, String> {
        Movement::read(|name| query.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
    }

    #[test]
    fn parameters_are_read() {
        let hour = read(&[("advance", "1h")]).unwrap();
        assert_eq!((hour.limit, hour.quiet, hour.step), (Duration::from_secs(3600), None, None));
        let settle = read(&[("settle", "10m"), ("step", "500ms"), ("pause", "5ms")]).unwrap();
        assert_eq!((settle.quiet, settle.step), (Some(QUIET), Some(Duration::from_millis(500))));
        assert_eq!(settle.pause, Duration::from_millis(5));
        assert_eq!(read(&[("settle", "10m"), ("step", "1h")]).unwrap().step, Some(SETTLE_STRIDE));
    }

    #[test]
    fn bad_parameters_are_refused() {
        let error = |query| read(query).unwrap_err();
        assert_eq!(error(&[]), "give advance or settle, such as advance=1h");
        assert_eq!(error(&[("advance", "1h"), ("settle", "1h")]), "give advance or settle, not both");
        assert_eq!(error(&[("advance", "-1h")]), "advance: time goes forward only");
        assert_eq!(error(&[("advance", "1h"), ("quiet", "1s")]), "quiet is for settle");
        assert_eq!(error(&[("advance", "1h"), ("step", "0s")]), "step: must be more than nothing");
        assert_eq!(error(&[("advance", "1h"), ("pause", "1s")]), "pause is for step");
        assert!(error(&[("advance", "soon")]).starts_with("advance: "));
    }
}
