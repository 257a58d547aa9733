//! What the control loops are given to do at once: many namespaces to clear away, and one large deployment.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::process::cpu_of;
use bench::target::{Sender, Target};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::request::send;

const NAMESPACES: &str = "/api/v1/namespaces";
/// Requests at a time while things are made.
const MAKERS: usize = 16;
/// How long is waited for more to happen.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Makes namespaces with config maps in each, deletes them all, and tells how long it takes until the last is gone.
pub async fn namespaces(
    target: &Arc<Target>,
    pid: &[u32],
    count: usize,
    objects: usize,
    at_most: f64,
) -> anyhow::Result<()> {
    let name = |nth: usize| format!("loops-{nth:05}");
    let mine = "labelSelector=made-by%3Dloops";
    let began = Instant::now();
    each(target, count, move |nth| {
        let namespace = json!({"metadata": {"name": name(nth), "labels": {"made-by": "loops"}}});
        let mut made = vec![(Method::POST, NAMESPACES.to_owned(), namespace)];
        made.extend((0..objects).map(|nth_map| {
            let map = json!({"metadata": {"name": format!("map-{nth_map}")}, "data": {"key": "value"}});
            (Method::POST, format!("{NAMESPACES}/{}/configmaps", name(nth)), map)
        }));
        made
    })
    .await?;
    let made = began.elapsed();
    let mut seen = Events::open(target, &format!("{NAMESPACES}?watch=1&{mine}")).await?;
    let (began, cpu) = (Instant::now(), cpu_of(pid)?);
    let deleted = {
        let target = target.clone();
        tokio::spawn(async move {
            each(&target, count, move |nth| {
                vec![(Method::DELETE, format!("{NAMESPACES}/{}", name(nth)), json!({}))]
            })
            .await
        })
    };
    seen.until("DELETED", count).await?;
    let took = began.elapsed().as_secs_f64();
    deleted.await??;
    writeln!(
        stdout(),
        "{count} namespaces with {objects} objects each: made in {:.1} s, gone in {took:.1} s{}",
        made.as_secs_f64(),
        spent(cpu, cpu_of(pid)?)
    )?;
    ensure!(took <= at_most, "not gone within {at_most} s");
    Ok(())
}

/// Makes a deployment, and tells how long it takes until all of its pods are in the API.
pub async fn deployment(
    target: &Arc<Target>,
    pid: &[u32],
    replicas: usize,
    at_most: f64,
) -> anyhow::Result<()> {
    let mut sender = target.connect().await?;
    let space = json!({"metadata": {"name": "loops-deployment"}});
    make(target, &mut sender, Method::POST, NAMESPACES, &space).await?;
    let pods = format!("{NAMESPACES}/loops-deployment/pods?watch=1");
    let mut seen = Events::open(target, &pods).await?;
    let labels = json!({"app": "web"});
    let wanted = json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    let (began, cpu) = (Instant::now(), cpu_of(pid)?);
    let path = "/apis/apps/v1/namespaces/loops-deployment/deployments";
    make(target, &mut sender, Method::POST, path, &wanted).await?;
    seen.until("ADDED", replicas).await?;
    let took = began.elapsed().as_secs_f64();
    writeln!(stdout(), "a deployment of {replicas} pods: there in {took:.2} s{}", spent(cpu, cpu_of(pid)?))?;
    let space = format!("{NAMESPACES}/loops-deployment");
    make(target, &mut sender, Method::DELETE, &space, &json!({})).await?;
    ensure!(took <= at_most, "not there within {at_most} s");
    Ok(())
}

fn spent(before: Option<u64>, after: Option<u64>) -> String {
    let spent = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    spent.map_or_else(String::new, |microseconds| format!(", {:.1} s of CPU", microseconds as f64 / 1e6))
}

async fn make(
    target: &Target,
    sender: &mut Sender,
    method: Method,
    path: &str,
    body: &Value,
) -> anyhow::Result<()> {
    let status = send(target, sender, method.clone(), path, body.to_string().into()).await?;
    ensure!(status.is_success(), "{method} {path}: {status}");
    Ok(())
}

type Requests = Vec<(Method, String, Value)>;

/// Sends the requests of each number in order, several numbers at a time.
async fn each(
    target: &Arc<Target>,
    count: usize,
    requests: impl Fn(usize) -> Requests + Clone + Send + 'static,
) -> anyhow::Result<()> {
    let mut working = JoinSet::new();
    for (first, mut sender) in target.senders(MAKERS, 4).await?.into_iter().enumerate() {
        let (target, requests) = (target.clone(), requests.clone());
        working.spawn(async move {
            for nth in (first..count).step_by(MAKERS) {
                for (method, path, body) in requests(nth) {
                    make(&target, &mut sender, method, &path, &body).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    working.join_all().await.into_iter().collect()
}

/// A watch of which only the kinds of events count.
struct Events {
    body: Incoming,
    /// What has come of a line that is not whole yet.
    begun: Vec<u8>,
}

impl Events {
    async fn open(target: &Target, path: &str) -> anyhow::Result<Self> {
        let mut sender = target.connect().await?;
        sender.ready().await?;
        let request = target.request(Method::GET, target.uri(path)?, Bytes::new())?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
        Ok(Events { body: answer.into_body(), begun: Vec::new() })
    }

    /// Until so many events of a kind have come.
    async fn until(&mut self, kind: &str, count: usize) -> anyhow::Result<()> {
        let start = format!("{{\"type\":\"{kind}\"");
        let mut seen = 0;
        while seen < count {
            let frame = timeout(TIMEOUT, self.body.frame()).await;
            let frame = frame.with_context(|| format!("nothing happens any more after {seen} of {count}"))?;
            let frame = frame.context("the watch ended")??;
            let Ok(data) = frame.into_data() else { continue };
            self.begun.extend_from_slice(&data);
            let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = self.begun[..whole].split(|byte| *byte == b'\n');
            seen += lines.filter(|line| line.starts_with(start.as_bytes())).count();
            self.begun.drain(..whole);
        }
        Ok(())
    }
}
