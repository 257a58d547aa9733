//! Measures custom resources: many large definitions, and custom objects beside config maps of the same size.
//!
//!     cargo run --release -p bench --bin definitions -- --server https://127.0.0.1:6443 --token T --pid PID
//!
//! Without `--definition FILE` (one, as JSON, of which renamed copies are made) the definitions are made up: about as
//! large as the larger ones of well-known operators. What was made stays there: the server is one to be thrown away.

use anyhow::{Context, ensure};
use bench::print_line;
use bench::process::{cpu_of, memory_of};
use bench::target::{Sender, Target, TargetArgs};
use bytes::Bytes;
use clap::Parser;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use names::Names;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The group and version of definitions.
fn version() -> String {
    format!("{}/v1", Names::kubernetes().group("apiextensions"))
}

fn definitions() -> String {
    format!("/apis/{}/customresourcedefinitions", version())
}

/// How many make definitions at a time, each the next one when the last is established.
const CLIENTS: usize = 8;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    target: TargetArgs,
    /// The server's process, for its memory and CPU time
    #[arg(long)]
    pid: Option<u32>,
    /// How many definitions are made
    #[arg(long, default_value_t = 500)]
    count: usize,
    /// The definition of which copies are made, as JSON
    #[arg(long, value_name = "FILE")]
    definition: Option<PathBuf>,
    /// How large a made-up definition is, in bytes
    #[arg(long, default_value_t = 200_000)]
    size: usize,
    /// How many objects are created, and read, of each kind
    #[arg(long, default_value_t = 2000)]
    objects: usize,
    /// How long the server is watched doing nothing
    #[arg(long, default_value_t = 5)]
    idle_seconds: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let target = Arc::new(Target::new(&cli.target)?);
    let mut client = Client { sender: target.connect().await?, target };
    let pids: Vec<u32> = cli.pid.into_iter().collect();
    let original = match &cli.definition {
        Some(file) => serde_json::from_slice(&std::fs::read(file)?).context("--definition")?,
        None => made_up(cli.size),
    };
    let before = memory_of(&pids)?;
    let (begun, original) = (Instant::now(), Arc::new(original));
    let mut working = JoinSet::new();
    for first in 0..CLIENTS {
        let mut client = Client { sender: client.target.connect().await?, target: client.target.clone() };
        let (original, numbers) = (original.clone(), (first..cli.count).step_by(CLIENTS));
        working.spawn(async move {
            let mut bytes = 0;
            for nth in numbers {
                let copy = renamed(&original, nth)?;
                let body = copy.to_string();
                bytes += body.len();
                client.expect(Method::POST, &definitions(), body, StatusCode::CREATED).await?;
                client.until_established(copy["metadata"]["name"].as_str().unwrap_or_default()).await?;
            }
            anyhow::Ok(bytes)
        });
    }
    let bytes: usize = working.join_all().await.into_iter().sum::<anyhow::Result<usize>>()?;
    print_line!("definitions       {} of {} bytes", cli.count, bytes / cli.count.max(1));
    print_line!("all established   after {:.2} s", begun.elapsed().as_secs_f64());
    // let deferred work finish
    tokio::time::sleep(Duration::from_secs(2)).await;
    if let (Some(before), Some(after)) = (before, memory_of(&pids)?) {
        let each = after.saturating_sub(before) / 1024 / cli.count.max(1) as u64;
        print_line!(
            "memory            {} MiB before, {} MiB after: {each} KiB each",
            before >> 20,
            after >> 20
        );
    }
    let idle = cpu_of(&pids)?;
    tokio::time::sleep(Duration::from_secs(cli.idle_seconds)).await;
    if let (Some(before), Some(after)) = (idle, cpu_of(&pids)?) {
        let share = (after - before) as f64 / 10_000.0 / cli.idle_seconds.max(1) as f64;
        print_line!("idle              {share:.2} % of a core");
    }
    objects(&cli, &mut client, &pids).await
}

/// Objects of a custom kind and config maps of the same size, by turns.
async fn objects(cli: &Cli, client: &mut Client, pids: &[u32]) -> anyhow::Result<()> {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string", "maxLength": 1000}});
    let schema = json!({"type": "object", "properties": {"data": texts}});
    let gauge = definition("gauge.example.com", "gauges", "Gauge", schema);
    client.expect(Method::POST, &definitions(), gauge.to_string(), StatusCode::CREATED).await?;
    client.until_established("gauges.gauge.example.com").await?;
    let data: serde_json::Map<String, Value> =
        (0..10).map(|nth| (format!("key-{nth}"), Value::from("x".repeat(100)))).collect();
    print_line!("{:<18}{:>14}{:>14}{:>14}   µs of CPU each", "", "create", "get", "list of all");
    for (label, version, kind, path) in [
        ("config map", "v1", "ConfigMap", "/api/v1/namespaces/default/configmaps"),
        (
            "custom resource",
            "gauge.example.com/v1",
            "Gauge",
            "/apis/gauge.example.com/v1/namespaces/default/gauges",
        ),
    ] {
        let mut costs = Vec::new();
        let mut spent = cpu_of(pids)?;
        let mut cost = |times: usize| -> anyhow::Result<()> {
            let now = cpu_of(pids)?;
            let each = now.zip(spent).map(|(now, before)| (now - before) as f64 / times.max(1) as f64);
            costs.push(each.map_or("-".to_owned(), |it| format!("{it:.1}")));
            spent = now;
            Ok(())
        };
        for nth in 0..cli.objects {
            let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": format!("o{nth}")}, "data": data});
            client.expect(Method::POST, path, body.to_string(), StatusCode::CREATED).await?;
        }
        cost(cli.objects)?;
        for nth in 0..cli.objects {
            client.expect(Method::GET, &format!("{path}/o{nth}"), String::new(), StatusCode::OK).await?;
        }
        cost(cli.objects)?;
        const LISTS: usize = 20;
        for _ in 0..LISTS {
            client.expect(Method::GET, path, String::new(), StatusCode::OK).await?;
        }
        cost(LISTS)?;
        print_line!("{label:<18}{:>14}{:>14}{:>14}", costs[0], costs[1], costs[2]);
    }
    Ok(())
}

/// The part of a definition that is polled.
#[derive(Deserialize)]
struct Definition {
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

struct Client {
    target: Arc<Target>,
    sender: Sender,
}

impl Client {
    async fn expect(
        &mut self,
        method: Method,
        path: &str,
        body: String,
        expected: StatusCode,
    ) -> anyhow::Result<Bytes> {
        let request = self.target.request(method, self.target.uri(path)?, body.into())?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let shown = || String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        ensure!(status == expected, "{path}: {status}: {}", shown());
        Ok(body)
    }

    async fn until_established(&mut self, name: &str) -> anyhow::Result<()> {
        let path = format!("{}/{name}", definitions());
        loop {
            let found = self.expect(Method::GET, &path, String::new(), StatusCode::OK).await?;
            let found: Definition = serde_json::from_slice(&found)?;
            let mut conditions = found.status.unwrap_or_default().conditions.into_iter().flatten();
            if conditions.any(|it| it.kind == "Established" && it.status == "True") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn definition(group: &str, plural: &str, kind: &str, schema: Value) -> Value {
    json!({"apiVersion": version(), "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// A copy under another name.
fn renamed(original: &Value, nth: usize) -> anyhow::Result<Value> {
    let mut copy = original.clone();
    let text = |at: &Value| at.as_str().map(str::to_owned).context("the definition lacks a name");
    let names = &original["spec"]["names"];
    let plural = format!("{}{nth}", text(&names["plural"])?);
    let group = text(&original["spec"]["group"])?;
    copy["spec"]["names"] = json!({"plural": plural, "kind": format!("{}{nth}", text(&names["kind"])?)});
    copy["metadata"] = json!({"name": format!("{plural}.{group}"),
        "annotations": original["metadata"].get("annotations").cloned().unwrap_or_else(|| json!({}))});
    if let Some(copy) = copy.as_object_mut() {
        copy.remove("status");
    }
    Ok(copy)
}

/// A definition of about this size, shaped like one of an operator: structures in lists in structures, with words.
fn made_up(size: usize) -> Value {
    let words =
        "What this is for, in a sentence or two, as definitions of operators have it for every field.";
    let leaf = json!({"type": "string", "description": words});
    let item = json!({"type": "object", "description": words, "required": ["name"],
        "properties": {"name": leaf, "value": leaf, "optional": {"type": "boolean", "description": words},
            "count": {"type": "integer", "format": "int32", "minimum": 0, "description": words}}});
    let part = json!({"type": "object", "description": words, "properties": {"first": leaf, "second": leaf,
        "items": {"type": "array", "items": item, "description": words}}});
    let count = size / part.to_string().len() + 1;
    let parts: serde_json::Map<String, Value> =
        (0..count).map(|nth| (format!("part{nth}"), part.clone())).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": parts}}});
    definition("made.example.com", "things", "Thing", schema)
}
