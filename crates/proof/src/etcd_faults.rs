//! A run on an etcd: two servers, clients on both, and members that are killed, paused, cut off from the others and lose
//! their leadership, history that is compacted, servers that are killed, a quorum that is lost, and a quota that is reached.

use crate::crashes::{kill_starts, log_end};
use crate::crew::Crews;
use crate::encryption;
use crate::etcd::{EtcdCluster, MEMBERS};
use crate::load::{Collection, send};
use crate::report::Report;
use crate::server::ServerProcess;
use anyhow::{Context, ensure};
use client::Client;
use env::{Seeded, World};
use http::Method;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time until writes are taken again after a fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// The bytes of an object that fills the quota.
const LARGE: usize = 900_000;
/// More objects than fit into the quota.
const MOST_FILLERS: u32 = 200;
/// What a refused write says of the alarm, and not of a namespace.
const NO_SPACE: &str = "the etcd has reached its quota";

/// The servers, faults and clients of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub pintle: PathBuf,
    pub etcd: PathBuf,
    pub seed: u64,
    pub faults: u32,
    pub loaders: u32,
    pub watchers: u32,
    /// Whether objects are encrypted at rest.
    pub is_encrypted: bool,
}

/// Runs the plan in a new directory.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let directory = tempfile::tempdir()?;
    let result = run_in(plan, directory.path()).await;
    let ends = ["a", "b"].map(|it| log_end(&directory.path().join(it)));
    result.with_context(|| format!("{}; {}; seed {}", ends[0], ends[1], plan.seed))
}

async fn run_in(plan: &Plan, directory: &Path) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let etcd = EtcdCluster::start(&plan.etcd, directory).await?;
    let mut servers = Vec::new();
    for name in ["a", "b"] {
        let own = directory.join(name);
        std::fs::create_dir(&own)?;
        let mut arguments = vec![format!("--etcd-servers={}", etcd.servers())];
        if plan.is_encrypted {
            arguments.push(encryption::configure(directory)?);
        }
        if name != "a" {
            let token = directory.join("a/data/pki/cluster.token");
            arguments.push(format!("--cluster-token-file={}", token.display()));
        }
        let mut server = ServerProcess::new(&plan.pintle, &own, arguments)?;
        server.start().await?;
        servers.push(server);
    }
    let random: World = Seeded::new(0, plan.seed);
    let both: Vec<&ServerProcess> = servers.iter().collect();
    // padding would reach the quota before its time
    let crews = Crews::start(&both, plan.loaders, plan.watchers, false, &random).await?;
    let admin = crews.admin().clone();
    let mut faults = Faults { etcd, servers, random, counts: BTreeMap::new() };
    for _ in 0..plan.faults {
        faults.inject().await?;
        writes_are_taken(&admin).await?;
    }
    faults.reach_quota(&admin).await?;
    let counts = faults.counts.iter().map(|(fault, count)| format!("{count} × {fault}"));
    let killed_starts: u32 = faults.servers.iter().map(|it| it.killed_starts).sum();
    let counts = counts.chain([format!("{killed_starts} × a start of a server killed")]);
    let mut report = Report::new(plan.seed, counts.collect::<Vec<_>>().join(", "));
    crews.finish(&mut report).await?;
    report.took = begin.elapsed();
    for server in &mut faults.servers {
        report.starts.0 += server.starts.0;
        report.starts.1 += server.starts.1;
        server.kill().await?;
    }
    Ok(report)
}

struct Faults {
    etcd: EtcdCluster,
    servers: Vec<ServerProcess>,
    random: World,
    counts: BTreeMap<&'static str, u32>,
}

impl Faults {
    fn below(&self, limit: u64) -> u64 {
        env::random_u64(&self.random) % limit
    }

    async fn pause(&self, longest_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.below(longest_ms))).await;
    }

    /// One fault, and its end.
    async fn inject(&mut self) -> anyhow::Result<()> {
        self.pause(500).await;
        let at = self.below(MEMBERS as u64) as usize;
        let fault = match self.below(9) {
            0 => {
                self.etcd.kill_member(at).await?;
                self.pause(1500).await;
                self.etcd.start_member(at)?;
                "a member killed"
            }
            1 => {
                let leader = self.etcd.leader().await?;
                self.etcd.kill_member(leader).await?;
                self.pause(1500).await;
                self.etcd.start_member(leader)?;
                "the leader killed"
            }
            2 => {
                self.pause_members(&[at]).await?;
                "a member paused"
            }
            3 => {
                self.pause_members(&[at, (at + 1) % MEMBERS]).await?;
                "the quorum paused"
            }
            4 => {
                // the leader may change by itself while it is moved
                let _ = self.etcd.move_leader().await;
                "the leader moved"
            }
            5 => {
                self.etcd.leader().await?;
                self.etcd.compact().await?;
                "history compacted"
            }
            6 => {
                self.etcd.leader().await?;
                self.etcd.cut_off(at).await?;
                self.pause(3000).await;
                self.etcd.restore_links();
                "a member cut off"
            }
            7 => {
                // it goes on as if it led, until it learns that the others have chosen another
                let leader = self.etcd.leader().await?;
                self.etcd.cut_off(leader).await?;
                self.pause(3000).await;
                self.etcd.restore_links();
                "the leader cut off"
            }
            _ => {
                let server = &mut self.servers[at % 2];
                server.kill().await?;
                kill_starts(server, &self.random).await?;
                server.start().await?;
                "a server killed"
            }
        };
        *self.counts.entry(fault).or_default() += 1;
        Ok(())
    }

    async fn pause_members(&self, members: &[usize]) -> anyhow::Result<()> {
        for at in members {
            self.etcd.pause_member(*at, true)?;
        }
        self.pause(3000).await;
        for at in members {
            self.etcd.pause_member(*at, false)?;
        }
        Ok(())
    }

    /// Fills the etcd until it refuses writes; reads go on. Then gives the space back.
    async fn reach_quota(&mut self, admin: &Client) -> anyhow::Result<()> {
        self.etcd.leader().await?;
        let fillers = "/api/v1/namespaces/kube-public/configmaps";
        let mut count = 0;
        let refusal = loop {
            ensure!(count < MOST_FILLERS, "the quota is not reached by {count} objects");
            let object =
                json!({"metadata": {"name": format!("filler-{count}")}, "data": {"k": "x".repeat(LARGE)}});
            match send(admin, Method::POST, fillers, "application/json", Some(&object)).await {
                Ok(_) => count += 1,
                Err(error) if self.etcd.has_no_space().await? => break error,
                // a write that waits for a leader
                Err(_) => drop(self.etcd.leader().await?),
            }
        };
        let message = refusal.message();
        ensure!(message.contains(NO_SPACE), "the refusal does not say why: {message}");
        // objects are read and deleted as before
        Collection::config_maps().version(admin).await.context("reads without space")?;
        for at in 0..count {
            let path = format!("{fillers}/filler-{at}");
            send(admin, Method::DELETE, &path, "", None).await.context("a deletion without space")?;
        }
        self.etcd.reclaim_space().await?;
        writes_are_taken(admin).await?;
        *self.counts.entry("the quota reached").or_default() += 1;
        Ok(())
    }
}

/// Waits until a write of the administrator succeeds.
async fn writes_are_taken(admin: &Client) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {"seen": "yes"}}});
    let path = "/api/v1/namespaces/kube-public";
    let written = async {
        while send(admin, Method::PATCH, path, "application/merge-patch+json", Some(&patch)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(RECOVERY_TIMEOUT, written).await.context("no write is taken after a fault")
}
