//! The runtime alone: the calls of a pod without an agent, with the configuration that an agent sends.

use anyhow::Context;
use api::core::v1::{Container, Pod};
use nodeagent::container::node_facts::NodeFacts;
use nodeagent::container::security::{ImageUser, container_security, sandbox_security};
use nodeagent::runtime::cri::CriRuntime;
use nodeagent::runtime::{
    ContainerConfig, ContainerLinux, DnsConfig, LinuxResources, LinuxSecurity, Mount, Runtime, SandboxConfig,
    SandboxLinux,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// What all pods have in common.
struct Template {
    image: String,
    /// The parent of the pods' cgroups.
    cgroup_parent: String,
    security: LinuxSecurity,
    directory: TempDir,
}

impl Template {
    fn new(image: &str, cgroup_parent: &str) -> anyhow::Result<Self> {
        let (pod, container, facts) = (Pod::default(), Container::default(), NodeFacts::default());
        let security = container_security(&pod, &container, &ImageUser::default(), None, &facts);
        Ok(Template {
            image: image.to_owned(),
            cgroup_parent: cgroup_parent.to_owned(),
            security: security.ok().context("a container without fields has no security context")?,
            directory: tempfile::tempdir()?,
        })
    }

    /// Makes the files that an agent makes for a pod.
    fn directory_of(&self, name: &str) -> std::io::Result<PathBuf> {
        let directory = self.directory.path().join(name);
        std::fs::create_dir(&directory)?;
        std::fs::write(directory.join("hosts"), "127.0.0.1 localhost\n")?;
        std::fs::write(directory.join("termination-log"), "")?;
        Ok(directory)
    }

    fn sandbox(&self, name: &str, directory: &Path) -> SandboxConfig {
        let cgroup_parent = match self.cgroup_parent.as_str() {
            "" => String::new(),
            parent => format!("{parent}/pod{name}"),
        };
        SandboxConfig {
            name: name.to_owned(),
            uid: name.to_owned(),
            namespace: "bench-alone".to_owned(),
            hostname: name.to_owned(),
            log_directory: directory.to_string_lossy().into_owned(),
            dns: Some(DnsConfig { servers: vec!["127.0.0.1".to_owned()], ..DnsConfig::default() }),
            linux: SandboxLinux {
                cgroup_parent,
                security: sandbox_security(&Pod::default()),
                ..SandboxLinux::default()
            },
            ..SandboxConfig::default()
        }
    }

    fn container(&self, directory: &Path) -> ContainerConfig {
        let mount = |file: &str, path: &str| Mount {
            container_path: path.to_owned(),
            host_path: directory.join(file).to_string_lossy().into_owned(),
            ..Mount::default()
        };
        ContainerConfig {
            name: "c".to_owned(),
            image: self.image.clone(),
            log_path: "c.log".to_owned(),
            mounts: vec![mount("hosts", "/etc/hosts"), mount("termination-log", "/dev/termination-log")],
            linux: ContainerLinux {
                resources: LinuxResources { cpu_shares: 2, oom_score_adj: 1000, ..LinuxResources::default() },
                security: self.security.clone(),
            },
            ..ContainerConfig::default()
        }
    }
}

/// A runtime whose pods start without an agent, in turns with the agent's.
pub struct Alone {
    runtime: Arc<CriRuntime>,
    template: Arc<Template>,
    /// The number of the next pod.
    next: AtomicUsize,
}

impl Alone {
    pub fn new(endpoint: &str, image: &str, cgroup_parent: &str) -> anyhow::Result<Self> {
        let runtime = CriRuntime::new(endpoint, None, None, None).map_err(|why| anyhow::anyhow!("{why}"))?;
        let template = Template::new(image, cgroup_parent)?;
        Ok(Alone { runtime: Arc::new(runtime), template: Arc::new(template), next: AtomicUsize::new(0) })
    }

    /// How long each of some pods takes that start at once; they are removed afterwards.
    pub async fn start_at_once(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let (begin, mut tasks) = (Instant::now(), JoinSet::new());
        for nth in first..first + count {
            let (runtime, template) = (self.runtime.clone(), self.template.clone());
            tasks.spawn(async move {
                let started = start(&runtime, &format!("alone-{nth}"), &template).await;
                started.map(|id| (id, begin.elapsed()))
            });
        }
        let mut started: Vec<(String, Duration)> = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            started.push(ended??);
        }
        for (id, _) in &started {
            self.runtime.stop_sandbox(id).await?;
            self.runtime.remove_sandbox(id).await?;
        }
        Ok(started.into_iter().map(|it| it.1).collect())
    }
}

/// Sandbox, container, start. Returns the sandbox.
async fn start(runtime: &CriRuntime, name: &str, template: &Template) -> anyhow::Result<String> {
    let directory = template.directory_of(name)?;
    let sandbox = template.sandbox(name, &directory);
    let id = runtime.run_sandbox(&sandbox, "").await?;
    let container = runtime.create_container(&id, &template.container(&directory), &sandbox).await?;
    runtime.start_container(&container).await?;
    Ok(id)
}
