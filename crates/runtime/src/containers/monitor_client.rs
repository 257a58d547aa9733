//! The agent's side of a monitor: starting one, and calling it.

use super::message::{Inbox, send, wait_for};
use super::program::{ENVIRONMENT, Program};
use super::protocol::{MonitorConfig, MonitorStart, Reply, Request};
use crate::steps::step;
use crate::{RuntimeCode, RuntimeError};
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::task::spawn_blocking;

/// The name by which this program is called to become a monitor.
pub const MONITOR_COMMAND: &str = "runtime-monitor";

pub fn failed(message: impl Into<String>) -> RuntimeError {
    RuntimeError::new(RuntimeCode::Unknown, message)
}

/// For `map_err`: an error that names the action.
pub fn during(action: &str) -> impl FnOnce(io::Error) -> RuntimeError {
    let action = action.to_owned();
    move |why| failed(format!("failed to {action}: {why}"))
}

/// A monitor, by its socket.
#[derive(Debug, Clone)]
pub struct MonitorClient {
    socket: PathBuf,
}

/// The answers of a connection that stays open.
pub struct Replies {
    stream: BufReader<UnixStream>,
}

impl Replies {
    /// The next answer; `None` when the monitor is gone.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = Vec::new();
        let count = self.stream.read_until(b'\n', &mut line).await.ok()?;
        if count == 0 { None } else { serde_json::from_slice(&line).ok() }
    }
}

/// Starts a monitor, which goes on when this process ends. Returns its process id.
pub async fn start(program: &Program, config: &MonitorConfig) -> Result<i32, RuntimeError> {
    let text = serde_json::to_vec(config).map_err(|why| failed(why.to_string()))?;
    step("start a monitor", &config.socket);
    // the monitor itself changes its directory: with one here, the whole agent would be forked
    let mut child = Command::new(program.path())
        .arg0(program.name())
        .arg(MONITOR_COMMAND)
        .env_clear()
        .envs(ENVIRONMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(during("start the monitor of a pod"))?;
    step("configure a monitor", &config.socket);
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&text).await.map_err(during("start the monitor of a pod"))?;
    }
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut line).await;
        read.map_err(during("start the monitor of a pod"))?;
    }
    step("take the answer of a monitor", &config.socket);
    let answer = serde_json::from_str(&line);
    // it is reaped when it ends; after a restart that is the task of the machine's first process
    tokio::spawn(async move { child.wait().await });
    match answer {
        Ok(MonitorStart::Ready { pid }) => Ok(pid),
        Ok(MonitorStart::Failed { message }) => Err(failed(format!("failed to start the pod: {message}"))),
        Err(_) => Err(failed("the monitor of the pod ended at its start")),
    }
}

impl MonitorClient {
    pub fn new(socket: &Path) -> Self {
        MonitorClient { socket: socket.to_owned() }
    }

    /// Sends a request and waits for its answer. The connection ends with it.
    pub async fn call(&self, request: Request) -> Result<Reply, RuntimeError> {
        let (reply, _, _) = self.open(request, Vec::new()).await?;
        Ok(reply)
    }

    /// Sends a request with descriptors; more answers may come.
    pub async fn open(
        &self,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Reply, Vec<OwnedFd>, Replies), RuntimeError> {
        let socket = self.socket.clone();
        let answered = spawn_blocking(move || exchange(&socket, &request, &descriptors));
        let (reply, descriptors, stream) = answered
            .await
            .map_err(|why| failed(why.to_string()))?
            .map_err(during("call the monitor of a pod"))?;
        if let Reply::Failed { message } = reply {
            return Err(failed(message));
        }
        let stream = UnixStream::from_std(stream).map_err(during("call the monitor of a pod"))?;
        Ok((reply, descriptors, Replies { stream: BufReader::new(stream) }))
    }
}

fn exchange(
    socket: &Path,
    request: &Request,
    descriptors: &[OwnedFd],
) -> io::Result<(Reply, Vec<OwnedFd>, BlockingStream)> {
    step("call a monitor", socket);
    let stream = BlockingStream::connect(socket)?;
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    send(&stream, request, &descriptors)?;
    let mut inbox = Inbox::of_one_message();
    let (reply, descriptors) = wait_for(&stream, &mut inbox)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    step("take the answer of a monitor", socket);
    stream.set_nonblocking(true)?;
    Ok((reply, descriptors, stream))
}
