//! The programs of FlexVolume drivers.
//!
//! A program says once what it can do, and again after it has changed.

use super::source::FlexSource;
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
pub struct DriverCapabilities {
    pub attaches: bool,
    /// Whether the agent gives its volumes to the group of the pod.
    pub takes_group: bool,
    /// Whether the agent may give files of its volumes SELinux labels.
    pub takes_labels: bool,
    /// Whether the agent measures its volumes.
    pub has_metrics: bool,
    /// Whether the file system on a volume that has grown must grow, too.
    pub resizes_filesystem: bool,
}

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct DriverAnswer(Value);

impl DriverAnswer {
    /// The path of the device, or nothing.
    pub fn device(&self) -> &str {
        member(&self.0, "device").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn is_attached(&self) -> bool {
        member(&self.0, "attached").and_then(Value::as_bool).unwrap_or_default()
    }

    fn capabilities(&self) -> DriverCapabilities {
        let all = member(&self.0, "capabilities");
        let can = |name: &str, default| {
            all.and_then(|all| member(all, name)).and_then(Value::as_bool).unwrap_or(default)
        };
        DriverCapabilities {
            attaches: can("attach", true),
            takes_group: can("fsGroup", true),
            takes_labels: can("selinuxRelabel", true),
            has_metrics: can("supportsMetrics", false),
            resizes_filesystem: can("requiresFSResize", true),
        }
    }
}

/// See the module.
pub struct FlexDrivers {
    directory: PathBuf,
    /// By program, with the time of its last change.
    initialized: Mutex<HashMap<PathBuf, (SystemTime, DriverCapabilities)>>,
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

    /// What the present program of a driver has said already.
    pub fn known_capabilities(&self, driver: &str) -> Option<DriverCapabilities> {
        let program = self.program(driver).ok()?;
        let changed = changed_at(&program).ok()?;
        let initialized = self.initialized.lock();
        initialized.get(&program).filter(|(at, _)| *at == changed).map(|(_, capabilities)| *capabilities)
    }

    pub async fn capabilities(&self, driver: &str) -> Result<DriverCapabilities, CallError> {
        if let Some(known) = self.known_capabilities(driver) {
            return Ok(known);
        }
        let program = self.program(driver)?;
        let changed = changed_at(&program)?;
        let capabilities = run(&program, &["init"]).await?.capabilities();
        self.initialized.lock().insert(program, (changed, capabilities));
        Ok(capabilities)
    }

    pub async fn call(&self, driver: &str, arguments: &[&str]) -> Result<DriverAnswer, CallError> {
        run(&self.program(driver)?, arguments).await
    }

    /// Asks for the name of a volume. As with upstream, a failure counts and the name does not.
    pub async fn check_name(&self, source: &FlexSource, options: &str) -> Result<(), CallError> {
        match self.call(&source.driver, &["getvolumename", options]).await {
            Ok(_) | Err(CallError::NotSupported) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Attaches a volume to a node, and returns the path of the device.
    pub async fn attach(&self, source: &FlexSource, node: &str) -> Result<String, CallError> {
        let options = source.options(Default::default()).map_err(CallError::Failed)?;
        self.check_name(source, &options).await?;
        match self.call(&source.driver, &["attach", &options, node]).await {
            Ok(answer) => Ok(answer.device().to_owned()),
            Err(CallError::NotSupported) => Ok(String::new()),
            Err(why) => Err(why),
        }
    }

    /// Detaches a volume from a node.
    pub async fn detach(&self, driver: &str, volume: &str, node: &str) -> Result<(), CallError> {
        match self.call(driver, &["detach", volume, node]).await {
            Ok(_) | Err(CallError::NotSupported) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Makes a volume larger; sizes are in bytes. A program that cannot do it has nothing to do.
    pub async fn expand(&self, source: &FlexSource, to: i64, from: i64) -> Result<(), CallError> {
        let options = source.options(Default::default()).map_err(CallError::Failed)?;
        // where devices are mounted, below a directory that a controller does not have
        let directory = format!("{}/mounts/{}", source.driver, source.name);
        let sizes = [to, from].map(|it| it.to_string());
        let arguments = ["expandvolume", &options, &directory, &sizes[0], &sizes[1]];
        match self.call(&source.driver, &arguments).await {
            Ok(_) | Err(CallError::NotSupported) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Whether a volume is attached to a node; `None` if the program cannot say.
    pub async fn is_attached(&self, source: &FlexSource, node: &str) -> Result<Option<bool>, CallError> {
        let options = source.options(Default::default()).map_err(CallError::Failed)?;
        match self.call(&source.driver, &["isattached", &options, node]).await {
            Ok(answer) => Ok(Some(answer.is_attached())),
            Err(CallError::NotSupported) => Ok(None),
            Err(why) => Err(why),
        }
    }
}

fn changed_at(program: &Path) -> Result<SystemTime, CallError> {
    let changed = std::fs::metadata(program).and_then(|it| it.modified());
    changed.map_err(|why| CallError::Failed(outbound::io_text(&why)))
}

/// A member of an object, whatever the case of its name.
fn member<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Runs a program; the first argument is the command.
async fn run(program: &Path, arguments: &[&str]) -> Result<DriverAnswer, CallError> {
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
        true => Ok(DriverAnswer(answer)),
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
