//! A run: clients and watchers on a server that is killed and started again, and the check of what they saw.

use crate::check::{Violation, check};
use crate::history::{Call, History, Operation, Order, Outcome};
use crate::load::{Collection, END, Loader, Watcher};
use crate::report::Report;
use crate::server::ServerProcess;
use anyhow::Context;
use env::{Seeded, World};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long watches may take to their end.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Load after the last start: long enough for a bookmark, which comes before a watch ends.
const LAST: Duration = Duration::from_secs(9);

/// The number of kills and clients of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub binary: PathBuf,
    pub seed: u64,
    pub kills: u32,
    pub loaders: u32,
    pub watchers: u32,
    /// The longest time between a start and the next kill.
    pub longest_life: Duration,
    /// Whether secrets are encrypted at rest.
    pub is_encrypted: bool,
}

/// Runs the plan in a new directory.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let directory = tempfile::tempdir()?;
    let mut arguments = Vec::new();
    if plan.is_encrypted {
        let file = directory.path().join("encryption.yaml");
        std::fs::write(&file, ENCRYPTION)?;
        arguments.push(format!("--encryption-provider-config={}", file.display()));
    }
    let mut server = ServerProcess::new(&plan.binary, directory.path(), arguments)?;
    let result = run_in(plan, &mut server).await;
    server.kill().await?;
    result.with_context(|| format!("{}, seed {}", log_end(directory.path()), plan.seed))
}

/// One key, for the test alone.
const ENCRYPTION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps, notes.proof.example.com]
  providers:
  - aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
";

fn log_end(directory: &Path) -> String {
    let log = std::fs::read_to_string(directory.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().rev().take(5).collect();
    format!("the log of the server ends with {lines:?}")
}

/// The clients of one collection.
struct Crew {
    collection: Collection,
    loaders: JoinSet<Vec<Operation>>,
    watchers: JoinSet<anyhow::Result<crate::history::Watch>>,
}

async fn run_in(plan: &Plan, server: &mut ServerProcess) -> anyhow::Result<Report> {
    let begin = Instant::now();
    server.start().await?;
    let admin = server.client()?;
    let collections = [Collection::config_maps(), Collection::secrets(), Collection::notes(&admin).await?];
    let random: World = Seeded::new(0, plan.seed);
    let order = Arc::new(Order::default());
    let [load_is_over, all_is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let mut crews = Vec::new();
    for collection in collections {
        let start = collection.empty_version(&admin).await?;
        let mut watchers = JoinSet::new();
        for id in 0..plan.watchers {
            // connections of several lengths: short ones are resumed often
            let timeout = 10 + u64::from(id) * 30;
            let watcher =
                Watcher { id, client: server.client()?, collection: collection.clone(), start, timeout };
            let is_over = all_is_over.clone();
            watchers.spawn(watcher.run(move || is_over.load(Ordering::SeqCst)));
        }
        let mut loaders = JoinSet::new();
        for id in 0..plan.loaders {
            let random: World = Seeded::new(0, env::random_u64(&random));
            let loader = Loader::new(id, server.client()?, collection.clone(), order.clone(), random);
            let is_over = load_is_over.clone();
            loaders.spawn(loader.run(move || is_over.load(Ordering::SeqCst)));
        }
        crews.push(Crew { collection, loaders, watchers });
    }
    for _ in 0..plan.kills {
        let longest = u64::try_from(plan.longest_life.as_millis()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(Duration::from_millis(env::random_u64(&random) % longest)).await;
        server.kill().await?;
        server.start().await?;
    }
    tokio::time::sleep(LAST).await;
    load_is_over.store(true, Ordering::SeqCst);
    let mut report = Report::new(plan.seed, plan.kills);
    for crew in &mut crews {
        let mut history = History::default();
        while let Some(operations) = crew.loaders.join_next().await {
            history.operations.extend(operations?);
        }
        history.operations.push(end(&admin, &crew.collection, &order).await?);
        let watches = tokio::time::timeout(END_TIMEOUT, async {
            let mut watches = Vec::new();
            while let Some(watch) = crew.watchers.join_next().await {
                watches.push(watch??);
            }
            anyhow::Ok(watches)
        });
        let violations = match watches.await {
            Ok(watches) => {
                history.watches = watches?;
                check(&history)
            }
            Err(_) => vec![Violation {
                rule: "watches are complete",
                detail: format!("a watch of {} did not see its end", crew.collection.path),
            }],
        };
        report.add(&crew.collection.path, &history, violations);
    }
    all_is_over.store(true, Ordering::SeqCst);
    report.took = begin.elapsed();
    report.starts = server.starts;
    Ok(report)
}

/// Creates the object after which watches end.
async fn end(admin: &client::Client, collection: &Collection, order: &Order) -> anyhow::Result<Operation> {
    let (name, value) = (END.to_owned(), END.to_owned());
    let begin = order.draw();
    let object = collection.create(admin, &name, &value).await?;
    let outcome = Outcome::Object(object);
    Ok(Operation { client: u32::MAX, call: Call::Create { name, value }, begin, end: order.draw(), outcome })
}
