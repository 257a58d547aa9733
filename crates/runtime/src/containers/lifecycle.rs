//! Containers: made, started, stopped, removed.

use super::devices::device_rules;
use super::handlers;
use super::init::users::{self, LookupError};
use super::monitor_client::{during, failed};
use super::overlay::Layers;
use super::process_spec::{pid_mode, process, root, signal_number, sort_mounts};
use super::protocol::{Reply, Request, StartRequest};
use super::record::{ContainerRecord, Durability};
use super::recovery::kill_processes;
use super::sandboxes::unimplemented;
use super::spec::{Overlay, ProcessSpec, RootSpec, UserSpec};
use super::state::{Container, Sandbox, State, blocking, container_cgroup, image_error, not_found};
use super::volumes;
use crate::images::root_dir::{RootDir, remove_tree, tree_usage};
use crate::images::{Image, flatten};
use crate::steps::step;
use crate::{
    ContainerChange, ContainerConfig, ContainerInfo, ContainerState, ContainerStats, ContainerStatus,
    FilesystemStats, LinuxResources, NamespaceMode, RuntimeCode, RuntimeError, SandboxConfig,
};
use rustix::fs::CWD;
use rustix::mount::{UnmountFlags, unmount};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SIGKILL: i32 = 9;
/// The bit of the capability to make device nodes.
const MKNOD: u64 = 1 << 27;
/// Attempts to remove a control group whose processes are about to end; a busy machine takes seconds for that.
const REMOVALS: u32 = 500;
/// The time before another look at what is about to end.
const END_DELAY: Duration = Duration::from_millis(20);

impl State {
    pub async fn create_container(
        self: &Arc<Self>,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<String, RuntimeError> {
        let sandbox = self.sandbox(sandbox_id)?;
        let images = self.images.clone();
        let name = config.image.clone();
        // its layers stay until the record of the container names them
        let (in_use, found) = blocking(move || {
            let in_use = images.begin_use().map_err(|why| image_error(&why))?;
            Ok((in_use, images.find(&name).map_err(|why| image_error(&why))?))
        })
        .await?;
        let image = found.ok_or_else(|| not_found("image", &config.image))?;
        let id = self.new_id();
        let mut spec = process(config, sandbox_config, &image.parsed.config).map_err(|why| {
            let message =
                format!("failed to generate container {id:?} spec: failed to generate spec: {}", why.message);
            RuntimeError::new(why.code, message)
        })?;
        // the agent has raised its own
        spec.open_files = process_start::initial_open_files();
        let files =
            [("resolv.conf", "/etc/resolv.conf"), ("hostname", "/etc/hostname"), ("hosts", "/etc/hosts")];
        let files = files.map(|(name, target)| (sandbox.directory.join(name), target));
        let shm = match sandbox_config.linux.security.namespaces.ipc {
            NamespaceMode::Node => PathBuf::from("/dev/shm"),
            _ => sandbox.run.join("shm"),
        };
        let shm = Some(shm).filter(|it| it.exists());
        let filesystem = root(config, &files, shm, &self.cgroups.controllers)?;
        let directory = sandbox.directory.join("containers").join(&id);
        let cgroup = container_cgroup(sandbox_config, &id);
        let stop_signal = signal_number(&image.parsed.config.config.stop_signal);
        let (state, made, group) = (self.clone(), directory.clone(), cgroup.clone());
        let resources = config.linux.resources.clone();
        let (layers, spec, in_use) = blocking({
            let image = image.clone();
            move || {
                let prepared = state.prepare(&made, &image, filesystem, &group, &resources, &mut spec);
                if prepared.is_err() {
                    // leftovers are removed with the sandbox
                    let _ = state.cgroups.remove(&group);
                    let _ = remove_tree(CWD, made.as_os_str().as_bytes(), 0);
                }
                prepared.map(|layers| (layers, spec, in_use))
            }
        })
        .await?;
        let log = match config.log_path.is_empty() {
            true => Default::default(),
            false => Path::new(&sandbox_config.log_directory).join(&config.log_path),
        };
        let record = ContainerRecord {
            id: id.clone(),
            sandbox_id: sandbox_id.to_owned(),
            config: config.clone(),
            image_id: image.id.to_string(),
            image_name: image.tags.first().cloned().unwrap_or_else(|| image.id.to_string()),
            image_ref: image.digests.first().cloned().unwrap_or_else(|| image.id.to_string()),
            layers,
            process: spec,
            pid: pid_mode(&config.linux.security),
            cgroup,
            stop_signal,
            log,
            created_at: self.now(),
            ..ContainerRecord::default()
        };
        let container = self.add_container(directory, record);
        container.save(Durability::Unsynced)?;
        drop(in_use);
        self.announce(&container, ContainerChange::Created);
        Ok(id)
    }

    /// Makes the directories and the control group of a container.
    fn prepare(
        &self,
        directory: &Path,
        image: &Image,
        mut filesystem: RootSpec,
        cgroup: &str,
        resources: &LinuxResources,
        spec: &mut ProcessSpec,
    ) -> Result<Vec<crate::images::Digest>, RuntimeError> {
        for mount in filesystem.mounts.iter().filter(|it| !it.source.exists()) {
            std::fs::create_dir_all(&mount.source)
                .map_err(during(&format!("mkdir {:?}", mount.source.display().to_string())))?;
        }
        let layers = self.images.unpacked_layers(&image.parsed).map_err(|why| image_error(&why))?;
        for name in ["upper", "work", "root"] {
            step("make a folder of a container", directory.join(name));
            durable_file::directory(&directory.join(name), 0o755).map_err(during("make a container"))?;
        }
        filesystem.directory = directory.join("root");
        let paths: Vec<_> = layers.iter().map(|it| self.images.layers.files(it)).collect();
        match self.has_overlay && !paths.is_empty() {
            true => {
                let (upper, work) = (directory.join("upper"), directory.join("work"));
                filesystem.overlay = Some(Overlay { layers: paths, upper, work });
            }
            false => flatten(&paths, &filesystem.directory).map_err(during("copy the image"))?,
        }
        follow_image(directory, image, &mut filesystem, &spec.user)?;
        spec.cgroups = self.cgroups.create(cgroup).map_err(during("make the control group"))?;
        self.cgroups.apply(cgroup, resources)?;
        if !filesystem.is_privileged {
            let restricted = self.cgroups.restrict_devices(cgroup, &device_rules(&filesystem));
            filesystem.has_restricted_devices = restricted.map_err(during("restrict devices"))?;
            if !filesystem.has_restricted_devices {
                // without the right to make nodes there are only those of /dev
                spec.capabilities &= !MKNOD;
            }
        }
        spec.root = Some(filesystem);
        Ok(layers)
    }

    pub async fn start_container(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let container = self.container(id)?;
        let sandbox = self.sandbox(&container.record.lock().sandbox_id.clone())?;
        let oci = handlers::oci_container(&sandbox.record.lock(), &container);
        let request = {
            let record = container.record.lock();
            if record.started_at > 0 || !record.start_error.is_empty() {
                let message = format!("container {id:?} is not in created state");
                return Err(RuntimeError::new(RuntimeCode::FailedPrecondition, message));
            }
            StartRequest {
                container: id.to_owned(),
                process: record.process.clone(),
                pid: record.pid.clone(),
                log: record.log.clone(),
                exit_file: container.exit_file(),
                has_stdin: record.config.stdin,
                has_stdin_once: record.config.stdin_once,
                oci,
            }
        };
        container.is_found.store(false, Ordering::Relaxed);
        let answered = sandbox.monitor.call(Request::Start(Box::new(request))).await;
        let outcome = match answered {
            Ok(Reply::Started { pid, started_at }) => {
                let mut record = container.record.lock();
                (record.process_id, record.started_at) = (pid, started_at);
                Ok(())
            }
            Ok(_) => Err(failed("the monitor of the pod gave another answer")),
            Err(why) => {
                let message = format!("unable to start container process: {}", why.message);
                let now = self.now();
                let mut record = container.record.lock();
                record.start_error = message.clone();
                record.exit =
                    Some(super::protocol::ExitRecord { code: 128, finished_at: now, is_oom: false });
                drop(record);
                container.ended.send_replace(true);
                Err(failed(message))
            }
        };
        container.save(Durability::Synced)?;
        let change = if outcome.is_ok() { ContainerChange::Started } else { ContainerChange::Stopped };
        self.announce(&container, change);
        outcome
    }

    pub async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let (is_started, is_ended, signal, sandbox) = {
            let record = container.record.lock();
            (record.started_at > 0, record.exit.is_some(), record.stop_signal, record.sandbox_id.clone())
        };
        if is_ended {
            return Ok(());
        }
        if !is_started {
            return match container.is_found.load(Ordering::Relaxed) {
                true => self.end_start(&container, &*self.sandbox(&sandbox)?).await,
                false => Ok(()),
            };
        }
        let sandbox = self.sandbox(&sandbox)?;
        if !grace.is_zero() {
            self.send_signal(&sandbox, id, signal).await?;
            if env::timeout(&self.world, grace, container.wait()).await.is_ok() {
                return Ok(());
            }
        }
        self.send_signal(&sandbox, id, SIGKILL).await?;
        container.wait().await;
        Ok(())
    }

    /// Ends a start that an agent requested before it was killed. The monitor has read that request before this one.
    async fn end_start(&self, container: &Container, sandbox: &Sandbox) -> Result<(), RuntimeError> {
        let id = container.record.lock().id.clone();
        loop {
            let request = Request::Signal { container: id.clone(), signal: SIGKILL };
            match sandbox.monitor.call(request).await {
                Ok(Reply::Ended { .. }) => break,
                // the process is about to end, or an external runtime still makes it
                Ok(_) => env::sleep(&self.world, END_DELAY).await,
                Err(_) if sandbox.record.lock().monitor_directory().is_none() => {
                    kill_processes(container);
                    break;
                }
                Err(why) => return Err(why),
            }
        }
        container.load_start();
        container.load_exit();
        self.lose_container(container);
        Ok(())
    }

    async fn send_signal(&self, sandbox: &Sandbox, id: &str, signal: i32) -> Result<(), RuntimeError> {
        let request = Request::Signal { container: id.to_owned(), signal };
        if let Reply::Ended { .. } = sandbox.monitor.call(request).await?
            && let Ok(container) = self.container(id)
        {
            container.load_exit();
            self.lose_container(&container);
        }
        Ok(())
    }

    pub async fn remove_container(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        self.stop_container(id, Duration::ZERO).await?;
        let (cgroup, sandbox) = {
            let record = container.record.lock();
            (record.cgroup.clone(), record.sandbox_id.clone())
        };
        handlers::delete(&*self.sandbox(&sandbox)?, id).await?;
        // that of a process that was killed while an external runtime made the container
        let _ = unmount(container.directory.join("root"), UnmountFlags::DETACH);
        for attempt in 1..=REMOVALS {
            match self.cgroups.remove(&cgroup) {
                Ok(()) => break,
                Err(why) if attempt == REMOVALS => return Err(during("remove the control group")(why)),
                Err(_) => env::sleep(&self.world, END_DELAY).await,
            }
        }
        let directory = container.directory.clone();
        container.end_writing();
        blocking(move || {
            // without its record the rest is removed by the next agent, if this one is killed here
            step("remove the record of a container", &directory);
            match std::fs::remove_file(directory.join("container.json")) {
                Err(why) if why.kind() != ErrorKind::NotFound => {
                    return Err(during("remove a container")(why));
                }
                _ => {}
            }
            remove_tree(CWD, directory.as_os_str().as_bytes(), 0).map_err(during("remove a container"))
        })
        .await?;
        self.containers.lock().remove(id);
        self.announce(&container, ContainerChange::Deleted);
        Ok(())
    }

    pub fn list_containers(&self, uid: Option<&str>) -> Vec<ContainerInfo> {
        let all: Vec<_> = self.containers.lock().values().cloned().collect();
        let is_of_pod = |record: &ContainerRecord| {
            uid.is_none() || record.config.labels.get(names::node::POD_UID).map(String::as_str) == uid
        };
        let info = |container: &Arc<Container>| {
            let record = container.record.lock();
            is_of_pod(&record).then(|| ContainerInfo {
                id: record.id.clone(),
                sandbox_id: record.sandbox_id.clone(),
                name: record.config.name.clone(),
                attempt: record.config.attempt,
                image: record.config.image.clone(),
                image_ref: record.image_ref.clone(),
                state: container_state(&record),
                created_at: record.created_at,
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            })
        };
        all.iter().filter_map(info).collect()
    }

    pub fn container_status(&self, id: &str) -> Result<ContainerStatus, RuntimeError> {
        let container = self.container(id)?;
        let record = container.record.lock();
        let exit = record.exit.unwrap_or_default();
        let reason = match (&record.exit, record.start_error.is_empty()) {
            (None, _) => "",
            (Some(_), false) => "StartError",
            (Some(_), true) if record.is_lost => "Unknown",
            (Some(exit), true) if exit.is_oom => "OOMKilled",
            (Some(exit), true) if exit.code == 0 => "Completed",
            _ => "Error",
        };
        Ok(ContainerStatus {
            id: record.id.clone(),
            name: record.config.name.clone(),
            attempt: record.config.attempt,
            state: container_state(&record),
            created_at: record.created_at,
            started_at: record.started_at,
            finished_at: exit.finished_at,
            exit_code: exit.code,
            image: record.image_name.clone(),
            image_ref: record.image_ref.clone(),
            reason: reason.to_owned(),
            message: record.start_error.clone(),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            mounts: record.config.mounts.clone(),
            log_path: record.log.display().to_string(),
            resources: Some(record.config.linux.resources.clone()),
        })
    }

    pub fn update_resources(&self, id: &str, resources: &LinuxResources) -> Result<(), RuntimeError> {
        let container = self.container(id)?;
        let cgroup = container.record.lock().cgroup.clone();
        self.cgroups.apply(&cgroup, resources)?;
        container.record.lock().config.linux.resources.update(resources);
        container.save(Durability::Unsynced)
    }

    pub async fn reopen_log(&self, id: &str) -> Result<(), RuntimeError> {
        let sandbox = self.container(id)?.record.lock().sandbox_id.clone();
        let request = Request::ReopenLog { container: id.to_owned() };
        self.sandbox(&sandbox)?.monitor.call(request).await.map(drop)
    }

    pub fn container_stats(&self) -> Vec<ContainerStats> {
        let all: Vec<_> = self.containers.lock().values().cloned().collect();
        let timestamp = self.now();
        let stats = |container: &Arc<Container>| {
            let record = container.record.lock().clone();
            if container_state(&record) != ContainerState::Running {
                return None;
            }
            let (cpu, memory) = self.cgroups.usage(&record.cgroup, timestamp);
            let upper = container.directory.join(if self.has_overlay { "upper" } else { "root" });
            let usage = tree_usage(&upper).ok();
            Some(ContainerStats {
                id: record.id,
                name: record.config.name,
                attempt: record.config.attempt,
                labels: record.config.labels,
                cpu: Some(cpu),
                memory: Some(memory),
                writable_layer: Some(FilesystemStats {
                    timestamp,
                    mountpoint: self.options.root.display().to_string(),
                    used_bytes: usage.map(|it| it.0),
                    inodes_used: usage.map(|it| it.1),
                }),
            })
        };
        all.iter().filter_map(stats).collect()
    }

    pub fn checkpoint(&self, id: &str) -> Result<(), RuntimeError> {
        self.container(id)?;
        Err(unimplemented("a checkpoint"))
    }
}

/// Checks the user and makes the volumes of a container by the content of its image.
fn follow_image(
    directory: &Path,
    image: &Image,
    filesystem: &mut RootSpec,
    user: &UserSpec,
) -> Result<(), RuntimeError> {
    let declared = &image.parsed.config.config.volumes;
    if declared.is_empty() && !users::has_name(user) {
        return Ok(());
    }
    let place = &filesystem.directory;
    let content = match &filesystem.overlay {
        Some(overlay) => Layers { paths: &overlay.layers, place }.open(),
        None => RootDir::open(place),
    };
    let content = content.map_err(during("open the image"))?;
    users::resolve_inside(user, &content).map_err(|why| {
        failed(match why {
            LookupError::User(_) => "failed to create container: no users found",
            LookupError::Group(_) => "failed to create container: no groups found",
        })
    })?;
    let declared = declared.keys().map(String::as_str);
    let made = volumes::make(&directory.join("volumes"), declared, &filesystem.mounts, &content);
    filesystem.mounts.extend(made.map_err(during("make the volumes of the image"))?);
    sort_mounts(&mut filesystem.mounts);
    Ok(())
}

fn container_state(record: &ContainerRecord) -> ContainerState {
    match (&record.exit, record.started_at) {
        (Some(_), _) => ContainerState::Exited,
        (None, 0) => ContainerState::Created,
        (None, _) => ContainerState::Running,
    }
}
