//! The table of requirements. A probe judges facts of a machine; what to do about its finding stands beside it.

use super::machine::{Machine, RuntimeProblem, Swap};
use crate::options::Role;
use nodeagent::assembly::embedded_runtime;
use nodeagent::cgroups::CgroupDriver;
use nodeagent::eviction::thresholds::Signal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// Pods run, and something does not work as it could; or the probe could not find out.
    Warning,
    /// Pods do not run.
    Missing,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Missing => "missing",
        }
    }
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub status: Status,
    pub detail: String,
}

impl Finding {
    fn ok(detail: impl Into<String>) -> Self {
        Finding { status: Status::Ok, detail: detail.into() }
    }

    fn warning(detail: impl Into<String>) -> Self {
        Finding { status: Status::Warning, detail: detail.into() }
    }

    fn missing(detail: impl Into<String>) -> Self {
        Finding { status: Status::Missing, detail: detail.into() }
    }
}

/// Something that a node needs.
pub struct Requirement {
    pub name: &'static str,
    pub purpose: &'static str,
    /// What to do if it is not met.
    pub advice: &'static str,
    /// The commands that need it.
    pub roles: &'static [Role],
    /// Whether only root can find out.
    needs_root: bool,
    probe: fn(&dyn Machine) -> Finding,
}

impl Requirement {
    pub fn check(&self, machine: &dyn Machine) -> Finding {
        match self.needs_root && !machine.is_root() {
            true => Finding::warning("not checked: this takes root"),
            false => (self.probe)(machine),
        }
    }
}

const NODE: &[Role] = &[Role::Up, Role::Join];

/// The order is that in which one would set a machine up: rights, runtime, kernel, network, the rest.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        name: "root",
        purpose: "mounts, cgroups and network links of pods",
        advice: "run as root (sudo), or as a system service",
        roles: NODE,
        needs_root: false,
        probe: root,
    },
    Requirement {
        name: "capabilities",
        purpose: "what root may do; a container takes most of it away",
        advice: "in a container, run it privileged and in the namespaces of the host (processes, network)",
        roles: NODE,
        needs_root: true,
        probe: capabilities,
    },
    Requirement {
        name: "cgroups",
        purpose: "limits of CPU, memory and processes of pods",
        advice: "mount the cgroup file systems read-write; a controller that is off is turned on at the kernel's command \
                 line (Raspberry Pi: cgroup_enable=memory cgroup_memory=1)",
        roles: NODE,
        needs_root: false,
        probe: cgroups,
    },
    Requirement {
        name: "container runtime",
        purpose: "containers and images",
        advice: "install and start containerd 1.6 or newer (Debian, Ubuntu: apt install containerd; Fedora: dnf install \
                 containerd; Alpine: apk add containerd), or CRI-O; Docker's package turns the CRI off: remove \"cri\" \
                 from disabled_plugins in /etc/containerd/config.toml and restart containerd; a socket elsewhere is named \
                 by --container-runtime-endpoint",
        roles: NODE,
        needs_root: false,
        probe: runtime,
    },
    Requirement {
        name: "cgroup driver",
        purpose: "cgroups that agent and runtime agree on",
        advice: "use one driver in both: cgroupDriver in the file of --nodeagent-config, and SystemdCgroup in containerd's \
                 /etc/containerd/config.toml; the driver systemd takes systemd and its bus (Debian: apt install dbus)",
        roles: NODE,
        needs_root: true,
        probe: cgroup_driver,
    },
    Requirement {
        name: "pod network",
        purpose: "addresses of pods",
        advice: "if the other network is a remnant, remove its file; otherwise it is used, and Pintle gives no addresses to \
                 pods",
        roles: NODE,
        needs_root: true,
        probe: pod_network,
    },
    Requirement {
        name: "packet filter",
        purpose: "addresses of services, network policies, host ports, masquerade",
        advice: "use Linux 5.6 or newer with nf_tables (modprobe -a nf_tables nft_chain_nat nft_masq nft_reject_inet); the \
                 program nft is not needed",
        roles: NODE,
        needs_root: true,
        probe: packet_filter,
    },
    Requirement {
        name: "connection tracking",
        purpose: "services, and the end of UDP flows to endpoints that are gone",
        advice: "load the modules: modprobe -a nf_conntrack nf_conntrack_netlink",
        roles: NODE,
        needs_root: true,
        probe: connection_tracking,
    },
    Requirement {
        name: "veth links",
        purpose: "the links of pods",
        advice: "load the module: modprobe veth",
        roles: NODE,
        needs_root: true,
        probe: veth,
    },
    Requirement {
        name: "vxlan links",
        purpose: "pods of nodes behind a router; nodes on one link do without",
        advice: "load the module: modprobe vxlan",
        roles: NODE,
        needs_root: true,
        probe: vxlan,
    },
    Requirement {
        name: "forwarding",
        purpose: "packets between pods, and from pods to other machines",
        advice: "turn it on: sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 (in a container, on its host)",
        roles: NODE,
        needs_root: true,
        probe: forwarding,
    },
    Requirement {
        name: "node name",
        purpose: "the name of the node is that of the host",
        advice: "set a name of lower-case letters, digits, - and . that no other machine has: hostnamectl hostname NAME",
        roles: NODE,
        needs_root: false,
        probe: node_name,
    },
    Requirement {
        name: "node address",
        purpose: "the server, other nodes and pods reach the agent there",
        advice: "give a network interface an address and the machine a default route, or name the host's address in \
                 /etc/hosts",
        roles: NODE,
        needs_root: false,
        probe: node_address,
    },
    Requirement {
        name: "ports",
        purpose: "the server, the agent, health and metrics, cluster DNS",
        advice: "stop what listens there (ss -ltnp shows it); other ports: --secure-port of the server, port and \
                 healthzPort in the file of --nodeagent-config, --dns-bind-address",
        roles: NODE,
        needs_root: false,
        probe: ports,
    },
    Requirement {
        name: "data directory",
        purpose: "objects, certificates, volumes of pods",
        advice: "choose a directory that can be written: --data-dir /var/lib/pintle",
        roles: NODE,
        needs_root: false,
        probe: data_directory,
    },
    Requirement {
        name: "space",
        purpose: "below the agent's thresholds pods are evicted and none are started",
        advice: "make room, or lower evictionHard in the file of --nodeagent-config",
        roles: NODE,
        needs_root: false,
        probe: space,
    },
    Requirement {
        name: "swap",
        purpose: "limits of memory that hold",
        advice: "turn swap off (swapoff -a, and its line in /etc/fstab), or set failSwapOn: false in the file of \
                 --nodeagent-config",
        roles: NODE,
        needs_root: false,
        probe: swap,
    },
    Requirement {
        name: "clock",
        purpose: "certificates, which are valid from the time when they are issued",
        advice: "set the clock, and keep it right (Debian: apt install systemd-timesyncd)",
        roles: NODE,
        needs_root: false,
        probe: clock,
    },
    Requirement {
        name: "open files",
        purpose: "connections of clients and watches",
        advice: "raise the limit: ulimit -Hn 1048576, or LimitNOFILE=1048576 in the unit",
        roles: NODE,
        needs_root: false,
        probe: open_files,
    },
    Requirement {
        name: "file watches",
        purpose: "changes of certificates, static pods and plugins are seen at once",
        advice: "raise the limit: sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288",
        roles: NODE,
        needs_root: false,
        probe: file_watches,
    },
];

fn root(machine: &dyn Machine) -> Finding {
    match machine.is_root() {
        true => Finding::ok("this is root"),
        false => Finding::missing("this user is not root"),
    }
}

fn capabilities(machine: &dyn Machine) -> Finding {
    let missing = machine.missing_capabilities();
    let names: Vec<_> = missing.iter().map(|it| it.name).collect();
    let names = format!("without {}", names.join(", "));
    match missing.iter().any(|it| it.is_required) {
        true => Finding::missing(names),
        false if missing.is_empty() => Finding::ok("all that a node uses"),
        false => Finding::warning(names),
    }
}

fn cgroups(machine: &dyn Machine) -> Finding {
    let Some(cgroups) = machine.cgroups() else {
        return Finding::missing("no cgroup file system is mounted");
    };
    let version = if cgroups.is_v2 { 2 } else { 1 };
    if let Some(path) = cgroups.read_only.first() {
        return Finding::missing(format!("version {version}; {} cannot be written", path.display()));
    }
    let missing = cgroups.missing_controllers;
    let detail = format!("version {version}, without the controllers {}", missing.join(", "));
    match missing.is_empty() {
        true => Finding::ok(format!("version {version}, with all controllers")),
        // version 1 skips a limit without a controller, version 2 fails; CPUs are pinned by a policy alone
        false if !cgroups.is_v2 || missing == ["cpuset"] => Finding::warning(detail),
        false => Finding::missing(detail),
    }
}

fn runtime(machine: &dyn Machine) -> Finding {
    match machine.runtime() {
        Ok(runtime) => match (runtime.not_ready, runtime.copies_in) {
            (None, Some(directory)) => Finding::warning(format!(
                "the embedded one, as no other serves CRI v1; overlayfs does not work in {}, so every container takes the \
                 time and space of a copy of its image",
                directory.display()
            )),
            (None, None) if runtime.endpoint == embedded_runtime::ENDPOINT => {
                Finding::ok("the embedded one, as no other serves CRI v1")
            }
            (None, None) => Finding::ok(format!("{} at {}, CRI v1", runtime.version, runtime.endpoint)),
            (Some(why), _) => Finding::missing(format!("{} is not ready: {why}", runtime.version)),
        },
        Err(RuntimeProblem::NotPermitted(endpoint)) => {
            Finding::warning(format!("not checked: {endpoint} takes root"))
        }
        Err(RuntimeProblem::NoCri(endpoint)) => {
            Finding::missing(format!("{endpoint} answers, without CRI v1"))
        }
        Err(RuntimeProblem::NoAnswer(endpoint, why)) => Finding::missing(format!("{endpoint}: {why}")),
    }
}

fn cgroup_driver(machine: &dyn Machine) -> Finding {
    let name = |driver| match driver {
        CgroupDriver::Systemd => "systemd",
        CgroupDriver::Cgroupfs => "cgroupfs",
    };
    let own = machine.cgroup_driver();
    if own == CgroupDriver::Systemd && !machine.has_system_bus() {
        return Finding::missing("the agent uses systemd, whose bus is not there");
    }
    match machine.runtime().ok().and_then(|it| it.cgroup_driver) {
        Some(other) if other == own => Finding::ok(format!("{} in agent and runtime", name(own))),
        Some(other) => {
            Finding::missing(format!("{} in the agent, {} in the runtime", name(own), name(other)))
        }
        None => Finding::warning(format!("{} in the agent; that of the runtime is not known", name(own))),
    }
}

fn pod_network(machine: &dyn Machine) -> Finding {
    match machine.other_network() {
        Ok(None) => Finding::ok("no other network is configured: Pintle gives pods their addresses"),
        Ok(Some(path)) => Finding::warning(format!("pods use the network of {}", path.display())),
        Err(why) => Finding::missing(why),
    }
}

fn packet_filter(machine: &dyn Machine) -> Finding {
    let release = machine.kernel_release();
    match machine.packet_filter() {
        Ok(()) => Finding::ok(format!("nf_tables of Linux {release} takes the rules")),
        Err(why) => Finding::missing(format!("Linux {release}: {why}")),
    }
}

fn connection_tracking(machine: &dyn Machine) -> Finding {
    match machine.connection_tracking() {
        Ok(()) => Finding::ok("connections can be listed"),
        Err(why) => Finding::missing(why),
    }
}

fn veth(machine: &dyn Machine) -> Finding {
    match machine.has_veth() {
        Ok(true) => Finding::ok("the kernel has them"),
        Ok(false) => Finding::missing("the kernel has none"),
        Err(why) => Finding::missing(why),
    }
}

fn vxlan(machine: &dyn Machine) -> Finding {
    match machine.has_vxlan() {
        Ok(true) => Finding::ok("the kernel has them"),
        Ok(false) => Finding::warning("the kernel has none"),
        Err(why) => Finding::warning(why),
    }
}

fn forwarding(machine: &dyn Machine) -> Finding {
    let closed = machine.closed_forwarding();
    match closed.first() {
        None => Finding::ok("is on, or can be turned on"),
        Some(_) => Finding::missing(format!("off, and cannot be turned on: {}", closed.join(", "))),
    }
}

fn node_name(machine: &dyn Machine) -> Finding {
    let name = machine.node_name();
    match schema::format::dns1123_subdomain(&name).is_empty() {
        false => Finding::missing(format!("{name:?} is not a name of a node")),
        true if name == "localhost" => Finding::warning("localhost is the name of every machine"),
        true => Finding::ok(name),
    }
}

fn node_address(machine: &dyn Machine) -> Finding {
    match machine.node_address() {
        Ok(address) => Finding::ok(address.to_string()),
        Err(why) => Finding::missing(why),
    }
}

fn ports(machine: &dyn Machine) -> Finding {
    let taken = machine.taken_ports();
    let list: Vec<_> = taken.iter().map(|it| format!("{} ({})", it.address, it.purpose)).collect();
    let list = list.join(", ");
    match machine.data_directory().is_in_use {
        _ if taken.is_empty() => Finding::ok("free"),
        true => Finding::ok(format!("pintle runs here already: {list}")),
        false if taken.iter().any(|it| it.is_required) => Finding::missing(format!("taken: {list}")),
        false => Finding::warning(format!("taken: {list}")),
    }
}

fn data_directory(machine: &dyn Machine) -> Finding {
    let directory = machine.data_directory();
    let path = directory.path.display();
    match directory.problem {
        Some(why) => Finding::missing(format!("{path}: {why}")),
        None if directory.is_in_use => Finding::ok(format!("{path}, in use by a pintle that runs")),
        None => Finding::ok(path.to_string()),
    }
}

fn space(machine: &dyn Machine) -> Finding {
    let shortages = machine.shortages();
    let amount = |signal: Signal, value: u64| match signal {
        Signal::Memory | Signal::AllocatableMemory | Signal::NodeDisk | Signal::ImageDisk => {
            format!("{} MiB", value >> 20)
        }
        Signal::NodeInodes | Signal::ImageInodes | Signal::Processes => value.to_string(),
    };
    let describe = |it: &super::machine::Shortage| {
        let (has, needs) = (amount(it.signal, it.available), amount(it.signal, it.threshold));
        format!("{} is {has}, below {needs}", it.signal.name())
    };
    let list: Vec<_> = shortages.iter().map(describe).collect();
    match list.is_empty() {
        true => Finding::ok("memory, disk and process ids are above the thresholds of eviction"),
        false => Finding::missing(list.join(", ")),
    }
}

fn swap(machine: &dyn Machine) -> Finding {
    match machine.swap() {
        Swap::Off => Finding::ok("off"),
        Swap::Allowed => Finding::ok("on, which the agent's configuration allows"),
        Swap::Refused => Finding::missing("on, which the agent's configuration refuses"),
    }
}

fn clock(machine: &dyn Machine) -> Finding {
    match machine.is_clock_behind() {
        true => Finding::missing("behind the date of this program"),
        false => Finding::ok("after the date of this program"),
    }
}

fn open_files(machine: &dyn Machine) -> Finding {
    let connections = apiserver::serve::Limits::default().max_connections;
    match machine.open_file_limit() {
        None => Finding::ok("no limit"),
        Some(limit) if limit <= connections.into() => Finding::warning(format!(
            "at most {limit}: a server would accept fewer connections than {connections}"
        )),
        Some(limit) => Finding::ok(format!("at most {limit}")),
    }
}

fn file_watches(machine: &dyn Machine) -> Finding {
    match machine.file_watch() {
        Ok(()) => Finding::ok("there are some left"),
        Err(why) => Finding::warning(why),
    }
}

#[cfg(test)]
mod tests;
