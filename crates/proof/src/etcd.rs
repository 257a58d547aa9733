//! Three members of an etcd as processes, and the faults that they can have.
//!
//! Members call each other through [`PeerLinks`]. Maintenance goes over the JSON form of etcd's own API. Members do not outlive this value.

use crate::peer_links::PeerLinks;
use anyhow::{Context, ensure};
use outbound::{HttpClient, Limits, Target};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The number of members; two of them are a quorum.
pub const MEMBERS: usize = 3;
/// The bytes of a member's database at which writes are refused.
const QUOTA: u64 = 24 << 20;
/// The longest start of a cluster, and the longest wait for a leader.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two looks at a member.
const PAUSE: Duration = Duration::from_millis(50);

struct Member {
    child: Option<Child>,
    client_url: String,
    /// Where it is called by others, and where it listens.
    peer_url: String,
    own_peer_url: String,
    api: HttpClient,
}

/// See the module.
pub struct EtcdCluster {
    binary: PathBuf,
    directory: PathBuf,
    members: Vec<Member>,
    links: PeerLinks,
}

fn free_url() -> anyhow::Result<String> {
    Ok(format!("http://{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?))
}

impl EtcdCluster {
    /// Starts all members, and returns when they have a leader.
    pub async fn start(binary: &Path, directory: &Path) -> anyhow::Result<Self> {
        let (mut members, links) = (Vec::new(), PeerLinks::new());
        for at in 0..MEMBERS {
            let (client_url, own_peer_url) = (free_url()?, free_url()?);
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let peer_url = format!("http://{}", listener.local_addr()?);
            links.lead(listener, at, own_peer_url.trim_start_matches("http://").to_owned())?;
            let limits = Limits { time: Duration::from_secs(10), ..Limits::default() };
            let api = HttpClient::new(&Target { url: client_url.clone(), ..Target::default() }, limits)?;
            members.push(Member { child: None, client_url, peer_url, own_peer_url, api });
        }
        let (binary, directory) = (binary.to_owned(), directory.to_owned());
        let mut cluster = EtcdCluster { binary, directory, members, links };
        for at in 0..MEMBERS {
            cluster.start_member(at)?;
        }
        cluster.leader().await?;
        Ok(cluster)
    }

    /// The value of `--etcd-servers`.
    pub fn servers(&self) -> String {
        self.members.iter().map(|it| &*it.client_url).collect::<Vec<_>>().join(",")
    }

    /// Starts a member that does not run, with its data.
    pub fn start_member(&mut self, at: usize) -> anyhow::Result<()> {
        let peers = self.members.iter().enumerate().map(|(at, it)| format!("m{at}={}", it.peer_url));
        let peers = peers.collect::<Vec<_>>().join(",");
        let log = File::options().create(true).append(true).open(self.directory.join("etcd.log"))?;
        let member = &mut self.members[at];
        let mut command = Command::new(&self.binary);
        command
            .args(["--name", &format!("m{at}"), "--data-dir"])
            .arg(self.directory.join(format!("m{at}")))
            .args(["--listen-client-urls", &member.client_url, "--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.own_peer_url])
            .args(["--initial-advertise-peer-urls", &member.peer_url])
            .args(["--initial-cluster", &peers, "--quota-backend-bytes", &QUOTA.to_string()])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap"])
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.binary.display()))?;
        member.child = Some(child);
        Ok(())
    }

    pub async fn kill_member(&mut self, at: usize) -> anyhow::Result<()> {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Stops a member as a machine that hangs does, or lets it go on.
    pub fn pause_member(&self, at: usize, is_paused: bool) -> anyhow::Result<()> {
        let id = self.members[at].child.as_ref().and_then(Child::id).context("the member does not run")?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("no process")?;
        kill_process(pid, if is_paused { Signal::STOP } else { Signal::CONT })?;
        Ok(())
    }

    /// Cuts a member off from the others; clients reach it as before.
    pub async fn cut_off(&self, at: usize) -> anyhow::Result<()> {
        let status = self.call(at, "maintenance/status", &json!({})).await?;
        let id = status["header"]["member_id"].as_str().and_then(|it| it.parse().ok());
        self.links.cut_off(at, id.context("a member has no id")?);
        Ok(())
    }

    /// Lets all members reach each other.
    pub fn restore_links(&self) {
        self.links.restore();
    }

    /// The member that leads, once all that run agree on one.
    pub async fn leader(&self) -> anyhow::Result<usize> {
        let found = async {
            loop {
                if let Some(at) = self.agreed_leader().await {
                    return at;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(TIMEOUT, found).await.context("the etcd has no leader")
    }

    async fn agreed_leader(&self) -> Option<usize> {
        let mut ids = Vec::new();
        for at in 0..MEMBERS {
            let status = self.call(at, "maintenance/status", &json!({})).await.ok()?;
            ids.push((status["header"]["member_id"].clone(), status["leader"].clone()));
        }
        let leader = &ids[0].1;
        let is_agreed = leader.is_string() && ids.iter().all(|(_, it)| it == leader);
        ids.iter().position(|(id, _)| id == leader).filter(|_| is_agreed)
    }

    /// Makes another member the leader.
    pub async fn move_leader(&self) -> anyhow::Result<()> {
        let from = self.leader().await?;
        let to = (from + 1) % MEMBERS;
        let status = self.call(to, "maintenance/status", &json!({})).await?;
        let target = json!({"targetID": status["header"]["member_id"]});
        self.call(from, "maintenance/transfer-leadership", &target).await.map(drop)
    }

    /// Removes all history before the newest revision.
    pub async fn compact(&self) -> anyhow::Result<()> {
        let status = self.call(0, "maintenance/status", &json!({})).await?;
        let revision = &status["header"]["revision"];
        self.call(0, "kv/compaction", &json!({"revision": revision, "physical": true})).await.map(drop)
    }

    /// Whether writes are refused because the quota is reached.
    pub async fn has_no_space(&self) -> anyhow::Result<bool> {
        Ok(!self.space_alarms().await?.is_empty())
    }

    /// The members that have reached their quota.
    async fn space_alarms(&self) -> anyhow::Result<Vec<Value>> {
        let alarms = self.call(0, "maintenance/alarm", &json!({"action": "GET"})).await?;
        let alarms = alarms["alarms"].as_array().cloned().unwrap_or_default();
        Ok(alarms
            .into_iter()
            .filter(|it| it["alarm"] == "NOSPACE")
            .map(|it| it["memberID"].clone())
            .collect())
    }

    /// Gives space back and takes writes again, as an operator does after the quota was reached.
    pub async fn reclaim_space(&self) -> anyhow::Result<()> {
        self.compact().await?;
        for at in 0..MEMBERS {
            self.call(at, "maintenance/defragment", &json!({})).await?;
        }
        for member in self.space_alarms().await? {
            let alarm = json!({"action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": member});
            self.call(0, "maintenance/alarm", &alarm).await?;
        }
        ensure!(!self.has_no_space().await?, "the alarm is raised again");
        Ok(())
    }

    async fn call(&self, at: usize, method: &str, request: &Value) -> anyhow::Result<Value> {
        let member = &self.members[at];
        let response = member.api.post(&format!("/v3/{method}"), request.to_string().into()).await?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        ensure!(response.status.is_success(), "{method}: {text}");
        Ok(serde_json::from_str(&text)?)
    }
}
