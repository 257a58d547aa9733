//! Measures heartbeats: nodes renew their leases and write their status, as node agents do.
//!
//! The server's other work in that time is measured first, with the nodes there and silent, and is taken off.

use bench::print_line;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::process::cpu_of;
use bench::target::{Sender, Target};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use names::Names;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{interval_at, sleep};

/// How long the silent server is measured.
const QUIET: Duration = Duration::from_secs(5);

pub struct Heartbeats {
    pub nodes: usize,
    pub connections: usize,
    pub length: Duration,
    /// Time between two renewals of a node's lease.
    pub renewals: Duration,
    /// Time between two writes of a node's status.
    pub statuses: Duration,
    /// The most that a renewal may cost, in milliseconds of the server's CPU time.
    pub at_most: f64,
}

/// The requests of one node, and how long each took.
#[derive(Default)]
struct Count {
    renewals: Vec<Duration>,
    statuses: Vec<Duration>,
}

pub async fn heartbeats(target: &Arc<Target>, pids: &[u32], load: Heartbeats) -> anyhow::Result<()> {
    let load = Arc::new(load);
    let senders = target.senders(load.nodes, load.connections.clamp(1, load.nodes.max(1))).await?;
    let mut nodes = JoinSet::new();
    for (nth, sender) in senders.into_iter().enumerate() {
        let node = Node { target: target.clone(), sender, name: format!("beating-{nth:05}") };
        nodes.spawn(node.register());
    }
    let nodes = nodes.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    sleep(QUIET).await;
    let cpu = || -> anyhow::Result<f64> { Ok(cpu_of(pids)?.context("--pid")? as f64 / 1000.0) };
    let (start, idle) = (Instant::now(), cpu()?);
    sleep(QUIET).await;
    let idle = (cpu()? - idle) / start.elapsed().as_secs_f64();
    let (start, before) = (Instant::now(), cpu()?);
    let mut beating = JoinSet::new();
    for (nth, (node, lease)) in nodes.into_iter().enumerate() {
        beating.spawn(node.beat(lease, load.clone(), nth));
    }
    let mut all = Count::default();
    for count in beating.join_all().await {
        let count = count?;
        all.renewals.extend(count.renewals);
        all.statuses.extend(count.statuses);
    }
    let seconds = start.elapsed().as_secs_f64();
    let spent = cpu()? - before;
    print_line!(
        "{:<10} {} nodes, {seconds:.1} s, silent server {idle:.1} ms of CPU per second",
        "load",
        load.nodes
    );
    for (label, times) in [("renewals", &mut all.renewals), ("statuses", &mut all.statuses)] {
        times.sort();
        let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
        print_line!(
            "{label:<10} {} (p50 {:?}, p99 {:?}, last {:?})",
            times.len(),
            at(0.5),
            at(0.99),
            at(0.9999)
        );
    }
    let writes = (all.renewals.len() + all.statuses.len()).max(1) as f64;
    let (whole, each) = (spent / writes, (spent - idle * seconds) / writes);
    print_line!("{:<10} {each:.3} ms of CPU each, {whole:.3} with all that the server does besides", "cost");
    ensure!(each <= load.at_most, "a heartbeat costs {each:.3} ms of CPU, more than {}", load.at_most);
    Ok(())
}

struct Node {
    target: Arc<Target>,
    sender: Sender,
    name: String,
}

impl Node {
    /// Creates the node and its lease. Returns the lease.
    async fn register(mut self) -> anyhow::Result<(Self, Value)> {
        let node = json!({"metadata": {"name": self.name, "labels": {"load": "heartbeats"}}});
        self.send(Method::POST, "/api/v1/nodes", &node).await?;
        self.write_status(0).await?;
        let lease = json!({"metadata": {"name": self.name}, "spec": {"holderIdentity": self.name,
            "leaseDurationSeconds": 40, "renewTime": renew_time(0)}});
        let lease = self.send(Method::POST, &leases(), &lease).await?;
        Ok((self, lease))
    }

    async fn beat(mut self, mut lease: Value, load: Arc<Heartbeats>, nth: usize) -> anyhow::Result<Count> {
        let share = nth as f64 / load.nodes.max(1) as f64;
        let start = tokio::time::Instant::now();
        let mut renewals = interval_at(start + load.renewals.mul_f64(share), load.renewals);
        let mut statuses = interval_at(start + load.statuses.mul_f64(share), load.statuses);
        let end = sleep(load.length);
        tokio::pin!(end);
        let mut count = Count::default();
        let path = format!("{}/{}", leases(), self.name);
        loop {
            let is_renewal = tokio::select! {
                () = &mut end => return Ok(count),
                _ = renewals.tick() => true,
                _ = statuses.tick() => false,
            };
            let (began, micros) = (Instant::now(), start.elapsed().as_micros() as u64);
            if is_renewal {
                lease["spec"]["renewTime"] = renew_time(micros);
                lease = self.send(Method::PUT, &path, &lease).await?;
                count.renewals.push(began.elapsed());
            } else {
                self.write_status(micros / 1_000_000).await?;
                count.statuses.push(began.elapsed());
            }
        }
    }

    async fn write_status(&mut self, seconds: u64) -> anyhow::Result<()> {
        let names = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
        let conditions = names.map(|name| {
            let status = if name == "Ready" { "True" } else { "False" };
            json!({"type": name, "status": status, "reason": "Measured", "message": "as measured",
                "lastHeartbeatTime": heartbeat_time(seconds), "lastTransitionTime": heartbeat_time(0)})
        });
        let path = format!("/api/v1/nodes/{}/status", self.name);
        self.send(Method::PATCH, &path, &json!({"status": {"conditions": conditions}})).await.map(drop)
    }

    async fn send(&mut self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let is_patch = method == Method::PATCH;
        let mut request =
            self.target.request(method, self.target.uri(path)?, Bytes::from(body.to_string()))?;
        if is_patch {
            let strategic = http::HeaderValue::from_static("application/strategic-merge-patch+json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, strategic);
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(
            matches!(status, StatusCode::OK | StatusCode::CREATED),
            "{path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(serde_json::from_slice(&body)?)
    }
}

fn leases() -> String {
    let names = Names::kubernetes();
    format!("/apis/{}/v1/namespaces/{}/leases", names.group("coordination"), names.node_lease_namespace())
}

/// A time this many microseconds after some midnight: loops compare such times with one another only.
fn renew_time(micros: u64) -> Value {
    json!(format!("{}.{:06}Z", clock(micros / 1_000_000), micros % 1_000_000))
}

fn heartbeat_time(seconds: u64) -> Value {
    json!(format!("{}Z", clock(seconds)))
}

fn clock(seconds: u64) -> String {
    format!("2026-01-01T{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}
