//! The surroundings of pods on this machine: volumes, cgroups, configurations, links to logs.

#[cfg(test)]
mod fault_tests;
pub mod runtime_classes;

use crate::admission::apparmor;
use crate::cgroups::CgroupManager;
use crate::container::config::{ConfigSources, ContainerRequest, container_config};
use crate::container::{NodeFacts, sandbox_config};
use crate::filesystem::{Filesystem, unless_absent};
use crate::logs::{links, rotation};
use crate::objects::ObjectSource;
use crate::objects::cache::ObjectCache;
use crate::pod::events::PodEvents;
use crate::pod::setup::{ConfigError, ContainerInput, PodSetup, Refusal, SetupError};
use crate::resource_managers::ResourceManagers;
use crate::runtime::{ContainerConfig, ContainerStatus, SandboxConfig};
use crate::stats::AgentMetrics;
use crate::volumes::VolumeManager;
use api::core::v1::{Pod, Secret};
use client::Note;
use env::World;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use runtime_classes::RuntimeClasses;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const POD_DIR_MODE: u32 = 0o750;
const LOG_DIR_MODE: u32 = 0o755;

/// See the module.
pub struct MachineSetup {
    pub runtime_classes: RuntimeClasses,
    pub world: World,
    pub facts: RwLock<Arc<NodeFacts>>,
    /// Addresses of the node.
    pub host_ips: watch::Receiver<Vec<String>>,
    pub volumes: VolumeManager,
    pub objects: Arc<ObjectCache>,
    pub cgroups: Arc<CgroupManager>,
    pub events: Arc<dyn PodEvents>,
    pub metrics: AgentMetrics,
    pub managers: Arc<ResourceManagers>,
    /// The flat directory of links to logs.
    pub log_link_dir: PathBuf,
    /// Whether the kernel enforces AppArmor profiles.
    pub has_apparmor: bool,
    /// Whether a pod that has ended keeps its volumes until it is deleted.
    pub keeps_volumes: bool,
}

impl MachineSetup {
    /// The facts with the addresses that the node has now.
    fn facts(&self) -> Arc<NodeFacts> {
        let ips = self.host_ips.borrow().clone();
        let host_ip = ips.first().cloned().unwrap_or_default();
        let current = self.facts.read().clone();
        if current.host_ip == host_ip {
            return current;
        }
        let mut next = (*current).clone();
        next.dns.node_ips = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
        next.host_ip = host_ip;
        let next = Arc::new(next);
        *self.facts.write() = next.clone();
        next
    }

    fn record(&self, pod: &Pod, notes: &[Note]) {
        for note in notes {
            self.events.record(pod, None, note.event_type, note.reason, &note.message);
        }
    }

    fn filesystem(&self) -> &dyn Filesystem {
        &**self.volumes.filesystem()
    }

    /// The log directories of pods, with the uids at the end of their names.
    fn log_dirs(&self) -> Vec<(String, PathBuf)> {
        let entries = std::fs::read_dir(&self.facts().log_dir).into_iter().flatten().flatten();
        let of_pod = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.rsplit_once('_')?.1.to_owned(), entry.path()))
        };
        entries.filter_map(of_pod).collect()
    }

    fn remove_logs(&self, uid: &str) -> std::io::Result<()> {
        for (_, path) in self.log_dirs().into_iter().filter(|(of, _)| of == uid) {
            unless_absent(self.filesystem().remove_dir_all(&path))?;
        }
        Ok(())
    }

    fn log_link(&self, pod: &Pod, container: &str, id: &str) -> PathBuf {
        let meta = &pod.metadata;
        links::link_path(&self.log_link_dir, &meta.name, &meta.namespace, container, id)
    }

    fn log_dir(&self, pod: &Pod) -> PathBuf {
        let meta = &pod.metadata;
        self.facts().pod_log_dir(&meta.namespace, &meta.name, &meta.uid)
    }
}

impl PodSetup for MachineSetup {
    fn refusal(&self, pod: &Pod) -> Option<Refusal> {
        let message = apparmor::refusal(pod, self.has_apparmor)?;
        Some(Refusal { reason: "AppArmor", message })
    }

    fn prepare<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), SetupError>> {
        async move {
            self.objects.register(pod);
            self.runtime_classes.expect(pod);
            let begun = self.world.elapsed();
            let made = self.cgroups.ensure_pod(pod);
            self.metrics.cgroup_handled("create", self.world.elapsed().saturating_sub(begun));
            if let Err(why) = made {
                let note = Note::warning("FailedCreatePodContainer", why);
                return Err(SetupError { notes: vec![note], retry_after: Duration::from_secs(10) });
            }
            let dir = self.facts().pod_dir(&pod.metadata.uid);
            let mut parts = vec![dir.clone()];
            // only for those that have some: on ext4 a new directory costs more than the rest of a pod's preparation
            if !pod.spec.volumes.is_empty() {
                parts.push(dir.join("volumes"));
            }
            for part in parts {
                if let Err(why) = self.filesystem().create_dir_all(&part, POD_DIR_MODE) {
                    let note = Note::warning(
                        "FailedMakePodDataDirectories",
                        format!("error making pod data directories: {why}"),
                    );
                    return Err(SetupError { notes: vec![note], retry_after: Duration::from_secs(10) });
                }
            }
            let mounted = self.volumes.mount_all(pod).await;
            let mounted =
                mounted.map_err(|why| SetupError { notes: why.notes, retry_after: why.retry_after })?;
            self.record(pod, &mounted.notes);
            Ok(())
        }
        .boxed()
    }

    fn next_refresh(&self, pod: &Pod) -> Option<Duration> {
        Some(self.world.elapsed() + self.volumes.next_refresh(&pod.metadata.uid)?)
    }

    fn sandbox<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
        attempt: u32,
    ) -> BoxFuture<'a, Result<SandboxConfig, String>> {
        async move {
            let (config, notes) = sandbox_config(pod, attempt, &self.cgroups.pod_parent(pod), &self.facts())?;
            self.record(pod, &notes);
            let made = self.filesystem().create_dir_all(&self.log_dir(pod), LOG_DIR_MODE);
            made.map_err(|why| format!("failed to create log directory: {why}"))?;
            Ok(config)
        }
        .boxed()
    }

    fn runtime_handler<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<String, String>> {
        self.runtime_classes.handler(pod).boxed()
    }

    fn container<'a>(
        &'a self,
        input: ContainerInput<'a>,
    ) -> BoxFuture<'a, Result<ContainerConfig, ConfigError>> {
        async move {
            let facts = self.facts();
            let volumes = self.volumes.mounts(&input.pod.metadata.uid);
            let resources = self.managers.container_resources(input.pod, &input.spec.container).await;
            let resources =
                resources.map_err(|message| ConfigError { reason: "CreateContainerConfigError", message })?;
            let request = ContainerRequest {
                pod: input.pod,
                container: &input.spec.container,
                restart_count: input.attempt,
                hash: input.hash,
                pod_ips: input.ips,
                image_ref: &input.image.id,
                image: input.image,
                target_id: input.target_id,
                volumes: &volumes,
                resources: &resources,
            };
            let sources = ConfigSources {
                node: &facts,
                objects: &*self.objects,
                filesystem: self.filesystem(),
                world: &self.world,
            };
            match container_config(&request, sources).await {
                Ok((config, notes)) => {
                    self.record(input.pod, &notes);
                    Ok(config)
                }
                Err(why) => Err(ConfigError { reason: why.reason, message: why.message }),
            }
        }
        .boxed()
    }

    fn pull_secrets<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Vec<Arc<Secret>>> {
        async move {
            let mut secrets = Vec::new();
            for reference in &pod.spec.image_pull_secrets {
                match self.objects.secret(&pod.metadata.namespace, &reference.name).await {
                    Ok(secret) => secrets.push(secret),
                    Err(why) => {
                        tracing::warn!(secret = %reference.name, %why, "a pull secret cannot be read")
                    }
                }
            }
            secrets
        }
        .boxed()
    }

    fn logged_attempts(&self, pod: &Pod, container: &str) -> u32 {
        let dir = self.log_dir(pod).join(container);
        let attempts = std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.split('.').next()?.parse::<u32>().ok()
        });
        attempts.max().map_or(0, |last| last + 1)
    }

    fn container_started(&self, pod: &Pod, container: &str, id: &str, attempt: u32) {
        self.managers.container_started(pod, container);
        let log = self.log_dir(pod).join(container).join(format!("{attempt}.log"));
        let link = self.log_link(pod, container, id);
        if let Err(why) = links::link(&link, &log, self.filesystem()) {
            tracing::debug!(%why, container, "the log has no link");
        }
    }

    fn container_removed(&self, pod: &Pod, container: &ContainerStatus) {
        let removed = rotation::remove(Path::new(&container.log_path), self.filesystem()).and_then(|()| {
            let link = self.log_link(pod, &container.name, &container.id);
            unless_absent(self.filesystem().remove_file(&link))
        });
        if let Err(why) = removed {
            tracing::debug!(%why, container = container.name, "the log of a removed container is left");
        }
    }

    fn clean<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let uid = &pod.metadata.uid;
            // volumes that are kept after the end of a pod are removed once the pod is deleted
            if !self.keeps_volumes || pod.metadata.deletion_timestamp.is_some() {
                self.volumes.unmount_all(uid).await?;
            }
            let begun = self.world.elapsed();
            self.cgroups.remove_pod(pod).map_err(|why| why.to_string())?;
            self.metrics.cgroup_handled("destroy", self.world.elapsed().saturating_sub(begun));
            self.objects.unregister(uid);
            Ok(())
        }
        .boxed()
    }

    fn leftovers(&self) -> Vec<String> {
        let mut uids: BTreeSet<String> = self.volumes.reconstruct().unwrap_or_default().into_iter().collect();
        uids.extend(self.cgroups.pods().into_keys());
        uids.extend(self.log_dirs().into_iter().map(|(uid, _)| uid));
        uids.into_iter().collect()
    }

    fn remove_unused_volumes(&self) -> BoxFuture<'_, ()> {
        self.volumes.remove_unused().boxed()
    }

    fn remove_dead_links(&self) -> std::io::Result<()> {
        links::remove_dead(&self.log_link_dir, self.filesystem())
    }

    fn remove<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async move {
            self.volumes.remove_pod(uid).await?;
            self.cgroups.remove_uid(uid).map_err(|why| why.to_string())?;
            self.remove_logs(uid).map_err(|why| why.to_string())
        }
        .boxed()
    }
}
