//! Facts about a machine, as the requirements need them.

use nodeagent::cgroups::CgroupDriver;
use nodeagent::eviction::thresholds::Signal;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A machine that is checked. A method may take as long as the part of the machine that it calls takes to answer.
pub trait Machine {
    fn is_root(&self) -> bool;
    /// The capabilities of a node that this process does not have, and whether a node can do without.
    fn missing_capabilities(&self) -> Vec<MissingCapability>;
    fn kernel_release(&self) -> String;
    /// The hierarchies of cgroups; none if none is mounted.
    fn cgroups(&self) -> Option<Cgroups>;
    /// The container runtime, or why there is none.
    fn runtime(&self) -> Result<RuntimeFacts, RuntimeProblem>;
    /// The driver of the agent's configuration.
    fn cgroup_driver(&self) -> CgroupDriver;
    /// Whether slices of systemd can be made.
    fn has_system_bus(&self) -> bool;
    /// The configuration of another pod network.
    fn other_network(&self) -> Result<Option<PathBuf>, String>;
    /// Tries the rules of services and pods.
    fn packet_filter(&self) -> Result<(), String>;
    fn connection_tracking(&self) -> Result<(), String>;
    fn has_veth(&self) -> Result<bool, String>;
    fn has_vxlan(&self) -> Result<bool, String>;
    /// Settings of forwarding that are off, and cannot be turned on.
    fn closed_forwarding(&self) -> Vec<&'static str>;
    fn node_name(&self) -> String;
    fn node_address(&self) -> Result<IpAddr, String>;
    /// The ports that are taken, with their purpose.
    fn taken_ports(&self) -> Vec<PortUse>;
    fn data_directory(&self) -> DataDirectory;
    /// What the machine has less of than the agent's thresholds of eviction.
    fn shortages(&self) -> Vec<Shortage>;
    /// Whether the machine swaps, and the agent's configuration refuses that.
    fn swap(&self) -> Swap;
    /// Whether the clock is behind the date of this program.
    fn is_clock_behind(&self) -> bool;
    /// The most files that this process may open; none if there is no limit.
    fn open_file_limit(&self) -> Option<u64>;
    /// Tries to watch a file.
    fn file_watch(&self) -> Result<(), String>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingCapability {
    pub name: &'static str,
    pub is_required: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    pub is_v2: bool,
    pub missing_controllers: Vec<&'static str>,
    /// The hierarchies in which no cgroup can be made.
    pub read_only: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeFacts {
    pub endpoint: String,
    /// Name and version.
    pub version: String,
    /// What the runtime says is not ready; its network is not, before there is one.
    pub not_ready: Option<String>,
    /// The folder whose filesystem takes no overlays, so that each container gets a copy of its image there.
    pub copies_in: Option<PathBuf>,
    pub cgroup_driver: Option<CgroupDriver>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeProblem {
    /// The socket is there, and this user may not use it.
    NotPermitted(String),
    /// The runtime has no CRI v1.
    NoCri(String),
    /// The socket, and what happened.
    NoAnswer(String, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortUse {
    pub address: SocketAddr,
    pub purpose: &'static str,
    /// Whether the node works without it.
    pub is_required: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirectory {
    pub path: PathBuf,
    pub problem: Option<String>,
    /// Whether a server or a node that runs has locked it.
    pub is_in_use: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub signal: Signal,
    pub available: u64,
    /// Below this, pods are evicted.
    pub threshold: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    Off,
    Allowed,
    Refused,
}
