//! Measures the scheduler with the API server in the same process and durable writes: pods per second, CPU time per
//! pod, memory.
//!
//! ```text
//! schedule --nodes 5000 --pods 2000 basic spread anti
//! schedule --nodes 5000 --apart basic     # the scheduler on a thread of its own, to tell its CPU time
//! schedule --nodes 5000 --engine anti     # the scheduling cycle alone
//! schedule --memory --pods 100000         # a scheduler that starts beside so many pods on nodes
//! ```
//!
//! Always true: every mode starts with an empty store, and time runs from the first creation to the last binding that a
//! watch has seen. CPU time runs a second longer, for the events; that of the creators counts too.

mod cluster;
mod engine;
mod templates;
mod usage;

use anyhow::{Context, ensure};
use bench::print_line;
use clap::Parser;
use client::Client;
use cluster::{Cluster, administrator, count_bound, create, create_all, scheduler_user};
use scheduler::driver::{self, Options};
use serde_json::json;
use std::time::{Duration, Instant};
use templates::{Mode, NAMESPACE, PRIORITIES, path};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use usage::{CpuTime, memory};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The nodes of which preemptors take one each.
const STORM: usize = 1000;
/// How long after the last binding its events are written at the latest.
const EVENTS: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Cli {
    #[arg(default_value = "basic")]
    modes: Vec<Mode>,
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Pods that are scheduled, and assigned ones with --memory
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// Clients that create pods at once
    #[arg(long, default_value_t = 8)]
    creators: usize,
    /// Run the scheduler and the creators on threads of their own, which hand requests to those of the server
    #[arg(long)]
    apart: bool,
    /// Measure the scheduling cycle alone
    #[arg(long)]
    engine: bool,
    /// Measure the memory of a scheduler beside assigned pods
    #[arg(long)]
    memory: bool,
    /// The longest that a mode may take, in seconds
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    for mode in &cli.modes {
        match (cli.engine, cli.memory) {
            (true, _) => {
                let run = engine::run(*mode, cli.nodes, cli.pods)?;
                let (placed, each) = (run.placed, run.each);
                print_line!(
                    "{} nodes, {}: {placed} of {} pods, {each:?} of CPU each",
                    cli.nodes,
                    mode.name(),
                    cli.pods
                );
            }
            (false, true) => measure_memory(&cli)?,
            (false, false) => measure(&cli, *mode)?,
        }
    }
    Ok(())
}

fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).thread_stack_size(8 << 20).enable_all();
    builder.build().context("cannot start threads")
}

/// The runtimes of the components: one for all, or one each.
struct Runtimes {
    server: Runtime,
    scheduler: Option<Runtime>,
    creators: Option<Runtime>,
}

impl Runtimes {
    fn new(is_apart: bool) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let own = |name: &str| is_apart.then(|| runtime(name, 1)).transpose();
        Ok(Runtimes {
            server: runtime("server", cores)?,
            scheduler: own("scheduler")?,
            creators: own("creators")?,
        })
    }

    /// A client for a component that may have threads of its own.
    fn client(&self, cluster: &Cluster, user: auth::User, agent: &str) -> Client {
        let _entered = self.server.enter();
        match self.scheduler {
            Some(_) => cluster.client(user, agent),
            None => cluster.direct_client(user, agent),
        }
    }
}

/// Makes the namespace, the nodes and what the mode needs besides.
async fn prepare(cli: &Cli, client: &Client) -> anyhow::Result<()> {
    create(client, &path("namespaces"), &json!({"metadata": {"name": NAMESPACE}})).await?;
    for (name, value) in PRIORITIES {
        let class = json!({"metadata": {"name": name}, "value": value});
        create(client, &path("priorityclasses"), &class).await?;
    }
    create(client, &path("replicasets"), &templates::replica_set()).await?;
    create_all(client, &path("nodes"), cli.nodes, cli.creators, |nth| templates::node(nth, STORM)).await
}

fn measure(cli: &Cli, mode: Mode) -> anyhow::Result<()> {
    let runtimes = Runtimes::new(cli.apart)?;
    let cluster = runtimes.server.block_on(Cluster::start())?;
    let admin = runtimes.client(&cluster, administrator(), "bench");
    runtimes.server.block_on(prepare(cli, &admin))?;
    if mode == Mode::Preempt {
        let low = STORM.min(cli.nodes);
        runtimes.server.block_on(create_all(&admin, &path("pods"), low, cli.creators, templates::low_pod))?;
    }
    let client = runtimes.client(&cluster, scheduler_user(), "kube-scheduler");
    let work = driver::run(client, cluster.world.clone(), Options::new("bench"));
    let scheduler = runtimes.scheduler.as_ref().unwrap_or(&runtimes.server).spawn(work);
    let creators = runtimes.creators.as_ref().unwrap_or(&runtimes.server);
    let memory_before = memory()?;
    let (seconds, before, after) = creators.block_on(schedule(cli, mode, admin))?;
    let (total, by_thread) = after.per_pod(&before, cli.pods);
    let by_thread: Vec<String> = by_thread.iter().map(|(name, time)| format!("{name} {time:.3}")).collect();
    print_line!(
        "{} nodes, {}: {} pods in {seconds:.2} s, {:.0} per s; CPU {total:.3} ms per pod ({}); memory {memory_before:.0} to {:.0} MB",
        cli.nodes,
        mode.name(),
        cli.pods,
        cli.pods as f64 / seconds,
        by_thread.join(", "),
        memory()?
    );
    scheduler.abort();
    runtimes.server.block_on(cluster.stop());
    Ok(())
}

/// Creates the pods and waits until all are bound. Returns the seconds, and the CPU time before and after.
async fn schedule(cli: &Cli, mode: Mode, admin: Client) -> anyhow::Result<(f64, CpuTime, CpuTime)> {
    // a first pod, so that the caches of the scheduler are complete
    let label = format!("bench-{}", mode.name());
    let mut bound = watch_bound(&admin, &label);
    create(&admin, &path("pods"), &templates::pod(mode, cli.pods)).await?;
    wait_for(&mut bound, 1, cli.timeout).await?;
    tokio::time::sleep(EVENTS).await;
    let (before, start) = (CpuTime::now()?, Instant::now());
    let pods = path("pods");
    create_all(&admin, &pods, cli.pods, cli.creators, move |nth| templates::pod(mode, nth)).await?;
    wait_for(&mut bound, cli.pods + 1, cli.timeout).await?;
    let seconds = start.elapsed().as_secs_f64();
    tokio::time::sleep(EVENTS).await;
    Ok((seconds, before, CpuTime::now()?))
}

/// The number of pods of a label that have a node.
fn watch_bound(client: &Client, label: &str) -> watch::Receiver<usize> {
    let (sender, receiver) = watch::channel(0);
    let counting = count_bound(client.clone(), label.to_owned(), sender);
    tokio::spawn(async move {
        if let Err(why) = counting.await {
            print_line!("cannot count the bound pods: {why:#}");
        }
    });
    receiver
}

async fn wait_for(bound: &mut watch::Receiver<usize>, count: usize, timeout: u64) -> anyhow::Result<()> {
    let waited = tokio::time::timeout(Duration::from_secs(timeout), bound.wait_for(|bound| *bound >= count));
    let is_complete = waited.await.is_ok_and(|ended| ended.is_ok());
    let bound = *bound.borrow();
    ensure!(is_complete, "{bound} of {count} pods were bound within {timeout} s");
    Ok(())
}

fn measure_memory(cli: &Cli) -> anyhow::Result<()> {
    let runtimes = Runtimes::new(false)?;
    let cluster = runtimes.server.block_on(Cluster::start())?;
    let admin = runtimes.client(&cluster, administrator(), "bench");
    let nodes = cli.nodes;
    runtimes.server.block_on(async {
        prepare(cli, &admin).await?;
        create_all(&admin, &path("pods"), cli.pods, cli.creators, move |nth| {
            templates::assigned_pod(nth, nodes)
        })
        .await?;
        tokio::time::sleep(EVENTS).await;
        let before = memory()?;
        let client = runtimes.client(&cluster, scheduler_user(), "kube-scheduler");
        let running = tokio::spawn(driver::run(client, cluster.world.clone(), Options::new("bench")));
        let mut bound = watch_bound(&admin, "bench-basic");
        create(&admin, &path("pods"), &templates::pod(Mode::Basic, 0)).await?;
        wait_for(&mut bound, 1, cli.timeout).await?;
        tokio::time::sleep(EVENTS * 10).await;
        let after = memory()?;
        print_line!(
            "{} nodes, {} pods: {before:.0} MB without the scheduler, {:.0} MB more with it",
            cli.nodes,
            cli.pods,
            after - before
        );
        running.abort();
        anyhow::Ok(())
    })?;
    runtimes.server.block_on(cluster.stop());
    Ok(())
}
