//! One request to a server, and the memory of the server.

use std::time::Duration;

use bench::process::memory_of;
use bench::target::{Sender, Target};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};

/// How long anything may take before it counts as lost.
const TIMEOUT: Duration = Duration::from_secs(30);

/// GETs a path, and drains the answer.
pub async fn once(target: &Target, sender: &mut Sender, path: &str) -> anyhow::Result<StatusCode> {
    send(target, sender, Method::GET, path, Bytes::new()).await
}

/// The same with a method and a body.
pub async fn send(
    target: &Target,
    sender: &mut Sender,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<StatusCode> {
    let request = target.request(method, target.uri(path)?, body)?;
    let exchange = async {
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        drain(answer.into_body()).await?;
        anyhow::Ok(status)
    };
    timeout(TIMEOUT, exchange).await?
}

async fn drain(mut body: Incoming) -> anyhow::Result<()> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

/// Memory once it no longer changes much.
pub async fn settled(pid: &[u32]) -> anyhow::Result<Option<u64>> {
    let mut before = memory_of(pid)?;
    for _ in 0..20 {
        sleep(Duration::from_millis(500)).await;
        let now = memory_of(pid)?;
        if now.zip(before).is_none_or(|(now, before)| now.abs_diff(before) < 128 << 10) {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}
