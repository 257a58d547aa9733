//! Measures many watchers of one changing config map: cost, latency and loss of events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::target::{Sender, Target};
use bytes::{Bytes, BytesMut};
use clap::Args;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::exchange;
use crate::report::{Clocks, Report, Tally};

/// How many share a connection, as kept low by clients.
const STREAMS: usize = 25;
/// How long the last events may take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct Watch {
    #[arg(long, default_value_t = 1000)]
    watchers: usize,
    /// Updates per second
    #[arg(long, default_value_t = 20.0)]
    rate: f64,
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    #[arg(long, default_value = "bench-watch")]
    namespace: String,
}

/// The number of the update that an event is about, and when it arrived.
type Arrival = (u64, Instant);

/// An operation lasts from the sending of an update to the arrival of its event.
pub async fn watch(target: &Arc<Target>, pids: &[u32], options: &Watch) -> anyhow::Result<Report> {
    let updates = (options.rate * options.seconds) as u64;
    ensure!(updates > 0 && options.watchers > 0, "there is nothing to do");
    let connections = options.watchers.div_ceil(STREAMS);
    let writer = target.connect().await?;
    let watched = prepare(target, &writer, &options.namespace).await?;
    let (output, mut arrivals) = mpsc::unbounded_channel::<Vec<Arrival>>();
    let (end, ending) = watch::channel(());
    let mut watching = JoinSet::new();
    for mut sender in target.senders(options.watchers, connections).await? {
        let uri = target.uri(&format!("{}?watch=1&resourceVersion=0", watched.collection))?;
        sender.ready().await?;
        let answer = sender.send_request(target.request(Method::GET, uri, Bytes::new())?).await?;
        ensure!(answer.status() == StatusCode::OK, "a watch was answered {}", answer.status());
        watching.spawn(follow(sender, answer.into_body(), ending.clone(), output.clone()));
    }
    drop(output);
    // opening the watches is not measured
    tokio::time::sleep(Duration::from_millis(500)).await;
    let clocks = Clocks::read(pids)?;
    let sent = update(target, &writer, &watched, updates, options.rate).await?;
    let expected = updates * options.watchers as u64;
    let tally = collect(&mut arrivals, &sent, expected).await;
    let mut report = clocks.report(pids, "watch", (options.watchers, connections), tally)?;
    report.lost = Some(expected.saturating_sub(report.ops() as u64));
    drop(end);
    watching.join_all().await;
    Ok(report)
}

struct Watched {
    collection: String,
    object: String,
}

async fn prepare(target: &Target, writer: &Sender, namespace: &str) -> anyhow::Result<Watched> {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let text = "a line of some length\n".repeat(50);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched"}, "data": {"text": text}});
    for (path, body) in [("/api/v1/namespaces", made), (collection.as_str(), map)] {
        let request = target.request(Method::POST, target.uri(path)?, body.to_string().into())?;
        exchange(writer.clone(), request).await.with_context(|| format!("cannot make anything in {path}"))?;
    }
    Ok(Watched { object: format!("{collection}/watched"), collection })
}

/// Sends the updates at their pace, and says when each was sent.
async fn update(
    target: &Target,
    writer: &Sender,
    watched: &Watched,
    updates: u64,
    rate: f64,
) -> anyhow::Result<HashMap<u64, Instant>> {
    let mut sent = HashMap::new();
    let began = Instant::now();
    for nth in 0..updates {
        let due = began + Duration::from_secs_f64(nth as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        let patch = json!({"metadata": {"annotations": {"round": nth.to_string()}}}).to_string();
        let mut request = target.request(Method::PATCH, target.uri(&watched.object)?, patch.into())?;
        let form = HeaderValue::from_static("application/merge-patch+json");
        request.headers_mut().insert(header::CONTENT_TYPE, form);
        sent.insert(nth, Instant::now());
        exchange(writer.clone(), request).await?;
    }
    Ok(sent)
}

async fn collect(
    arrivals: &mut mpsc::UnboundedReceiver<Vec<Arrival>>,
    sent: &HashMap<u64, Instant>,
    expected: u64,
) -> Tally {
    let mut tally = Tally::default();
    let all = async {
        while (tally.took_ns.len() as u64) < expected
            && let Some(batch) = arrivals.recv().await
        {
            for (nth, at) in batch {
                if let Some(sent) = sent.get(&nth) {
                    tally.took_ns.push(at.saturating_duration_since(*sent).as_nanos() as u64);
                }
            }
        }
    };
    // missing events count as lost
    let _ = tokio::time::timeout(TIMEOUT, all).await;
    tally
}

/// Reports events until `ending`. The sender keeps the connection open.
async fn follow(
    _sender: Sender,
    mut body: Incoming,
    mut ending: watch::Receiver<()>,
    output: mpsc::UnboundedSender<Vec<Arrival>>,
) {
    let mut rest = BytesMut::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = ending.changed() => return,
        };
        let Some(Ok(frame)) = frame else { return };
        let now = Instant::now();
        rest.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
        let mut arrivals = Vec::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            arrivals.extend(round(&rest.split_to(end + 1)).map(|nth| (nth, now)));
        }
        if !arrivals.is_empty() && output.send(arrivals).is_err() {
            return;
        }
    }
}

/// The number that an event's object carries; the first event, before all updates, has none.
fn round(event: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(event).ok()?;
    let (_, rest) = text.split_once("\"round\":\"")?;
    rest.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_carry_their_number() {
        assert_eq!(round(br#"{"object":{"metadata":{"annotations":{"round":"17"}}}}"#), Some(17));
        assert_eq!(round(br#"{"object":{}}"#), None);
    }

    #[tokio::test]
    async fn missing_events_are_lost() {
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        let now = Instant::now();
        sender.send(vec![(0, now), (7, now)]).unwrap();
        drop(sender);
        let tally = collect(&mut arrivals, &HashMap::from([(0, now)]), 2).await;
        assert_eq!(tally.took_ns, [0]);
    }
}
