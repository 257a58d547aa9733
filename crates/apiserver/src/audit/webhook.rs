//! The webhook backend: posts events in batches.
//!
//! Invariants: a batch is tried a few times with backoff, whatever the error, and then lost. Each attempt has
//! a timeout, and the backoff ends at shutdown.

use super::event::Dialect;
use bytes::Bytes;
use env::World;
use outbound::HttpClient;
use std::time::Duration;
use tokio::sync::watch;

/// Attempts per batch.
const ATTEMPTS: u32 = 5;
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// The backend.
pub(super) struct Webhook {
    pub client: HttpClient,
    pub initial_backoff: Duration,
    pub world: World,
    /// Turns true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

impl Webhook {
    /// Posts events in JSON; the error is that of the last attempt.
    pub async fn post(&self, events: &[Bytes], dialect: &Dialect) -> Result<(), String> {
        let body = list(events, dialect);
        let mut pause = self.initial_backoff;
        let mut stopping = self.stopping.clone();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let why = match self.client.post("", body.clone()).await {
                Ok(response) if response.status.is_success() => return Ok(()),
                Ok(response) => format!("the receiver answered {}", response.status),
                Err(why) => why.to_string(),
            };
            if attempt == ATTEMPTS || *stopping.borrow() {
                return Err(why);
            }
            tracing::debug!(%why, attempt, "retrying to post audit events");
            let share = (env::random_u64(&self.world) % 1000) as f64 / 1000.0;
            tokio::select! {
                () = env::io::sleep(pause.mul_f64(1.0 + JITTER * share)) => {}
                // one last attempt
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
            pause = pause.mul_f64(GROWTH);
        }
    }
}

/// In a list the events omit `kind` and `apiVersion`.
fn list(events: &[Bytes], dialect: &Dialect) -> Bytes {
    let size: usize = events.iter().map(Bytes::len).sum();
    let mut out = Vec::with_capacity(size + 100);
    let head = format!(
        "{{\"kind\":\"EventList\",\"apiVersion\":\"{}\",\"metadata\":{{}},\"items\":[",
        dialect.api_version
    );
    out.extend_from_slice(head.as_bytes());
    for (nth, event) in events.iter().enumerate() {
        out.extend_from_slice(if nth > 0 { b",{" } else { b"{" });
        out.extend_from_slice(event.strip_prefix(&*dialect.head).unwrap_or(event));
    }
    out.extend_from_slice(b"]}");
    out.into()
}
