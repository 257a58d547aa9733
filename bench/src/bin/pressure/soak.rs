//! A long, steady mix of everything: memory and the store must stay flat.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bench::process::memory_of;
use bench::target::{Sender, Target};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::request::{once, send};

pub struct Soak {
    pub length: Duration,
    /// Changes per second.
    pub rate: f64,
    /// The folder whose size to follow.
    pub data: Option<PathBuf>,
    /// The allowed relative growth of memory and folder after the first fifth.
    pub growth: f64,
}

/// How many config maps there are at a time.
const OBJECTS: u64 = 2_000;
const WATCHES: usize = 50;
const COLLECTION: &str = "/api/v1/namespaces/soak/configmaps";

pub async fn soak(target: &Arc<Target>, pid: &[u32], options: Soak) -> anyhow::Result<()> {
    let mut sender = target.connect().await?;
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "soak"}}).to_string();
    let status = send(target, &mut sender, Method::POST, "/api/v1/namespaces", made.into()).await?;
    ensure!([StatusCode::CREATED, StatusCode::CONFLICT].contains(&status), "the namespace: {status}");
    let until = Instant::now() + options.length;
    let mut working = JoinSet::new();
    working.spawn(change(target.clone(), target.connect().await?, options.rate, until));
    working.spawn(read(target.clone(), target.connect().await?, until));
    for sender in target.senders(WATCHES, 2).await? {
        working.spawn(watch(target.clone(), sender, until));
    }
    let mut samples = Vec::new();
    let pause = (options.length / 60).max(Duration::from_secs(1));
    while Instant::now() < until {
        sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
        while let Some(ended) = working.try_join_next() {
            ended??;
        }
        let sample =
            Sample { memory: memory_of(pid)?, folder: options.data.as_deref().map(size).transpose()? };
        let shown =
            |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), |it| format!("{:.1}", it as f64 / 1e6));
        let left = until.saturating_duration_since(Instant::now()).as_secs();
        writeln!(
            stdout(),
            "memory {} MB, store {} MB, {left} s left",
            shown(sample.memory),
            shown(sample.folder)
        )?;
        samples.push(sample);
    }
    working.join_all().await.into_iter().collect::<anyhow::Result<()>>()?;
    flat(&samples, options.growth)
}

struct Sample {
    memory: Option<u64>,
    folder: Option<u64>,
}

/// The most of the last fifth against the most of the second.
fn flat(samples: &[Sample], growth: f64) -> anyhow::Result<()> {
    let fifth = samples.len() / 5;
    ensure!(fifth > 0, "too short to tell anything");
    let most = |of: fn(&Sample) -> Option<u64>, part: &[Sample]| part.iter().filter_map(of).max();
    for (name, of) in
        [("memory", (|it| it.memory) as fn(&Sample) -> Option<u64>), ("the store", |it| it.folder)]
    {
        let (early, late) =
            (most(of, &samples[fifth..2 * fifth]), most(of, &samples[samples.len() - fifth..]));
        let Some((early, late)) = early.zip(late) else { continue };
        let grown = late as f64 / early.max(1) as f64 - 1.0;
        writeln!(stdout(), "{name}: {:+.1} % from the second fifth to the last", grown * 100.0)?;
        ensure!(grown <= growth, "{name} grows");
    }
    Ok(())
}

fn size(folder: &Path) -> anyhow::Result<u64> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let one = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => size(&entry.path()),
            false => Ok(entry.metadata()?.len()),
        }
    };
    entries.map(one).sum()
}

/// Creates, changes and deletes config maps in turn, so that there are always about as many.
async fn change(target: Arc<Target>, mut sender: Sender, rate: f64, until: Instant) -> anyhow::Result<()> {
    let began = Instant::now();
    for nth in 0u64.. {
        sleep_until((began + Duration::from_secs_f64(nth as f64 / rate)).into()).await;
        if Instant::now() >= until {
            break;
        }
        let (round, which) = (nth / OBJECTS, nth % OBJECTS);
        let path = format!("{COLLECTION}/map-{which}");
        let text = format!("round {round}, ").repeat(60);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{which}")}, "data": {"text": text}});
        let body = Bytes::from(map.to_string());
        let status = match round % 3 {
            0 => send(&target, &mut sender, Method::POST, COLLECTION, body).await?,
            1 => send(&target, &mut sender, Method::PUT, &path, body).await?,
            _ => send(&target, &mut sender, Method::DELETE, &path, Bytes::new()).await?,
        };
        if !(status.is_success() || status == StatusCode::CONFLICT || status == StatusCode::NOT_FOUND) {
            bail!("a change was answered {status}");
        }
    }
    Ok(())
}

async fn read(target: Arc<Target>, mut sender: Sender, until: Instant) -> anyhow::Result<()> {
    while Instant::now() < until {
        for path in [COLLECTION, "/api/v1/namespaces", "/openapi/v3", "/metrics"] {
            let status = once(&target, &mut sender, path).await?;
            ensure!(status == StatusCode::OK, "{path} was answered {status}");
        }
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Restarts a watch that ends.
async fn watch(target: Arc<Target>, mut sender: Sender, until: Instant) -> anyhow::Result<()> {
    let path = format!("{COLLECTION}?watch=1&resourceVersion=0&timeoutSeconds=60");
    while Instant::now() < until {
        sender.ready().await?;
        let request = target.request(Method::GET, target.uri(&path)?, Bytes::new())?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == StatusCode::OK, "a watch was answered {}", answer.status());
        let mut body = answer.into_body();
        while let Ok(Some(frame)) = tokio::time::timeout_at(until.into(), body.frame()).await {
            frame?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_reported() {
        let of = |sizes: &[u64]| -> Vec<Sample> {
            sizes.iter().map(|size| Sample { memory: Some(*size), folder: None }).collect()
        };
        // the start does not count
        assert!(flat(&of(&[1, 100, 101, 99, 100]), 0.1).is_ok());
        assert!(flat(&of(&[1, 100, 110, 120, 130]), 0.1).is_err());
        assert!(flat(&of(&[1, 2]), 0.1).is_err());
    }
}
