//! One call of a CNI plugin: of a program, or of the plugin in this program.

use crate::steps::step;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::oneshot;

/// The environment variables and the standard input of a call.
#[derive(Debug, Clone)]
pub struct PluginCall {
    pub variables: Vec<(&'static str, OsString)>,
    pub input: Vec<u8>,
}

impl PluginCall {
    /// A variable that is text.
    pub fn variable(&self, name: &str) -> Option<String> {
        let found = self.variables.iter().find(|it| it.0 == name)?;
        found.1.to_str().map(str::to_owned)
    }
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub struct PluginOutput {
    /// Whether the exit status is zero.
    pub is_success: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// A plugin that is part of this program.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInPlugin {
    /// The type by which configurations name it.
    pub kind: &'static str,
    /// Answers a call. It may block, and may enter other network namespaces: it has a thread of its own.
    pub call: fn(&PluginCall) -> io::Result<PluginOutput>,
}

/// A thread that is waited for when this is dropped. A call that is given up is thus complete before the next one for
/// the same pod begins.
struct CallThread(Option<JoinHandle<()>>);

impl Drop for CallThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // a panic is the missing answer
            let _ = thread.join();
        }
    }
}

/// Calls the plugin of this program.
pub async fn call_built_in(plugin: BuiltInPlugin, call: PluginCall) -> io::Result<PluginOutput> {
    step("call the built-in network plugin", Path::new(plugin.kind));
    let (sender, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name(plugin.kind.to_owned());
    let thread = thread.spawn(move || drop(sender.send((plugin.call)(&call))))?;
    let _thread = CallThread(Some(thread));
    answer.await.unwrap_or_else(|_| Err(io::Error::other("it ended without an answer")))
}

/// Runs the program of a plugin.
pub async fn call_program(program: &Path, call: PluginCall) -> io::Result<PluginOutput> {
    step("call a network plugin", program);
    let mut child = Command::new(program)
        .envs(call.variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // a plugin that does not read its input says why it failed
        let _ = stdin.write_all(&call.input).await;
    }
    let output = child.wait_with_output().await?;
    Ok(PluginOutput { is_success: output.status.success(), stdout: output.stdout, stderr: output.stderr })
}
