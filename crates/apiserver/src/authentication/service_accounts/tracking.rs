//! Last-use tracking of legacy tokens: a label on their Secrets, and a ConfigMap with the start of tracking.
//!
//! Operators learn from it which legacy tokens are still in use. Invariant: a Secret is written at most once
//! a day for its token, and no request waits for the write.

use crate::loopback;
use rest::{Api, ApiError};
use schema::{Value, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const DAY: i64 = 24 * 60 * 60;

/// The last day, in days of Unix time, on which a token was used.
#[derive(Default)]
pub struct LastUse(AtomicI64);

impl LastUse {
    /// Records a use of a Secret's token.
    pub fn note(&self, api: &Arc<Api>, namespace: &str, secret: &str) {
        let today = env::unix_seconds(&api.world) / DAY;
        if self.0.swap(today, Ordering::Relaxed) == today {
            return;
        }
        let (api, namespace, secret) = (api.clone(), namespace.to_owned(), secret.to_owned());
        tokio::spawn(async move {
            if let Err(why) = write(&api, &namespace, &secret, today).await {
                tracing::warn!(%why, namespace, secret, "the last use of a service account token could not be recorded");
            }
        });
    }
}

/// A day in the form of labels.
fn date(day: i64) -> String {
    time::format_time(day.saturating_mul(DAY)).chars().take(10).collect()
}

async fn write(api: &Arc<Api>, namespace: &str, name: &str, today: i64) -> Result<(), ApiError> {
    let label = api.names.well_known("legacy-token-last-used");
    loop {
        let Some(mut secret) = api.lookup("secrets", namespace, name) else { return Ok(()) };
        let noted = secret.text(&["metadata", "labels", &label]);
        // the clock of another server may be slightly ahead
        if [date(today), date(today + 1)].iter().any(|day| day == noted) {
            return Ok(());
        }
        let metadata = secret.make_map().entry("metadata").make_map();
        metadata.entry("labels").make_map().insert(label.clone(), date(today));
        let resources = api.resources();
        let Some(resource) = resources.get("v1", "secrets") else { return Ok(()) };
        let target = loopback::WriteTarget { resource, namespace, name, subresource: "" };
        match loopback::write(api, target, &secret).await {
            // a concurrent write won
            Err(why) if why.code == 409 => tokio::task::yield_now().await,
            Err(why) if why.code == 404 => return Ok(()),
            written => return written.map(drop),
        }
    }
}

/// Writes to a ConfigMap since when uses are tracked; deletes it where they are not.
pub async fn maintain_start(api: &Arc<Api>, is_tracked: bool) -> Result<(), ApiError> {
    let namespace = api.names.system_namespace();
    let name = format!("{}-apiserver-legacy-service-account-token-tracking", api.names.prefix);
    let resources = api.resources();
    let Some(resource) = resources.get("v1", "configmaps") else { return Ok(()) };
    let config_map = api.lookup("configmaps", &namespace, &name);
    if !is_tracked {
        if config_map.is_none() {
            return Ok(());
        }
        let deleted =
            api.delete(resource, &namespace, &name, &Default::default(), &loopback::own_user()).await;
        return deleted.map(drop);
    }
    let is_date = |text: &str| time::to_unix(&format!("{text}T00:00:00Z")).is_some();
    if config_map.as_ref().is_some_and(|it| is_date(it.text(&["data", "since"]))) {
        return Ok(());
    }
    let existing = if config_map.is_some() { &*name } else { "" };
    let mut map = config_map.unwrap_or_else(Value::map);
    map.set(&["metadata", "name"], &*name);
    map.set(&["data", "since"], date(env::unix_seconds(&api.world) / DAY));
    let target = loopback::WriteTarget { resource, namespace: &namespace, name: existing, subresource: "" };
    loopback::ignore_conflict(loopback::write(api, target, &map).await.map(drop))
}
