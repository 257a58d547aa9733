//! The container runtime: the trait [`Runtime`] with its plain types, and an implementation without a daemon.
//!
//! The notions are those of the CRI (sandboxes, containers, images); the types are plain, so that an implementation may
//! live in another process, in this one, or in a test. Streams are streams of bytes: a runtime that serves them by a URL
//! connects to it itself.
//!
//! Invariants: every id comes from the runtime. `stop_*` and `remove_*` of an absent sandbox, container or image
//! succeed. Times are nanoseconds since the epoch, zero if absent.

pub mod config;
pub mod containers;
pub mod error;
pub mod images;
pub mod stats;
pub mod status;
pub mod steps;
pub mod streams;

pub use config::{
    Capabilities, ContainerConfig, ContainerLinux, Device, DnsConfig, IdMapping, LinuxResources,
    LinuxSecurity, Mount, NamespaceMode, NamespaceOptions, PortMapping, Propagation, RegistryAuth,
    SandboxConfig, SandboxLinux, SeLinuxOptions, SecurityProfile, UserNamespace,
};
pub use error::{RuntimeCode, RuntimeError};
pub use stats::{ContainerStats, CpuStats, FilesystemStats, InterfaceStats, MemoryStats, SandboxStats};
pub use status::{
    ContainerChange, ContainerInfo, ContainerState, ContainerStatus, DetailsSubject, ImageInfo,
    RuntimeCondition, RuntimeEvent, RuntimeStatus, RuntimeVersion, SandboxInfo, SandboxStatus,
};
pub use streams::{
    ByteReader, ByteStream, ByteWriter, ExecOutput, ExecStreams, PortStream, StreamOptions, TerminalSize,
};

use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The future of a call.
pub type Call<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// The shared handle that the parts of the agent hold.
pub type SharedRuntime = Arc<dyn Runtime>;

/// Runs sandboxes and containers, and keeps images. See the module.
pub trait Runtime: Send + Sync + 'static {
    fn version(&self) -> Call<'_, RuntimeVersion>;
    fn status(&self) -> Call<'_, RuntimeStatus>;
    /// Details for people, as JSON texts by name; their form may change.
    fn details<'a>(&'a self, _: DetailsSubject<'a>) -> Call<'a, BTreeMap<String, String>> {
        Box::pin(async { Ok(BTreeMap::new()) })
    }

    /// Creates and starts a sandbox; `handler` is the handler of the pod's RuntimeClass, or empty. Returns its id.
    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig, handler: &'a str) -> Call<'a, String>;
    /// Ends the processes of a sandbox and releases its network.
    fn stop_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()>;
    /// Removes a sandbox with its containers.
    fn remove_sandbox<'a>(&'a self, id: &'a str) -> Call<'a, ()>;
    /// The sandboxes of a pod, by its uid, or all.
    fn sandboxes<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<SandboxInfo>>;
    fn sandbox_status<'a>(&'a self, id: &'a str) -> Call<'a, SandboxStatus>;

    /// Creates a container in a sandbox. Returns its id.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String>;
    fn start_container<'a>(&'a self, id: &'a str) -> Call<'a, ()>;
    /// Sends the stop signal, and SIGKILL after `grace`.
    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Call<'a, ()>;
    fn remove_container<'a>(&'a self, id: &'a str) -> Call<'a, ()>;
    /// The containers of a pod, by its uid, or all.
    fn containers<'a>(&'a self, uid: Option<&'a str>) -> Call<'a, Vec<ContainerInfo>>;
    fn container_status<'a>(&'a self, id: &'a str) -> Call<'a, ContainerStatus>;
    /// Changes the limits of a running container.
    fn update_resources<'a>(&'a self, id: &'a str, resources: &'a LinuxResources) -> Call<'a, ()>;
    /// Opens the log file of a container again, after a rotation.
    fn reopen_log<'a>(&'a self, id: &'a str) -> Call<'a, ()>;
    /// Writes a checkpoint of a container to the archive at `location`.
    fn checkpoint<'a>(&'a self, id: &'a str, location: &'a str, timeout: Duration) -> Call<'a, ()>;

    /// Runs a command to its end. The code of an error is `DeadlineExceeded` if `timeout` has passed; zero is no
    /// timeout.
    fn exec_sync<'a>(&'a self, id: &'a str, command: &'a [String], timeout: Duration)
    -> Call<'a, ExecOutput>;
    /// Runs a command with streams.
    fn exec<'a>(
        &'a self,
        id: &'a str,
        command: &'a [String],
        options: StreamOptions,
    ) -> Call<'a, ExecStreams>;
    /// Streams of a container's own process.
    fn attach<'a>(&'a self, id: &'a str, options: StreamOptions) -> Call<'a, ExecStreams>;
    /// The lines of a container's log up to now, in the format of log files, if the runtime writes no file.
    fn log<'a>(&'a self, _: &'a str) -> Call<'a, Option<Vec<u8>>> {
        Box::pin(async { Ok(None) })
    }
    /// Connects to a port in the network of a sandbox.
    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Call<'a, PortStream>;

    /// Usage of all containers.
    fn container_stats(&self) -> Call<'_, Vec<ContainerStats>>;
    /// Usage of all sandboxes, of runtimes that have it.
    fn sandbox_stats(&self) -> Call<'_, Vec<SandboxStats>>;

    fn images(&self) -> Call<'_, Vec<ImageInfo>>;
    /// An image by name, digest or id, if it is present.
    fn image<'a>(&'a self, image: &'a str) -> Call<'a, Option<ImageInfo>>;
    /// Pulls an image for a pod. Returns its reference.
    fn pull<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a RegistryAuth>,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, String>;
    fn remove_image<'a>(&'a self, image: &'a str) -> Call<'a, ()>;
    /// Usage of the filesystems that hold images.
    fn image_fs(&self) -> Call<'_, Vec<FilesystemStats>>;

    /// Tells the runtime the pod network of the node.
    fn update_pod_cidr<'a>(&'a self, cidr: &'a str) -> Call<'a, ()>;

    /// Changes of containers, from now on; the stream ends when the runtime goes away. The code of an error is
    /// `Unimplemented` if the runtime has no events.
    fn events(&self) -> Call<'_, mpsc::Receiver<RuntimeEvent>>;
}
