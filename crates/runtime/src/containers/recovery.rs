//! Sandboxes and containers of an agent before: found, cleared away where they were not completed, or lost.

use super::cgroup::processes;
use super::protocol::ExitRecord;
use super::record::{ContainerRecord, Durability, SandboxRecord, folders, read};
use super::state::{Container, Sandbox, State, container_cgroup, remove_sandbox_folders};
use crate::images::root_dir::remove_tree;
use crate::{ContainerChange, SandboxConfig};
use rustix::fs::CWD;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl State {
    /// Finds the sandboxes and containers of an agent before.
    pub fn load(self: &Arc<Self>) {
        for directory in folders(&self.options.root.join("sandboxes")) {
            match read::<SandboxRecord>(&directory.join("sandbox.json")) {
                Ok(Some(record)) => self.load_sandbox(&directory, record),
                // the agent ended before the sandbox was more than folders
                Ok(None) => {
                    let id = directory.file_name().and_then(|it| it.to_str()).unwrap_or_default();
                    self.remove_folders(&self.run_directory(id), &directory);
                }
                Err(why) => {
                    tracing::error!(%why, directory = %directory.display(), "a sandbox cannot be read")
                }
            }
        }
    }

    fn load_sandbox(self: &Arc<Self>, directory: &Path, record: SandboxRecord) {
        for directory in folders(&directory.join("containers")) {
            match read::<ContainerRecord>(&directory.join("container.json")) {
                Ok(Some(record)) => {
                    let container = self.add_container(directory, record);
                    container.is_found.store(true, Ordering::Relaxed);
                    container.load_start();
                    container.load_exit();
                }
                Ok(None) => self.remove_unfinished(&directory, &record.config),
                Err(why) => {
                    tracing::error!(%why, directory = %directory.display(), "a container cannot be read");
                }
            }
        }
        let is_current = record.boot_id == self.boot_id;
        let sandbox = self.add_sandbox(record);
        match is_current {
            true => self.follow(&sandbox),
            false => self.lose(&sandbox),
        }
    }

    /// Removes the files of a container whose creation was not completed.
    fn remove_unfinished(&self, directory: &Path, sandbox: &SandboxConfig) {
        let id = directory.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        // where older kernels mount an overlay for a moment
        let _ = unmount(directory.join("root"), UnmountFlags::DETACH);
        let removed = self.cgroups.remove(&container_cgroup(sandbox, id));
        let removed = removed.and_then(|()| remove_tree(CWD, directory.as_os_str().as_bytes(), 0));
        if let Err(why) = removed {
            tracing::warn!(%why, id, "an unfinished container cannot be removed");
        }
    }

    /// Removes the folders of a sandbox without processes; an error is logged.
    fn remove_folders(&self, run: &Path, directory: &Path) {
        if let Err(why) = remove_sandbox_folders(run, directory) {
            tracing::warn!(%why, directory = %directory.display(), "an unfinished sandbox cannot be removed");
        }
    }

    /// The monitor of a sandbox is gone, and with it the processes.
    pub fn lose(&self, sandbox: &Sandbox) {
        // a sandbox that was stopped may be about to be removed, with its record
        if std::mem::replace(&mut sandbox.record.lock().is_ready, false) {
            let _ = sandbox.save(Durability::Unsynced);
        }
        for container in self.containers_of(sandbox) {
            container.load_exit();
            self.lose_container(&container);
        }
    }

    /// A container that was started and has no exit ended without its monitor.
    pub fn lose_container(&self, container: &Container) {
        let is_lost = {
            let mut record = container.record.lock();
            let is_lost = record.started_at > 0 && record.exit.is_none();
            if is_lost {
                record.exit = Some(ExitRecord { code: 255, finished_at: self.now(), is_oom: false });
                record.is_lost = true;
            }
            is_lost
        };
        if is_lost {
            kill_processes(container);
            let _ = container.save(Durability::Synced);
            container.ended.send_replace(true);
            self.announce(container, ContainerChange::Stopped);
        }
    }
}

/// Ends the processes of a container whose monitor is gone: those of other users than root do not end with it.
pub fn kill_processes(container: &Container) {
    let files = container.record.lock().process.cgroups.clone();
    for pid in processes(&files).into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
