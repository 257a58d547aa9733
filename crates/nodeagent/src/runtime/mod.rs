//! The container runtimes of the agent: over gRPC ([`cri`]), simulated ([`simulated`]), and in this process (crate
//! `runtime`, which has the trait and its types).

pub mod cri;
pub mod labels;
pub mod simulated;

pub use ::runtime::{
    ByteReader, ByteStream, ByteWriter, Call, Capabilities, ContainerChange, ContainerConfig, ContainerInfo,
    ContainerLinux, ContainerState, ContainerStats, ContainerStatus, CpuStats, DetailsSubject, Device,
    DnsConfig, ExecOutput, ExecStreams, FilesystemStats, IdMapping, ImageInfo, InterfaceStats,
    LinuxResources, LinuxSecurity, MemoryStats, Mount, NamespaceMode, NamespaceOptions, PortMapping,
    PortStream, Propagation, RegistryAuth, Runtime, RuntimeCode, RuntimeCondition, RuntimeError,
    RuntimeEvent, RuntimeStatus, RuntimeVersion, SandboxConfig, SandboxInfo, SandboxLinux, SandboxStats,
    SandboxStatus, SeLinuxOptions, SecurityProfile, SharedRuntime, StreamOptions, TerminalSize,
    UserNamespace,
};
pub use ::runtime::{config, error, stats, status, streams};
