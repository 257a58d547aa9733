//! The facts about this machine, read by the code that relies on them.

use super::machine::{
    Cgroups, DataDirectory, Machine, MissingCapability, PortUse, RuntimeFacts, RuntimeProblem, Shortage, Swap,
};
use crate::options::{CheckArgs, Role};
use crate::{data_dir, files, node_agent, pod_network, threads};
use env::World;
use network::kernel_support::{self, LinkType};
use network::proxy::configuration as proxy;
use nodeagent::assembly::{automatic_runtime, embedded_runtime, eviction_thresholds, runtime_endpoint};
use nodeagent::cgroups::{CgroupDriver, CgroupFiles};
use nodeagent::configuration::{Configuration, check_swap};
use nodeagent::eviction::machine::MachineObserver;
use nodeagent::file_watch::FileWatch;
use nodeagent::node::addresses::{AddressOptions, MachineAddresses, node_addresses};
use nodeagent::runtime::cri::{CriRuntime, RuntimeSettings};
use nodeagent::runtime::{Runtime, RuntimeCode};
use rustix::fs::{Access, access};
use rustix::thread::{CapabilitySet, capabilities};
use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time in which the container runtime must answer.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(10);

/// The condition of a runtime before there is a pod network.
const NETWORK_READY: &str = "NetworkReady";

/// The capabilities that a node uses, and whether it can do without.
const CAPABILITIES: &[(&str, CapabilitySet, bool)] = &[
    // mounts and namespaces of pods
    ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN, true),
    // links, routes and rules
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, true),
    // owners and modes of volumes
    ("CAP_CHOWN", CapabilitySet::CHOWN, true),
    ("CAP_FOWNER", CapabilitySet::FOWNER, true),
    ("CAP_DAC_OVERRIDE", CapabilitySet::DAC_OVERRIDE, true),
    // processes that are left in the cgroup of a pod
    ("CAP_KILL", CapabilitySet::KILL, true),
    // settings of the kernel for forwarding are files of root; the score of memory and the limit of files are not
    ("CAP_SYS_RESOURCE", CapabilitySet::SYS_RESOURCE, false),
];

/// Files of `/proc/sys/net` that turn forwarding on.
const FORWARDING: [(&str, &str); 2] = [
    ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
    ("net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
];

/// This machine.
pub struct LocalMachine {
    role: Role,
    secure_port: u16,
    data_dir: PathBuf,
    endpoint: Option<String>,
    configuration: Configuration,
    threads: tokio::runtime::Runtime,
    runtime: OnceCell<Result<RuntimeAnswer, RuntimeProblem>>,
    world: World,
}

/// The answers of the container runtime.
#[derive(Clone)]
struct RuntimeAnswer {
    facts: RuntimeFacts,
    settings: RuntimeSettings,
    image_directory: Option<PathBuf>,
}

impl LocalMachine {
    pub fn new(args: &CheckArgs, world: World) -> anyhow::Result<Self> {
        let data_dir = match &args.data_dir {
            Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            None => data_dir::default_data_dir()?,
        };
        let endpoint = args.container_runtime_endpoint.clone();
        let configuration = node_agent::configuration(&data_dir, args.nodeagent_config.as_deref())?;
        Ok(LocalMachine {
            role: args.role,
            secure_port: args.secure_port,
            data_dir,
            endpoint,
            configuration,
            threads: threads::single()?,
            runtime: OnceCell::new(),
            world,
        })
    }

    /// Calls the runtime, once.
    fn runtime_answer(&self) -> &Result<RuntimeAnswer, RuntimeProblem> {
        self.runtime.get_or_init(|| {
            let endpoint = match &self.endpoint {
                Some(endpoint) => endpoint.clone(),
                None if self.is_root() => self.threads.block_on(automatic_runtime()),
                // the sockets are root's
                None => runtime_endpoint().unwrap_or_else(|| embedded_runtime::ENDPOINT.to_owned()),
            };
            match &*endpoint {
                embedded_runtime::ENDPOINT => self.embedded_runtime(),
                _ => self.threads.block_on(call_runtime(endpoint)),
            }
        })
    }

    /// The runtime in the agent's process.
    fn embedded_runtime(&self) -> Result<RuntimeAnswer, RuntimeProblem> {
        let endpoint = embedded_runtime::ENDPOINT.to_owned();
        if !self.is_root() {
            return Err(RuntimeProblem::NotPermitted(endpoint));
        }
        let cgroup_driver = Some(CgroupDriver::Cgroupfs);
        let probe = existing(&self.data_dir).join(format!(".pintle-check-{}", std::process::id()));
        let has_overlay = embedded_runtime::has_overlay(&probe);
        Ok(RuntimeAnswer {
            facts: RuntimeFacts {
                endpoint,
                version: format!("pintle {}", env!("CARGO_PKG_VERSION")),
                not_ready: embedded_runtime::missing(),
                copies_in: (!has_overlay).then(|| self.data_dir.clone()),
                cgroup_driver,
            },
            settings: RuntimeSettings { cni: Some(pod_network::usual_directories()), cgroup_driver },
            image_directory: Some(self.data_dir.clone()),
        })
    }

    /// The ports of the components, with their purpose and whether the node works without.
    fn ports(&self) -> Vec<PortUse> {
        let own = |ip: IpAddr, port: u16, purpose, is_required| PortUse {
            address: SocketAddr::new(ip, port),
            purpose,
            is_required,
        };
        let agent = |host: &[&str], field: &str, purpose, is_required| {
            let ip = self.configuration.text(host).parse::<IpAddr>().ok()?;
            let port = u16::try_from(self.configuration.int(field)).ok().filter(|it| *it > 0)?;
            Some(own(ip, port, purpose, is_required))
        };
        let mut ports = Vec::new();
        if self.role == Role::Up {
            ports.push(own(Ipv4Addr::LOCALHOST.into(), self.secure_port, "API server", true));
        }
        ports.extend(agent(&["address"], "port", "node agent", true));
        ports.extend(agent(&["healthzBindAddress"], "healthzPort", "health of the agent", true));
        let flags = proxy::Flags::default();
        if let Ok(configuration) = proxy::Configuration::load(&flags, None, &names::Names::kubernetes()) {
            for (field, purpose) in [
                ("healthzBindAddress", "health of the proxy"),
                ("metricsBindAddress", "metrics of the proxy"),
            ] {
                let address = configuration.address(field);
                ports.extend(address.map(|it| own(it.ip(), it.port(), purpose, false)));
            }
        }
        if let (Role::Up, Ok(address)) = (self.role, self.node_address()) {
            ports.push(own(address, network::dns::PORT, "cluster DNS", true));
        }
        ports
    }
}

async fn call_runtime(endpoint: String) -> Result<RuntimeAnswer, RuntimeProblem> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(&endpoint);
    if access(path, Access::WRITE_OK).is_err_and(|why| why == rustix::io::Errno::ACCESS) {
        return Err(RuntimeProblem::NotPermitted(endpoint));
    }
    let failed = |why: String| RuntimeProblem::NoAnswer(endpoint.clone(), why);
    let runtime = CriRuntime::new(&endpoint, None, Some(RUNTIME_TIMEOUT), None)
        .map_err(|why| failed(why.to_string()))?;
    let version = runtime.version().await.map_err(|why| match why.code {
        RuntimeCode::Unimplemented => RuntimeProblem::NoCri(endpoint.clone()),
        _ => failed(why.to_string()),
    })?;
    let status = runtime.status().await.map_err(|why| failed(why.to_string()))?;
    // without a network there is none yet: the pod network begins after the start
    let not_ready = status.conditions.iter().find(|it| !it.is_true && it.kind != NETWORK_READY);
    let settings = runtime.settings().await.map_err(|why| failed(why.to_string()))?;
    let disks = runtime.image_fs().await.unwrap_or_default();
    Ok(RuntimeAnswer {
        facts: RuntimeFacts {
            endpoint: endpoint.clone(),
            version: format!("{} {}", version.name, version.version),
            not_ready: not_ready.map(|it| format!("{}: {}", it.kind, it.message)),
            copies_in: None,
            cgroup_driver: settings.cgroup_driver,
        },
        settings,
        image_directory: disks.first().map(|it| PathBuf::from(&it.mountpoint)),
    })
}

/// The path itself, or the nearest folder above it that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"))
}

fn is_writable(path: &Path) -> bool {
    access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

impl Machine for LocalMachine {
    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    fn missing_capabilities(&self) -> Vec<MissingCapability> {
        let own = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
        let missing = CAPABILITIES.iter().filter(|(_, capability, _)| !own.contains(*capability));
        missing.map(|&(name, _, is_required)| MissingCapability { name, is_required }).collect()
    }

    fn kernel_release(&self) -> String {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        release.map_or_else(|_| "of unknown release".to_owned(), |it| it.trim().to_owned())
    }

    fn cgroups(&self) -> Option<Cgroups> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let files = CgroupFiles::from_mount_table(&mounts)?;
        let is_read_only = |path: &PathBuf| access(path, Access::WRITE_OK) == Err(rustix::io::Errno::ROFS);
        Some(Cgroups {
            is_v2: files.is_v2(),
            missing_controllers: files.missing_controllers(),
            read_only: files.roots().into_iter().filter(is_read_only).collect(),
        })
    }

    fn runtime(&self) -> Result<RuntimeFacts, RuntimeProblem> {
        self.runtime_answer().as_ref().map(|it| it.facts.clone()).map_err(Clone::clone)
    }

    fn cgroup_driver(&self) -> CgroupDriver {
        match self.configuration.text(&["cgroupDriver"]) {
            "systemd" => CgroupDriver::Systemd,
            _ => CgroupDriver::Cgroupfs,
        }
    }

    fn has_system_bus(&self) -> bool {
        Path::new(nodeagent::dbus::SYSTEM_BUS).exists()
    }

    fn other_network(&self) -> Result<Option<PathBuf>, String> {
        let own = self.runtime_answer().as_ref().ok().and_then(|it| it.settings.cni.clone());
        let directories = own.unwrap_or_else(pod_network::usual_directories);
        for directory in [&directories.configurations, &directories.plugins] {
            if !is_writable(existing(directory)) {
                return Err(format!("{} cannot be written", directory.display()));
            }
        }
        let paths = pod_network::cni_paths(directories, pod_network::STATE.into())
            .map_err(|why| format!("{why:#}"))?;
        network::pod_network::node::other_configuration(&paths).map_err(|why| why.to_string())
    }

    fn packet_filter(&self) -> Result<(), String> {
        kernel_support::check_packet_filter(has_ipv6()).map_err(|why| why.to_string())
    }

    fn connection_tracking(&self) -> Result<(), String> {
        kernel_support::check_connection_tracking().map_err(|why| why.to_string())
    }

    fn has_veth(&self) -> Result<bool, String> {
        let found = self.threads.block_on(kernel_support::has_link_type(LinkType::Veth));
        found.map_err(|why| why.to_string())
    }

    fn has_vxlan(&self) -> Result<bool, String> {
        let found = self.threads.block_on(kernel_support::has_link_type(LinkType::Vxlan));
        found.map_err(|why| why.to_string())
    }

    fn closed_forwarding(&self) -> Vec<&'static str> {
        let is_closed = |path: &str| {
            let is_on = std::fs::read_to_string(path).map(|text| text.trim() == "1");
            // a family that the kernel does not have is not used
            is_on.is_ok_and(|is_on| !is_on && access(path, Access::WRITE_OK).is_err())
        };
        FORWARDING.iter().filter(|(_, path)| is_closed(path)).map(|(name, _)| *name).collect()
    }

    fn node_name(&self) -> String {
        node_agent::node_name()
    }

    fn node_address(&self) -> Result<IpAddr, String> {
        let options = AddressOptions { node_ips: Vec::new(), hostname: self.node_name() };
        let addresses = node_addresses(&options, &MachineAddresses)?;
        let parsed = addresses.iter().find_map(|it| it.address.parse().ok());
        parsed.ok_or_else(|| "the machine has no address".to_owned())
    }

    fn taken_ports(&self) -> Vec<PortUse> {
        let is_taken = |address: SocketAddr| {
            TcpListener::bind(address).is_err_and(|why| why.kind() == std::io::ErrorKind::AddrInUse)
        };
        self.ports().into_iter().filter(|it| is_taken(it.address)).collect()
    }

    fn data_directory(&self) -> DataDirectory {
        let path = &self.data_dir;
        let problem = match existing(path) {
            found if !found.is_dir() => Some(format!("{} is not a directory", found.display())),
            found if !is_writable(found) => Some(format!("{} cannot be written", found.display())),
            _ => None,
        };
        // locking would make the file
        let is_in_use = path.join("lock").exists() && files::lock_directory(path).is_err();
        DataDirectory { path: path.clone(), problem, is_in_use }
    }

    fn shortages(&self) -> Vec<Shortage> {
        let root_dir = existing(&self.data_dir).to_owned();
        let images = self.runtime_answer().as_ref().ok().and_then(|it| it.image_directory.clone());
        let observed =
            MachineObserver { proc: "/proc".into(), root_dir, pods: None }.observe(images.as_deref());
        let thresholds = eviction_thresholds(&self.configuration);
        let hard = thresholds.iter().filter(|it| it.grace.is_none());
        hard.filter_map(|it| {
            let observation = observed.get(&it.signal)?;
            let threshold = it.amount.of(observation.capacity);
            let shortage = Shortage { signal: it.signal, available: observation.available, threshold };
            (observation.available < threshold).then_some(shortage)
        })
        .collect()
    }

    fn swap(&self) -> Swap {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        match (swaps.trim().lines().count() < 2, check_swap(&self.configuration, &swaps)) {
            (true, _) => Swap::Off,
            (false, Ok(())) => Swap::Allowed,
            (false, Err(_)) => Swap::Refused,
        }
    }

    fn is_clock_behind(&self) -> bool {
        let program = std::env::current_exe().and_then(|path| path.metadata()).and_then(|it| it.modified());
        program.is_ok_and(|date| self.world.now() < date)
    }

    fn open_file_limit(&self) -> Option<u64> {
        process_start::raise_open_files()
    }

    fn file_watch(&self) -> Result<(), String> {
        let _guard = self.threads.enter();
        FileWatch::new(Path::new("/")).map(drop).map_err(|why| why.to_string())
    }
}
