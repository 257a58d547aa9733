//! Thousands of watches on which nothing happens.

use std::io::{Write, stdout};
use std::sync::Arc;

use anyhow::ensure;
use bench::target::Target;
use bytes::Bytes;
use http::{Method, StatusCode};

use crate::request::settled;

pub async fn idle(
    target: &Arc<Target>,
    pid: &[u32],
    watches: usize,
    connections: usize,
    path: &str,
    at_most: f64,
) -> anyhow::Result<()> {
    let uri = target.uri(path)?;
    let before = settled(pid).await?;
    let senders = target.senders(watches, connections).await?;
    let mut open = Vec::with_capacity(watches);
    for mut sender in senders {
        sender.ready().await?;
        let request = target.request(Method::GET, uri.clone(), Bytes::new())?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == StatusCode::OK, "watch {}: {}", open.len(), answer.status());
        open.push((sender, answer.into_body()));
    }
    let after = settled(pid).await?;
    let Some((before, after)) = before.zip(after) else {
        return Ok(writeln!(stdout(), "{watches} watches; memory not measured, for want of --pid")?);
    };
    let each = after.saturating_sub(before) as f64 / watches as f64 / 1e3;
    writeln!(
        stdout(),
        "{watches} idle watches on {connections} connections: {:.1} MB before, {:.1} MB with them, {each:.1} kB each",
        before as f64 / 1e6,
        after as f64 / 1e6
    )?;
    drop(open);
    ensure!(each <= at_most, "more than {at_most} kB each");
    Ok(())
}
