//! Sandboxes: their start, their end, their state.

use super::cni::SandboxNetwork;
use super::descriptor_stream::wait_until_readable;
use super::handlers;
use super::monitor_client::{self, during, failed};
use super::process_spec::hostname;
use super::protocol::{MonitorConfig, Request};
use super::record::{Durability, MonitorProcess, SandboxRecord};
use super::state::{Sandbox, State, blocking, remove_sandbox_folders};
use crate::stats::InterfaceStats;
use crate::steps::step;
use crate::{
    NamespaceMode, RuntimeCode, RuntimeError, SandboxConfig, SandboxInfo, SandboxStats, SandboxStatus,
};
use rustix::mount::{MountFlags, mount};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time that a monitor has for its own end, after all of its processes have ended.
const MONITOR_END: Duration = Duration::from_secs(10);

impl State {
    pub async fn run_sandbox(
        self: &Arc<Self>,
        config: &SandboxConfig,
        handler: &str,
    ) -> Result<String, RuntimeError> {
        let program = handlers::find(&self.options.handlers, handler)?;
        let namespaces = &config.linux.security.namespaces;
        if namespaces.user.as_ref().is_some_and(|it| it.mode == NamespaceMode::Pod) {
            return Err(failed("user namespaces are not supported by the embedded runtime"));
        }
        let id = self.new_id();
        let record = SandboxRecord {
            id: id.clone(),
            config: config.clone(),
            created_at: self.now(),
            handler: handler.to_owned(),
            oci: program.map(|it| handlers::runtime_of(it, &self.run_directory(&id))),
            boot_id: self.boot_id.clone(),
            ..SandboxRecord::default()
        };
        let sandbox = self.add_sandbox(record);
        let started = self.start_sandbox(&sandbox, config).await;
        match started {
            Ok(()) => {
                self.follow(&sandbox);
                Ok(id)
            }
            Err(why) => {
                // nothing of a sandbox that could not be started stays
                let _ = self.stop_sandbox(&id).await;
                let _ = self.remove_sandbox(&id).await;
                Err(why)
            }
        }
    }

    async fn start_sandbox(
        &self,
        sandbox: &Arc<Sandbox>,
        config: &SandboxConfig,
    ) -> Result<(), RuntimeError> {
        let namespaces = &config.linux.security.namespaces;
        let is_own = |mode: NamespaceMode| mode != NamespaceMode::Node;
        let (has_own_network, has_own_ipc) = (is_own(namespaces.network), is_own(namespaces.ipc));
        let prepared = sandbox.clone();
        let dns = config.dns.clone();
        let hostname = hostname(config);
        blocking(move || {
            step("make a sandbox", &prepared.directory);
            durable_file::directory(&prepared.directory.join("containers"), 0o700)
                .map_err(during("make a sandbox"))?;
            step("make the folder of sockets", &prepared.run);
            durable_file::directory(&prepared.run, 0o700).map_err(during("make a sandbox"))?;
            let resolv = match &dns {
                Some(dns) => resolv_conf(dns),
                None => std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            };
            let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
            let readable = Permissions::from_mode(durable_file::READABLE);
            for (name, text) in
                [("resolv.conf", resolv), ("hostname", format!("{hostname}\n")), ("hosts", hosts)]
            {
                let path = prepared.directory.join(name);
                step("write a file of a sandbox", &path);
                // without a record nothing reads them
                std::fs::write(&path, text)
                    .and_then(|()| std::fs::set_permissions(&path, readable.clone()))
                    .map_err(during("make a sandbox"))?;
            }
            if has_own_ipc {
                let shm = prepared.run.join("shm");
                durable_file::directory(&shm, 0o700).map_err(during("make a sandbox"))?;
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                step("mount shared memory", &shm);
                mount("shm", &shm, "tmpfs", flags, c"mode=1777,size=65536k")
                    .map_err(|why| during("mount the shared memory of a sandbox")(why.into()))?;
            }
            Ok(())
        })
        .await?;
        let refused = |why: RuntimeError| {
            let id = sandbox.record.lock().id.clone();
            failed(format!("failed to setup network for sandbox {id:?}: {}", why.message))
        };
        if has_own_network {
            // an agent that ends after the plugins were called finds what it has to undo
            let prepared = self.options.cni.prepare().map_err(refused)?;
            sandbox.record.lock().network = Some(prepared);
        }
        sandbox.save(Durability::Unsynced)?;
        let monitor = MonitorConfig {
            socket: sandbox.run.join("monitor.sock"),
            hostname: config.hostname.clone(),
            has_own_network,
            has_own_ipc,
            has_own_uts: has_own_network,
            shares_pids: namespaces.pid == NamespaceMode::Pod,
            sysctls: config.linux.sysctls.clone(),
            adopts_processes: sandbox.record.lock().oci.is_some(),
        };
        let pid = monitor_client::start(&self.program, &monitor).await?;
        sandbox.record.lock().monitor = MonitorProcess::find(pid);
        let prepared = sandbox.record.lock().network.clone();
        if let Some(mut record) = prepared {
            let network = self.network_of(sandbox);
            let ips = self.options.cni.add(&network, &mut record).await.map_err(refused)?;
            let mut current = sandbox.record.lock();
            (current.ips, current.network) = (ips, Some(record));
        }
        sandbox.record.lock().is_ready = true;
        // a machine that crashes later still knows the pod: its containers may be ones that are not started again
        sandbox.save(Durability::Synced)
    }

    fn network_of(&self, sandbox: &Sandbox) -> SandboxNetwork {
        let record = sandbox.record.lock();
        SandboxNetwork {
            id: record.id.clone(),
            namespace: record.monitor_directory().map(|it| it.join("ns/net")),
            pod_namespace: record.config.namespace.clone(),
            pod_name: record.config.name.clone(),
            pod_uid: record.config.uid.clone(),
            port_mappings: record.config.port_mappings.clone(),
        }
    }

    pub async fn stop_sandbox(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        for container in self.containers_of(&sandbox) {
            let id = container.record.lock().id.clone();
            self.stop_container(&id, Duration::ZERO).await?;
        }
        let record = sandbox.record.lock().network.clone();
        if let Some(record) = record {
            // an agent that is killed before the record says so calls the plugins again
            self.options.cni.remove(&self.network_of(&sandbox), &record).await?;
        }
        let is_changed = {
            let mut record = sandbox.record.lock();
            std::mem::take(&mut record.is_ready) | record.network.take().is_some()
        };
        if is_changed {
            sandbox.save(Durability::Unsynced)?;
        }
        let monitor = sandbox.record.lock().monitor.and_then(|it| it.open());
        // a monitor that is gone cannot be called
        let _ = sandbox.monitor.call(Request::Shutdown).await;
        if let Some(monitor) = monitor
            && env::timeout(&self.world, MONITOR_END, wait_until_readable(monitor)).await.is_err()
        {
            tracing::warn!(id, "the monitor of a sandbox that was stopped still runs");
        }
        Ok(())
    }

    pub async fn remove_sandbox(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        self.stop_sandbox(id).await?;
        for container in self.containers_of(&sandbox) {
            let id = container.record.lock().id.clone();
            self.remove_container(&id).await?;
        }
        let removed = sandbox.clone();
        sandbox.end_writing();
        blocking(move || {
            remove_sandbox_folders(&removed.run, &removed.directory).map_err(during("remove a sandbox"))
        })
        .await?;
        self.sandboxes.lock().remove(id);
        Ok(())
    }

    pub fn sandbox_status(&self, id: &str) -> Result<SandboxStatus, RuntimeError> {
        let sandbox = self.sandbox(id)?;
        let record = sandbox.record.lock();
        Ok(SandboxStatus {
            info: sandbox_info(&record),
            ips: record.ips.clone(),
            namespaces: record.config.linux.security.namespaces.clone(),
        })
    }

    pub fn list_sandboxes(&self, uid: Option<&str>) -> Vec<SandboxInfo> {
        let all: Vec<_> = self.sandboxes.lock().values().cloned().collect();
        let is_of_pod = |record: &SandboxRecord| uid.is_none_or(|uid| record.config.uid == uid);
        let info = |sandbox: &Arc<Sandbox>| {
            let record = sandbox.record.lock();
            is_of_pod(&record).then(|| sandbox_info(&record))
        };
        all.iter().filter_map(info).collect()
    }

    pub fn sandbox_stats(&self) -> Vec<SandboxStats> {
        let all: Vec<_> = self.sandboxes.lock().values().cloned().collect();
        let timestamp = self.now();
        let stats = |sandbox: &Arc<Sandbox>| {
            let record = sandbox.record.lock();
            let parent = &record.config.linux.cgroup_parent;
            let (cpu, memory) = self.cgroups.usage(parent, timestamp);
            SandboxStats {
                id: record.id.clone(),
                name: record.config.name.clone(),
                uid: record.config.uid.clone(),
                namespace: record.config.namespace.clone(),
                cpu: Some(cpu),
                memory: Some(memory),
                network_timestamp: timestamp,
                interfaces: record.monitor_directory().map(|it| interfaces(&it)).unwrap_or_default(),
                process_count: None,
                containers: Vec::new(),
            }
        };
        all.iter().filter(|it| it.record.lock().is_ready).map(stats).collect()
    }

    /// Connects to a port in the network of a sandbox.
    pub async fn connect(&self, id: &str, port: u16) -> Result<tokio::net::TcpStream, RuntimeError> {
        let monitor = self.sandbox(id)?.record.lock().monitor_directory();
        let monitor = monitor.ok_or_else(|| failed(format!("sandbox {id:?} is not running")))?;
        // the thread is in the namespace until it ends, so it is not one of a pool
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || sender.send(connect_inside(&monitor, port)));
        let connected = receiver.await.map_err(|_| failed("the connection was given up"))?;
        let stream = connected.map_err(|why| {
            failed(format!("failed to connect to localhost:{port} inside namespace {id:?}, {why}"))
        })?;
        tokio::net::TcpStream::from_std(stream).map_err(during("connect to a port"))
    }
}

fn connect_inside(monitor: &Path, port: u16) -> Result<std::net::TcpStream, String> {
    let failed = |why: std::io::Error| outbound::io_text(&why);
    let namespace = std::fs::File::open(monitor.join("ns/net")).map_err(failed)?;
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(kind))
        .map_err(|why| failed(why.into()))?;
    let connect = |address: &str| std::net::TcpStream::connect((address, port)).map_err(failed);
    let stream = connect("127.0.0.1").or_else(|v4| {
        connect("::1").map_err(|v6| {
            format!(
                "IPv4: dial tcp4 127.0.0.1:{port}: connect: {v4} IPv6 dial tcp6 [::1]:{port}: connect: {v6}"
            )
        })
    })?;
    stream.set_nonblocking(true).map_err(failed)?;
    Ok(stream)
}

fn sandbox_info(record: &SandboxRecord) -> SandboxInfo {
    SandboxInfo {
        id: record.id.clone(),
        name: record.config.name.clone(),
        uid: record.config.uid.clone(),
        namespace: record.config.namespace.clone(),
        attempt: record.config.attempt,
        is_ready: record.is_ready,
        created_at: record.created_at,
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        handler: record.handler.clone(),
    }
}

fn resolv_conf(dns: &crate::DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    text
}

/// Counters of the interfaces in the network of a process.
fn interfaces(process: &Path) -> Vec<InterfaceStats> {
    let text = std::fs::read_to_string(process.join("net/dev")).unwrap_or_default();
    let interface = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        Some(InterfaceStats {
            name: name.trim().to_owned(),
            rx_bytes: counters.first().copied(),
            rx_errors: counters.get(2).copied(),
            tx_bytes: counters.get(8).copied(),
            tx_errors: counters.get(10).copied(),
        })
    };
    let mut found: Vec<_> = text.lines().filter_map(interface).filter(|it| it.name != "lo").collect();
    found.sort_by_key(|it| it.name != "eth0");
    found
}

/// The error of what the runtime does not do.
pub fn unimplemented(what: &str) -> RuntimeError {
    RuntimeError::new(RuntimeCode::Unimplemented, format!("{what} is not supported by the embedded runtime"))
}
