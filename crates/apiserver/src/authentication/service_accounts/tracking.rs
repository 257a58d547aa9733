//! When tokens of old were last used: noted on their secrets, and since when that is done.
//!
//! Whoever wants to be rid of such tokens learns from it which of them are still needed. What always holds: a secret is
//! written at most once a day because of its token, and no request waits for that.

use crate::loopback;
use rest::{Api, ApiError};
use schema::{Value, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const DAY: i64 = 24 * 60 * 60;

/// The last day, counted from the beginning of Unix time, on which a token was seen to be used.
#[derive(Default)]
pub struct LastUse(AtomicI64);

impl LastUse {
    /// A token was used that a secret holds.
    pub fn note(&self, api: &Arc<Api>, namespace: &str, secret: &str) {
        let today = env::unix_seconds(&api.world) / DAY;
        if self.0.swap(today, Ordering::Relaxed) == today {
            return;
        }
        let (api, namespace, secret) = (api.clone(), namespace.to_owned(), secret.to_owned());
        tokio::spawn(async move {
            if let Err(why) = write(&api, &namespace, &secret, today).await {
                tracing::warn!(%why, namespace, secret, "it cannot be noted that a token was used");
            }
        });
    }
}

/// A day as labels have it.
fn date(day: i64) -> String {
    time::format_time(day.saturating_mul(DAY)).chars().take(10).collect()
}

async fn write(api: &Arc<Api>, namespace: &str, name: &str, today: i64) -> Result<(), ApiError> {
    let label = api.names.well_known("legacy-token-last-used");
    loop {
        let Some(mut secret) = api.lookup("secrets", namespace, name) else { return Ok(()) };
        let noted = secret.text(&["metadata", "labels", &label]);
        // the clock of another server may be a little ahead
        if [date(today), date(today + 1)].iter().any(|day| day == noted) {
            return Ok(());
        }
        let metadata = secret.make_map().entry("metadata").make_map();
        metadata.entry("labels").make_map().insert(label.clone(), date(today));
        let resources = api.resources();
        let Some(resource) = resources.get("v1", "secrets") else { return Ok(()) };
        let place = loopback::Place { resource, namespace, name, subresource: "" };
        match loopback::write(api, place, &secret).await {
            // somebody was faster
            Err(why) if why.code == 409 => tokio::task::yield_now().await,
            Err(why) if why.code == 404 => return Ok(()),
            written => return written.map(drop),
        }
    }
}

/// Says in a config map since when uses are noted; where they are not, there is none.
pub async fn keep_since(api: &Arc<Api>, tracked: bool) -> Result<(), ApiError> {
    let namespace = api.names.system_namespace();
    let name = format!("{}-apiserver-legacy-service-account-token-tracking", api.names.prefix);
    let resources = api.resources();
    let Some(resource) = resources.get("v1", "configmaps") else { return Ok(()) };
    let found = api.lookup("configmaps", &namespace, &name);
    if !tracked {
        if found.is_none() {
            return Ok(());
        }
        let deleted = api.delete(resource, &namespace, &name, &Default::default(), &loopback::itself()).await;
        return deleted.map(drop);
    }
    let is_date = |text: &str| time::to_unix(&format!("{text}T00:00:00Z")).is_some();
    if found.as_ref().is_some_and(|it| is_date(it.text(&["data", "since"]))) {
        return Ok(());
    }
    let existing = if found.is_some() { &*name } else { "" };
    let mut map = found.unwrap_or_else(Value::map);
    map.set(&["metadata", "name"], &*name);
    map.set(&["data", "since"], date(env::unix_seconds(&api.world) / DAY));
    let place = loopback::Place { resource, namespace: &namespace, name: existing, subresource: "" };
    loopback::or_another_did(loopback::write(api, place, &map).await.map(drop))
}
