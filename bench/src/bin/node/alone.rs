//! The runtime alone: the calls of a pod, without an agent.

use super::measure::{Spread, print_line};
use nodeagent::runtime::cri::CriRuntime;
use nodeagent::runtime::{ContainerConfig, Runtime, RuntimeError, SandboxConfig};
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

fn sandbox_config(name: &str) -> SandboxConfig {
    SandboxConfig {
        name: name.to_owned(),
        uid: name.to_owned(),
        namespace: "bench-alone".to_owned(),
        hostname: name.to_owned(),
        ..SandboxConfig::default()
    }
}

/// Sandbox, container, start. Returns the sandbox.
async fn start(runtime: &CriRuntime, name: &str, image: &str) -> Result<String, RuntimeError> {
    let sandbox = sandbox_config(name);
    let id = runtime.run_sandbox(&sandbox, "").await?;
    let container = ContainerConfig {
        name: "c".to_owned(),
        image: image.to_owned(),
        log_path: "c.log".to_owned(),
        ..ContainerConfig::default()
    };
    let container = runtime.create_container(&id, &container, &sandbox).await?;
    runtime.start_container(&container).await?;
    Ok(id)
}

async fn remove(runtime: &CriRuntime, id: &str) -> Result<(), RuntimeError> {
    runtime.stop_sandbox(id).await?;
    runtime.remove_sandbox(id).await
}

pub async fn run(endpoint: &str, image: &str, single: usize, burst: usize) -> anyhow::Result<()> {
    let runtime = CriRuntime::new(endpoint, None, None).map_err(|why| anyhow::anyhow!("{why}"))?;
    let runtime = Arc::new(runtime);
    let mut times = Vec::new();
    for nth in 0..single {
        let begin = Instant::now();
        let id = start(&runtime, &format!("alone-{nth}"), image).await?;
        times.push(begin.elapsed());
        remove(&runtime, &id).await?;
    }
    print_line!("the runtime alone, one by one: {}", Spread::of(times));
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for nth in 0..burst {
        let (runtime, image) = (runtime.clone(), image.to_owned());
        tasks.spawn(async move {
            let started = start(&runtime, &format!("burst-{nth}"), &image).await;
            started.map(|id| (id, begin.elapsed()))
        });
    }
    let mut started: Vec<(String, Duration)> = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        started.push(ended??);
    }
    let times = started.iter().map(|it| it.1).collect();
    print_line!("the runtime alone, {burst} at once: {}", Spread::of(times));
    for (id, _) in &started {
        remove(&runtime, id).await?;
    }
    Ok(())
}
