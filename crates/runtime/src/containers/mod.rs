//! Containers without a daemon.
//!
//! Each pod has a monitor, a process of this program that outlives the agent; it starts the pod's processes, which are
//! this program too until they become the container's. The agent keeps records on disk and finds everything again.

mod cgroup;
pub mod cni;
mod cni_call;
mod descriptor_stream;
mod details;
mod devices;
mod embedded;
mod garbage;
mod handlers;
pub mod init;
mod lifecycle;
mod message;
pub mod monitor;
mod monitor_client;
mod namespaces;
mod overlay;
mod overlay_probe;
mod port_connection;
mod process_spec;
mod program;
mod protocol;
mod record;
mod recovery;
pub mod requirements;
mod sandboxes;
mod spec;
mod state;
mod streams;
mod volumes;

pub use embedded::EmbeddedRuntime;
pub use monitor::INIT_COMMAND;
pub use monitor_client::MONITOR_COMMAND;
pub use record::used_layers;
pub use state::EmbeddedOptions;
