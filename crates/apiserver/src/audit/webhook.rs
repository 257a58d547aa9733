//! Events as lists, posted to another server.
//!
//! What always holds: a list is tried a few times, with growing pauses, whatever went wrong, since there is
//! hardly a failure after which the receiver could not come back; and then given up. Each attempt is bounded in
//! time, and the pauses end when the server does.

use super::event::Words;
use bytes::Bytes;
use env::World;
use outbound::HttpClient;
use std::time::Duration;
use tokio::sync::watch;

/// How often a list is tried.
const ATTEMPTS: u32 = 5;
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// Posts events.
pub(super) struct Webhook {
    pub caller: HttpClient,
    pub initial_backoff: Duration,
    pub world: World,
    /// Turns true when the server ends.
    pub stopping: watch::Receiver<bool>,
}

impl Webhook {
    /// Posts events in their JSON form; the error says why nobody took them.
    pub async fn post(&self, events: &[Bytes], words: &Words) -> Result<(), String> {
        let body = list(events, words);
        let mut pause = self.initial_backoff;
        let mut stopping = self.stopping.clone();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let why = match self.caller.post("", body.clone()).await {
                Ok(answer) if answer.status.is_success() => return Ok(()),
                Ok(answer) => format!("the receiver answered {}", answer.status),
                Err(why) => why.to_string(),
            };
            if attempt == ATTEMPTS || *stopping.borrow() {
                return Err(why);
            }
            tracing::debug!(%why, attempt, "audit events are tried again");
            let share = (env::random_u64(&self.world) % 1000) as f64 / 1000.0;
            tokio::select! {
                () = tokio::time::sleep(pause.mul_f64(1.0 + JITTER * share)) => {}
                // one more attempt, and that is it
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
            pause = pause.mul_f64(GROWTH);
        }
    }
}

/// In a list the events do not say again what they are.
fn list(events: &[Bytes], words: &Words) -> Bytes {
    let size: usize = events.iter().map(Bytes::len).sum();
    let mut out = Vec::with_capacity(size + 100);
    let head = format!(
        "{{\"kind\":\"EventList\",\"apiVersion\":\"{}\",\"metadata\":{{}},\"items\":[",
        words.api_version
    );
    out.extend_from_slice(head.as_bytes());
    for (nth, event) in events.iter().enumerate() {
        out.extend_from_slice(if nth > 0 { b",{" } else { b"{" });
        out.extend_from_slice(event.strip_prefix(&*words.head).unwrap_or(event));
    }
    out.extend_from_slice(b"]}");
    out.into()
}
