//! The container runtime in this process: its folders, and what it needs of the machine.

use ::runtime::RuntimeError;
use ::runtime::containers::cni::{BuiltInPlugin, CniFolders};
use ::runtime::containers::{EmbeddedOptions, EmbeddedRuntime, requirements};
use ::runtime::images::UnpackLimits;
use env::World;
use std::path::{Path, PathBuf};

/// The endpoint that stands for it.
pub const ENDPOINT: &str = "embedded";

/// Folders that do not depend on the agent's.
const RUN_DIR: &str = "/run/pintle/runtime";
const REGISTRIES: &str = "/etc/pintle/registries";
const HANDLERS: &str = "/etc/pintle/runtime-handlers";
const CNI_CONFIGURATIONS: &str = "/etc/cni/net.d";
const CNI_PLUGINS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];
const CGROUPS: &str = "/sys/fs/cgroup";

/// Its folder, below that of the agent.
pub fn root(root_dir: &Path) -> PathBuf {
    root_dir.join("runtime")
}

/// The requirements that this machine does not meet, as the end of a sentence.
pub fn missing() -> Option<String> {
    requirements::missing(Path::new(CGROUPS))
}

/// Whether the filesystems of containers beside a folder, which is made for the attempt, are overlays; else they are copies.
pub fn has_overlay(probe: &Path) -> bool {
    requirements::probe_overlay(probe)
}

/// Opens it, and finds the pods that are there.
pub fn open(
    root_dir: &Path,
    plugin: Option<BuiltInPlugin>,
    world: &World,
) -> Result<EmbeddedRuntime, RuntimeError> {
    EmbeddedRuntime::open(options(root_dir, plugin), world.clone())
}

/// Its options below a folder of the agent, with the CNI plugin of this program if it has one.
pub fn options(root_dir: &Path, plugin: Option<BuiltInPlugin>) -> EmbeddedOptions {
    EmbeddedOptions {
        root: root(root_dir),
        run: PathBuf::from(RUN_DIR),
        program: PathBuf::from("/proc/self/exe"),
        cni: CniFolders {
            configurations: PathBuf::from(CNI_CONFIGURATIONS),
            plugins: CNI_PLUGINS.map(PathBuf::from).to_vec(),
            built_in: plugin,
        },
        registries: PathBuf::from(REGISTRIES),
        handlers: PathBuf::from(HANDLERS),
        cgroup_root: PathBuf::from(CGROUPS),
        limits: UnpackLimits::default(),
        agent: concat!("pintle/", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}
