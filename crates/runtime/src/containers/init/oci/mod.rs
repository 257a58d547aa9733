//! Makes a container, or executes a process in one, by an external OCI runtime.
//!
//! This process calls the runtime and ends; the container's process is then a child of the monitor, which adopts
//! processes. The runtime gets this process's standard streams, which are those of the container. The overlay is mounted on
//! the machine while the runtime makes the container, whose own mounts then hold it.

mod bundle;

use super::failure::during;
use super::rootfs;
use super::users::{ResolvedUser, resolve_inside};
use crate::containers::message::{Inbox, send};
use crate::containers::protocol::InitReply;
use crate::containers::spec::{OciContainer, ProcessSpec, RootSpec};
use crate::images::root_dir::RootDir;
use rustix::mount::{UnmountFlags, unmount};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Before the cause in the messages of runc.
const START_FAILED: &str = "unable to start container process: ";

/// The files of one call, which are removed with it.
struct CallFiles {
    pid: PathBuf,
    log: PathBuf,
    process: PathBuf,
    console: PathBuf,
}

impl CallFiles {
    fn new(oci: &OciContainer) -> Self {
        let call = rustix::process::getpid().as_raw_nonzero();
        let file = |kind: &str| oci.bundle.join(format!("{kind}-{call}"));
        // the path of a socket must be short
        let console = oci.runtime.root.join(format!("{}-{call}", oci.id.get(..16).unwrap_or(&oci.id)));
        CallFiles { pid: file("pid"), log: file("log"), process: file("process"), console }
    }
}

impl Drop for CallFiles {
    fn drop(&mut self) {
        for path in [&self.pid, &self.log, &self.process, &self.console] {
            let _ = fs::remove_file(path);
        }
    }
}

/// See the module. When it returns, the program runs.
pub fn run(oci: &OciContainer, process: &ProcessSpec, control: &OwnedFd) -> Result<(), String> {
    rustix::fs::mkdir(&oci.runtime.root, rustix::fs::Mode::from_raw_mode(0o711))
        .or_else(|why| if why == rustix::io::Errno::EXIST { Ok(()) } else { Err(why) })
        .map_err(during("make the folder of the external runtime"))?;
    // it refuses capabilities that this machine does not give; an embedded container is without them
    let own = rustix::thread::capabilities(None).map_err(during("read capabilities"))?.permitted.bits();
    let process = &ProcessSpec { capabilities: process.capabilities & own, ..process.clone() };
    let files = CallFiles::new(oci);
    let console = match process.tty {
        true => Some(UnixListener::bind(&files.console).map_err(during("listen for a terminal"))?),
        false => None,
    };
    match (&process.root, &oci.running_root) {
        (Some(root), _) => create(oci, process, root, &files)?,
        (None, Some(running)) => exec(oci, process, running, &files)?,
        (None, None) => return Err("the container is not running".to_owned()),
    }
    if let Some(console) = console {
        let terminal = receive_terminal(&console).map_err(during("receive a terminal"))?;
        send(control, &InitReply::Terminal, &[terminal.as_fd()]).map_err(during("answer the monitor"))?;
    }
    let pid = fs::read_to_string(&files.pid).map_err(during("read the number of the process"))?;
    let pid = pid.trim().parse().map_err(during("read the number of the process"))?;
    send(control, &InitReply::Process { pid }, &[]).map_err(during("answer the monitor"))?;
    if process.root.is_some() {
        call(oci, &files, &["start", &oci.id]).inspect_err(|_| delete(oci))?;
    }
    send(control, &InitReply::Ready, &[]).map_err(during("answer the monitor"))
}

fn create(
    oci: &OciContainer,
    process: &ProcessSpec,
    root: &RootSpec,
    files: &CallFiles,
) -> Result<(), String> {
    if root.overlay.is_some() {
        rootfs::mount_root(root)?;
    }
    let created = create_mounted(oci, process, root, files);
    if root.overlay.is_some() {
        unmount(&root.directory, UnmountFlags::DETACH).map_err(during("unmount the root"))?;
    }
    created
}

fn create_mounted(
    oci: &OciContainer,
    process: &ProcessSpec,
    root: &RootSpec,
    files: &CallFiles,
) -> Result<(), String> {
    let inside = RootDir::open(&root.directory).map_err(during("open the root"))?;
    let user = resolve_inside(&process.user, &inside).map_err(|it| it.to_string())?;
    write_json(&oci.bundle.join("config.json"), &bundle::config(oci, process, root, &user)?)?;
    let (bundle, pid) = (oci.bundle.display().to_string(), files.pid.display().to_string());
    let mut arguments = vec!["create", "--bundle", &bundle, "--pid-file", &pid];
    let console = files.console.display().to_string();
    if process.tty {
        arguments.extend(["--console-socket", &console]);
    }
    arguments.push(&oci.id);
    call(oci, files, &arguments).inspect_err(|_| delete(oci))
}

fn exec(oci: &OciContainer, process: &ProcessSpec, running: &Path, files: &CallFiles) -> Result<(), String> {
    let inside = RootDir::open(running).map_err(during("open the root"))?;
    let user: ResolvedUser = resolve_inside(&process.user, &inside).map_err(|it| it.to_string())?;
    write_json(&files.process, &bundle::process(process, &user))?;
    let (spec, pid) = (files.process.display().to_string(), files.pid.display().to_string());
    let mut arguments = vec!["exec", "--detach", "--process", &spec, "--pid-file", &pid];
    let console = files.console.display().to_string();
    if process.tty {
        arguments.extend(["--console-socket", &console]);
    }
    arguments.push(&oci.id);
    call(oci, files, &arguments)
}

fn write_json(path: &Path, value: &Value) -> Result<(), String> {
    fs::write(path, value.to_string()).map_err(during(format_args!("write {}", path.display())))
}

/// Calls the external runtime. An error is the one of its log.
fn call(oci: &OciContainer, files: &CallFiles, arguments: &[&str]) -> Result<(), String> {
    let status = oci
        .runtime
        .command()
        .arg("--log")
        .arg(&files.log)
        .args(["--log-format", "json"])
        .args(arguments)
        .status()
        .map_err(during(oci.runtime.program.display()))?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(&files.log).unwrap_or_default();
    let name = oci.runtime.program.display();
    Err(last_error(&text).unwrap_or_else(|| format!("{name} {} failed: {status}", arguments[0])))
}

/// Removes what a failed call has left; the error is that of the call.
fn delete(oci: &OciContainer) {
    let _ = oci.runtime.delete(&oci.id).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// The last error of a log in JSON lines, without the words that precede the cause.
fn last_error(log: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        level: String,
        msg: String,
    }
    let mut lines = log.lines().filter_map(|it| serde_json::from_str::<Line>(it).ok());
    let message = lines.rfind(|it| it.level == "error")?.msg;
    Some(match message.split_once(START_FAILED) {
        Some((_, cause)) => cause.to_owned(),
        None => message,
    })
}

/// The terminal that the external runtime has sent before it ended.
fn receive_terminal(console: &UnixListener) -> io::Result<OwnedFd> {
    console.set_nonblocking(true)?;
    let (socket, _) = console.accept()?;
    let mut inbox = Inbox::default();
    inbox.receive(&socket)?;
    inbox.take_descriptor().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_the_log() {
        let log = r#"{"level":"warning","msg":"old","time":"x"}
            {"level":"error","msg":"runc create failed: unable to start container process: exec: \"x\": not found","time":"x"}"#;
        assert_eq!(last_error(log).unwrap(), "exec: \"x\": not found");
        assert_eq!(last_error(r#"{"level":"error","msg":"no space"}"#).unwrap(), "no space");
        assert_eq!(last_error("panic: something"), None);
    }
}
