//! The process of a server that is killed and started again, on one port and one data directory.

use anyhow::{Context, bail};
use client::Client;
use outbound::{Target, Transport};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// The longest start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What a server prints when it is ready.
const READY: &str = "is ready on https://";

/// See the module. It does not outlive this value.
pub struct ServerProcess {
    binary: PathBuf,
    directory: PathBuf,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
    /// The sum of all starts, and their number.
    pub starts: (Duration, u32),
    /// How many starts were killed before the server was ready.
    pub killed_starts: u32,
}

impl ServerProcess {
    /// A server that is not started yet; its data, kubeconfig and log go to the directory.
    pub fn new(binary: &Path, directory: &Path, arguments: Vec<String>) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (binary, directory) = (binary.to_owned(), directory.to_owned());
        let (child, starts, killed_starts) = (None, Default::default(), 0);
        Ok(ServerProcess { binary, directory, port, arguments, child, starts, killed_starts })
    }

    /// Starts the server, and returns when it is ready.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        let mut lines = self.spawn()?;
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        match line.context("the server was not ready in time")?? {
            Some(line) if line.contains(READY) => {}
            line => bail!(
                "the server did not start: {}; see {}/server.log",
                line.unwrap_or_default(),
                self.directory.display()
            ),
        }
        self.starts.0 += begin.elapsed();
        self.starts.1 += 1;
        // without a reader the server would stop at a full pipe
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(())
    }

    /// Starts the server and kills it at a moment, which may be one at which it is ready: then it is no killed start. One
    /// that ends by itself is an error.
    pub async fn start_and_kill(&mut self, moment: Duration) -> anyhow::Result<()> {
        let mut lines = self.spawn()?;
        let is_early = match tokio::time::timeout(moment, lines.next_line()).await {
            Err(_) => true,
            Ok(Ok(Some(line))) if line.contains(READY) => false,
            Ok(line) => {
                let line = line?.unwrap_or_default();
                bail!("the server ended: {line}; see {}/server.log", self.directory.display())
            }
        };
        self.killed_starts += u32::from(is_early);
        self.kill().await
    }

    /// How long a start takes, once there was one.
    pub fn mean_start(&self) -> Option<Duration> {
        self.starts.0.checked_div(self.starts.1)
    }

    /// Starts the process; its first line of output says that it is ready.
    fn spawn(&mut self) -> anyhow::Result<Lines<BufReader<ChildStdout>>> {
        let log = File::options().create(true).append(true).open(self.directory.join("server.log"))?;
        let mut command = Command::new(&self.binary);
        command
            .args(["up", "--components", "apiserver", "--secure-port", &self.port.to_string(), "--data-dir"])
            .arg(self.directory.join("data"))
            .args(&self.arguments)
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.binary.display()))?;
        let output = child.stdout.take().context("the output of the server is not there")?;
        self.child = Some(child);
        Ok(BufReader::new(output).lines())
    }

    /// Kills the server, as a power switch would kill the process but not the machine.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// A client of the administrator, with connections of its own.
    pub fn client(&self) -> anyhow::Result<Client> {
        let target = Target::from_kubeconfig(&self.directory.join("data/admin.kubeconfig"))?;
        Ok(Client::new(Transport::new(&target, "prove")?))
    }
}
