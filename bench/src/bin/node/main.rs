//! Measures a node agent: memory and CPU time at rest and with pods, CPU time per pod, the time from a pod's creation to
//! Running one by one and at once.
//!
//! ```text
//! node                                                              # simulated runtime: API server and agent in this process
//! node --kubeconfig F --node N --agent-pid P --runtime unix:///run/containerd/containerd.sock --image I
//!                                                                   # an agent that runs, and the runtime alone
//! ```
//!
//! Always true: pods name their node, so no scheduler is in the path; times end with the event of a watch. Pods of the
//! runtime alone start in turns with the agent's, so that both have the same machine. CPU time of the simulated case is that of the agent's own thread; memory is that of the whole process, less that before the agent.

mod alone;
mod measure;
mod simulated;

use alone::Alone;
use anyhow::Context;
use bench::process::{cpu_of_process, memory_of, processes_like, shared_memory_of};
use clap::Parser;
use client::{Client, Metrics};
use client::{Rate, transport};
use env::{Seeded, World};
use measure::{Agent, AllUsage, Measurement, Usage};
use outbound::Target;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures a node agent
#[derive(Parser)]
#[command(name = "node")]
struct Cli {
    /// The kubeconfig of the cluster whose agent runs; without one, the agent is in this process with a simulated runtime
    #[arg(long, value_name = "FILE", requires = "agent_pid")]
    kubeconfig: Option<PathBuf>,
    /// The name of the node
    #[arg(long, default_value = "node")]
    node: String,
    /// The process of the agent
    #[arg(long, value_name = "PID")]
    agent_pid: Option<u32>,
    /// The directory of a cgroup with the CPU time of everything: the agent, the runtime, their helpers and the pods
    #[arg(long, value_name = "DIR")]
    cpu_cgroup: Option<PathBuf>,
    /// The socket of the runtime, to measure the runtime alone
    #[arg(long, value_name = "URL")]
    runtime: Option<String>,
    /// The image of the pods, present on the node
    #[arg(long, default_value = names::node::SANDBOX_IMAGE)]
    image: String,
    /// The cgroup of the pods that start in the runtime alone, such as that of the agent's pods
    #[arg(long, value_name = "PATH", default_value = "")]
    cgroup_parent: String,
    /// Pods that start one by one
    #[arg(long, default_value_t = 20)]
    single: usize,
    /// Pods that start at once
    #[arg(long, default_value_t = 50)]
    burst: usize,
    /// Pods that are there while the agent rests
    #[arg(long, default_value_t = 100)]
    resting: usize,
    /// Seconds over which CPU time at rest is measured
    #[arg(long, default_value_t = 30)]
    rest: u64,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let plan = measure::Plan {
        single: cli.single,
        burst: cli.burst,
        resting: cli.resting,
        rest: Duration::from_secs(cli.rest),
    };
    let Some(file) = &cli.kubeconfig else {
        return simulated::run(&plan);
    };
    let pid = cli.agent_pid.context("--agent-pid is missing")?;
    let cgroup = cli.cpu_cgroup.clone();
    threads.block_on(async {
        let world: World = Seeded::new(0, 1);
        let measurement = Measurement {
            client: client(file.clone(), &world)?,
            node: cli.node.clone(),
            image: cli.image.clone(),
            alone: (cli.runtime.as_deref())
                .map(|endpoint| Alone::new(endpoint, &cli.image, &cli.cgroup_parent))
                .transpose()?,
            agent: Agent::new(move || {
                Ok(Usage {
                    cpu: cpu_of_process(pid)?,
                    memory: memory_of(&[pid])?.context("memory is measured on Linux only")?,
                    all: cgroup.as_deref().map(|cgroup| everything(cgroup, pid)).transpose()?,
                })
            }),
        };
        measurement.run(&plan).await
    })
}

/// The usage of the agent, the runtime, their helpers and the pods.
fn everything(cgroup: &Path, agent: u32) -> anyhow::Result<AllUsage> {
    let nanoseconds = std::fs::read_to_string(cgroup.join("cpuacct.usage"))?.trim().parse()?;
    Ok(AllUsage {
        cpu: Duration::from_nanos(nanoseconds),
        memory: shared_memory_of(&processes_like(agent)?)?,
    })
}

fn client(file: PathBuf, world: &World) -> anyhow::Result<Client> {
    let target =
        Target::from_kubeconfig(&file).map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
    let registry = Arc::new(metrics::Registry::new(metrics::Options::default()));
    let transport = transport::transport(&target, "bench", &Metrics::new(registry))
        .map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
    Ok(transport::client(&transport, Rate { per_second: -1.0, burst: 0 }, world))
}
