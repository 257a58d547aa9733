//! Processes, pods and files of a node on this machine.

use crate::cni_plugin;
use crate::files;
use crate::join::NodeDirectory;
use anyhow::Context as _;
use env::World;
use nodeagent::assembly::{embedded_runtime, runtime_endpoint};
use nodeagent::filesystem::{Filesystem, LinuxFilesystem, unless_absent};
use nodeagent::runtime::Runtime;
use nodeagent::runtime::cri::CriRuntime;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_POLL: Duration = Duration::from_millis(100);
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(120);

/// The volumes whose folders are on this machine.
pub fn local_volumes(node: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(node.join("local-volumes")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Stops the process that runs the node, if there is one.
pub async fn stop(directory: &NodeDirectory, world: &World) -> anyhow::Result<()> {
    let end = world.elapsed() + STOP_TIMEOUT;
    let mut is_signaled = false;
    loop {
        // the lock, not the file with the number, says whether the process lives
        if files::lock_directory(&directory.data_dir).is_ok() {
            return Ok(());
        }
        let text = files::read(&directory.pid_file())?.unwrap_or_default();
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| {
            format!(
                "the process that uses {} is not known: stop it, and run this again",
                directory.data_dir.display()
            )
        })?;
        if !is_signaled {
            kill_process(pid, Signal::TERM).context("cannot stop the node")?;
            is_signaled = true;
        }
        anyhow::ensure!(
            world.elapsed() < end,
            "the node does not stop (process {text}): stop its service, and run this again"
        );
        env::sleep(world, STOP_POLL).await;
    }
}

/// Stops and removes the pods that are left: those of daemon sets and of files.
pub async fn stop_pods(
    directory: &NodeDirectory,
    endpoint: Option<&str>,
    world: &World,
) -> anyhow::Result<()> {
    // a node that has used the embedded runtime has its folder
    if embedded_runtime::root(&directory.node()).exists() {
        let runtime = embedded_runtime::open(&directory.node(), Some(cni_plugin::BUILT_IN), world)
            .map_err(|why| anyhow::anyhow!("cannot stop the pods that are left: {why}"))?;
        remove_sandboxes(&runtime).await?;
    }
    let Some(endpoint) = endpoint.map(str::to_owned).or_else(runtime_endpoint) else { return Ok(()) };
    if endpoint == embedded_runtime::ENDPOINT {
        return Ok(());
    }
    let runtime = CriRuntime::new(&endpoint, None, Some(RUNTIME_TIMEOUT), None)
        .map_err(|why| anyhow::anyhow!("cannot call the container runtime at {endpoint}: {why}"))?;
    remove_sandboxes(&runtime).await
}

async fn remove_sandboxes(runtime: &dyn Runtime) -> anyhow::Result<()> {
    let failed =
        |why: nodeagent::runtime::RuntimeError| anyhow::anyhow!("cannot stop the pods that are left: {why}");
    for sandbox in runtime.sandboxes(None).await.map_err(failed)? {
        runtime.stop_sandbox(&sandbox.id).await.map_err(failed)?;
        runtime.remove_sandbox(&sandbox.id).await.map_err(failed)?;
    }
    Ok(())
}

/// Ends the mounts of the node, and removes its files.
pub fn remove_files(directory: &NodeDirectory) -> anyhow::Result<()> {
    let node = directory.node();
    let filesystem = LinuxFilesystem;
    for point in filesystem.mount_points(&node)?.iter().rev() {
        filesystem.unmount(point).with_context(|| format!("cannot unmount {}", point.display()))?;
    }
    let parent = File::open(&directory.data_dir)?;
    unless_absent(filesystem.remove_tree_at(parent.as_fd(), OsStr::new("node")))
        .with_context(|| format!("cannot remove {}", node.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_removed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("precious"), "x").unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir_all(data.join("node/local-volumes/pvc-1")).unwrap();
        symlink(&outside, data.join("node/link")).unwrap();
        let directory = NodeDirectory::open(Some(&data)).unwrap();
        assert_eq!(local_volumes(&directory.node()), ["pvc-1"]);
        remove_files(&directory).unwrap();
        remove_files(&directory).unwrap();
        assert!(!directory.node().exists() && outside.join("precious").exists());
        assert!(local_volumes(&directory.node()).is_empty());
    }

    #[tokio::test]
    async fn a_node_that_does_not_run_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let world = crate::world::real().unwrap();
        let directory = NodeDirectory::open(Some(folder.path())).unwrap();
        stop(&directory, &world).await.unwrap();
    }
}
