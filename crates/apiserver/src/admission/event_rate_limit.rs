//! EventRateLimit: token buckets for events by server, namespace, user and source.
//!
//! Each limit has a token bucket per key, for a bounded number of keys; beyond it the least recently used one
//! is dropped. A write takes a token of each limit, whether others have one or not. Invariant: the memory per
//! key does not depend on its length.

use super::configuration::{ConfigErrors, Part, whole};
use super::sync_plugin::is;
use env::{MaybeReady, World};
use names::Names;
use parking_lot::Mutex;
use rest::{Admission, AdmissionAttributes, ApiError, Interest, Resource};
use schema::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Default number of keys per limit.
const DEFAULT_CACHE_SIZE: usize = 4096;

pub struct EventRateLimit {
    world: World,
    limits: Vec<Limit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

impl Scope {
    const ALL: [(&'static str, Scope); 4] = [
        ("Server", Scope::Server),
        ("Namespace", Scope::Namespace),
        ("User", Scope::User),
        ("SourceAndObject", Scope::SourceAndObject),
    ];

    /// The key of the bucket.
    fn key(self, write: &AdmissionAttributes<'_>, event: &Value) -> String {
        match self {
            Scope::Server => String::new(),
            Scope::Namespace => write.namespace.to_owned(),
            Scope::User => write.user.name.clone(),
            Scope::SourceAndObject => {
                let source = ["component", "host"].map(|field| event.text(&["source", field]));
                let fields = ["kind", "namespace", "name", "uid", "apiVersion"];
                let object = fields.map(|field| event.text(&["involvedObject", field]));
                [source.concat(), object.concat()].concat()
            }
        }
    }
}

struct Limit {
    name: &'static str,
    scope: Scope,
    buckets: Mutex<Buckets>,
}

impl Admission for EventRateLimit {
    fn interest(&self, resource: &Resource) -> Interest {
        let events = is(resource, "", "events");
        Interest::CREATE.and(Interest::UPDATE).when(events)
    }

    fn validate<'a>(
        &'a self,
        write: &'a AdmissionAttributes<'a>,
        object: &'a Value,
        _: Option<&'a Value>,
    ) -> MaybeReady<'a, Result<(), ApiError>> {
        if write.dry_run {
            return Ok(()).into();
        }
        let now = self.world.elapsed();
        let refused: Vec<String> = self
            .limits
            .iter()
            .filter_map(|limit| {
                let key = limit.scope.key(write, object);
                let taken = limit.buckets.lock().take(&key, now);
                (!taken).then(|| format!("limit reached on type {} for key {key}", limit.name))
            })
            .collect();
        match &refused[..] {
            [] => Ok(()).into(),
            [one] => Err(too_many(one)).into(),
            several => Err(too_many(&format!("[{}]", several.join(", ")))).into(),
        }
    }
}

/// Without a `Retry-After`: the client should rather drop the event.
fn too_many(why: &str) -> ApiError {
    let message = format!("Too many requests: {why}");
    ApiError {
        code: 429,
        reason: "TooManyRequests".into(),
        message,
        details: None,
        continue_token: String::new(),
    }
}

impl EventRateLimit {
    pub fn new(names: &Names, world: World, configuration: &Value) -> Result<Self, String> {
        let mut problems = ConfigErrors::default();
        let group = names.group("eventratelimit.admission");
        let kind = (group.as_str(), &["v1alpha1"][..], "Configuration");
        let root = whole(configuration, kind, &["limits"], &mut problems);
        let parts = root.parts("limits", &["type", "qps", "burst", "cacheSize"], &mut problems);
        if parts.is_empty() {
            problems.add("limits", "must name at least one limit");
        }
        let limits = parts.iter().filter_map(|part| Limit::read(part, &mut problems)).collect();
        problems.into_result(EventRateLimit { world, limits })
    }
}

impl Limit {
    fn read(part: &Part<'_>, problems: &mut ConfigErrors) -> Option<Self> {
        let kind_name = part.text("type", problems).unwrap_or_default();
        let found = Scope::ALL.into_iter().find(|(name, _)| *name == kind_name);
        if found.is_none() {
            let expected = Scope::ALL.map(|(name, _)| name).join(", ");
            problems.add(&part.at("type"), format!("{kind_name:?} is none of {expected}"));
        }
        let mut positive = |field: &str| {
            let number = part.int(field, problems).and_then(|number| u32::try_from(number).ok());
            let number = number.filter(|number| *number > 0);
            if number.is_none() {
                problems.add(&part.at(field), "must be a positive number");
            }
            number
        };
        let (qps, burst) = (positive("qps"), positive("burst"));
        let cache_size = match part.int("cacheSize", problems) {
            None | Some(0) => Some(DEFAULT_CACHE_SIZE),
            Some(number) => usize::try_from(number).ok(),
        };
        if cache_size.is_none() {
            problems.add(&part.at("cacheSize"), "must not be negative");
        }
        let (name, scope) = found?;
        let buckets = Buckets::new(qps?, burst?, cache_size?);
        Some(Limit { name, scope, buckets: Mutex::new(buckets) })
    }
}

type Key = [u8; 32];

/// Token buckets by key, with LRU eviction.
struct Buckets {
    per_second: f64,
    burst: f64,
    most: usize,
    by_key: HashMap<Key, Bucket>,
    /// Keys by last use.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

struct Bucket {
    tokens: f64,
    at: Duration,
    used: u64,
}

impl Buckets {
    fn new(per_second: u32, burst: u32, most: usize) -> Self {
        Buckets {
            per_second: f64::from(per_second),
            burst: f64::from(burst),
            most,
            by_key: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Takes a token if there is one.
    fn take(&mut self, key: &str, now: Duration) -> bool {
        let key: Key = Sha256::digest(key.as_bytes()).into();
        self.uses += 1;
        let fresh = Bucket { tokens: self.burst, at: now, used: self.uses };
        let bucket = self.by_key.entry(key).or_insert(fresh);
        let gained = now.saturating_sub(bucket.at).as_secs_f64() * self.per_second;
        self.by_use.remove(&bucket.used);
        *bucket = Bucket {
            tokens: (bucket.tokens + gained).min(self.burst),
            at: now.max(bucket.at),
            used: self.uses,
        };
        let taken = bucket.tokens >= 1.0;
        if taken {
            bucket.tokens -= 1.0;
        }
        self.by_use.insert(self.uses, key);
        if self.by_key.len() > self.most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_refill() {
        let (mut buckets, start) = (Buckets::new(2, 3, 10), Duration::from_secs(100));
        let mut takes = |millis: u64, expected: usize| {
            let now = start + Duration::from_millis(millis);
            let taken = (0..5).filter(|_| buckets.take("k", now)).count();
            assert_eq!(taken, expected, "{millis}");
        };
        takes(0, 3);
        takes(400, 0);
        takes(500, 1);
        takes(1500, 2);
        takes(100_000, 3);
        // a clock that goes back adds nothing
        takes(50_000, 0);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let mut buckets = Buckets::new(1, 1, 2);
        let now = Duration::from_secs(1);
        let mut take = |key: &str| buckets.take(key, now);
        assert!(take("a") && take("b") && !take("a") && !take("b"));
        // `a` is older than `b` and is evicted
        assert!(take("c") && !take("b") && take("a") && take("c"));
        for key in 0..1000 {
            take(&key.to_string());
        }
        assert_eq!((buckets.by_key.len(), buckets.by_use.len()), (2, 2));
    }
}
