//! Handlers of a RuntimeClass: external OCI runtimes (runc, crun, youki), by the links of a folder.
//!
//! A link has the name of a handler and leads to the program of the runtime. The folder is read for each sandbox, whose
//! record then has the program.

use super::monitor_client::failed;
use super::record::SandboxRecord;
use super::spec::{OciContainer, OciRuntime};
use super::state::{Container, Sandbox};
use crate::RuntimeError;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// The program of a handler. The empty name is the embedded runtime.
pub fn find(folder: &Path, handler: &str) -> Result<Option<PathBuf>, RuntimeError> {
    if handler.is_empty() {
        return Ok(None);
    }
    let is_name = !handler.starts_with('.') && !handler.contains('/');
    let program = if is_name { std::fs::canonicalize(folder.join(handler)).ok() } else { None };
    let program = program.filter(|it| it.is_file());
    program.map(Some).ok_or_else(|| {
        failed(format!("failed to get sandbox runtime: no runtime for {handler:?} is configured"))
    })
}

/// The external runtime of a sandbox, with its state beside the pod's socket.
pub fn runtime_of(program: PathBuf, run: &Path) -> OciRuntime {
    OciRuntime { program, root: run.join("oci") }
}

/// A container for the external runtime of its sandbox, if it has one.
pub fn oci_container(sandbox: &SandboxRecord, container: &Container) -> Option<OciContainer> {
    let runtime = sandbox.oci.clone()?;
    let record = container.record.lock();
    Some(OciContainer {
        runtime,
        id: record.id.clone(),
        bundle: container.directory.clone(),
        cgroup: record.cgroup.clone(),
        ..OciContainer::default()
    })
}

/// Removes the state of a container that has ended from its external runtime.
pub async fn delete(sandbox: &Sandbox, id: &str) -> Result<(), RuntimeError> {
    let Some(runtime) = sandbox.record.lock().oci.clone() else { return Ok(()) };
    // its state is gone with the sockets when the machine was started again
    if !runtime.root.join(id).exists() {
        return Ok(());
    }
    let output = Command::from(runtime.delete(id))
        .output()
        .await
        .map_err(|why| failed(format!("{}: {why}", runtime.program.display())))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(failed(format!("failed to delete container {id:?}: {}", text.trim())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_the_name_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, "").unwrap();
        std::os::unix::fs::symlink(&program, folder.path().join("runc")).unwrap();
        std::fs::create_dir(folder.path().join("directory")).unwrap();
        let find = |handler: &str| find(folder.path(), handler).map_err(|why| why.message);
        assert_eq!((find(""), find("runc")), (Ok(None), Ok(Some(program))));
        for name in ["other", "../runc", ".", "..", "directory", "/bin/sh"] {
            let expected = format!("failed to get sandbox runtime: no runtime for {name:?} is configured");
            assert_eq!(find(name), Err(expected));
        }
    }
}
