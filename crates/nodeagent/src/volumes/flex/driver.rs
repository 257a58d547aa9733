//! The programs of FlexVolume drivers.
//!
//! A program says once what it can do, and again after it has changed.

use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The longest answer.
const MAX_ANSWER: u64 = 1 << 20;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("no volume plugin matched")]
    NoDriver,
    #[error("Not supported")]
    NotSupported,
    #[error("{0}")]
    Failed(String),
}

/// What a program can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub attaches: bool,
    /// Whether the agent gives its volumes to the group of the pod.
    pub takes_group: bool,
}

/// See the module.
pub struct FlexDrivers {
    directory: PathBuf,
    /// By program, with the time of its last change.
    initialized: Mutex<HashMap<PathBuf, (SystemTime, Capabilities)>>,
}

impl FlexDrivers {
    pub fn new(directory: &Path) -> Self {
        FlexDrivers { directory: directory.to_owned(), initialized: Mutex::default() }
    }

    /// The program of a driver such as `vendor/driver`.
    pub fn program(&self, driver: &str) -> Result<PathBuf, CallError> {
        let name = driver.rsplit('/').next().unwrap_or_default();
        let is_name = |part: &str| !part.is_empty() && !part.starts_with('.');
        let program = self.directory.join(driver.replace('/', "~")).join(name);
        match driver.split('/').all(is_name) && program.is_file() {
            true => Ok(program),
            false => Err(CallError::NoDriver),
        }
    }

    pub async fn capabilities(&self, driver: &str) -> Result<Capabilities, CallError> {
        let program = self.program(driver)?;
        let failed = |why: std::io::Error| CallError::Failed(outbound::io_text(&why));
        let changed = std::fs::metadata(&program).and_then(|it| it.modified()).map_err(failed)?;
        if let Some((at, capabilities)) = self.initialized.lock().get(&program)
            && *at == changed
        {
            return Ok(*capabilities);
        }
        let answer = run(&program, &["init"]).await?;
        let all = member(&answer, "capabilities");
        let can = |name: &str| all.and_then(|all| member(all, name)?.as_bool()).unwrap_or(true);
        let capabilities = Capabilities { attaches: can("attach"), takes_group: can("fsGroup") };
        self.initialized.lock().insert(program, (changed, capabilities));
        Ok(capabilities)
    }

    pub async fn call(&self, driver: &str, arguments: &[&str]) -> Result<Value, CallError> {
        run(&self.program(driver)?, arguments).await
    }
}

/// A member of an object, whatever the case of its name.
fn member<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Runs a program; the first argument is the command.
async fn run(program: &Path, arguments: &[&str]) -> Result<Value, CallError> {
    let command = arguments.first().copied().unwrap_or_default();
    let failed = |why: std::io::Error| CallError::Failed(outbound::io_text(&why));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take();
    let finish = async {
        let mut answer = Vec::new();
        if let Some(output) = output {
            output.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        }
        Ok::<_, std::io::Error>((answer, child.wait().await?))
    };
    let finished = env::io::timeout(TIMEOUT, finish).await;
    let (answer, status) = finished.map_err(|_| CallError::Failed("timeout".to_owned()))?.map_err(failed)?;
    let answer = parse(command, &answer)?;
    match status.success() {
        true => Ok(answer),
        // it says that it succeeded, and its status that it did not
        false => Err(CallError::Failed(status.to_string())),
    }
}

fn parse(command: &str, answer: &[u8]) -> Result<Value, CallError> {
    let answer: Value = serde_json::from_slice(answer).map_err(|why| CallError::Failed(why.to_string()))?;
    let text = |name: &str| member(&answer, name).and_then(Value::as_str).unwrap_or_default();
    match text("status") {
        "Success" => Ok(answer),
        "Not supported" => Err(CallError::NotSupported),
        status => Err(CallError::Failed(format!(
            "{command} command failed, status: {status}, reason: {}",
            text("message")
        ))),
    }
}
