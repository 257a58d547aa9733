//! The cgroups of the node's pods.
//!
//! | module | what it is |
//! |---|---|
//! | [`cgroup_manager`] | the cgroups of all pods, of classes, of each pod |
//! | [`name`] | names, spelled by the cgroupfs and systemd drivers |
//! | [`limits`] | the limits of a pod, a class, the node |
//! | [`files`] | the filesystems of versions 1 and 2 |
//! | [`processes`] | the agent and the system in cgroups of their own |
//! | [`slices`], [`systemd`] | slices of systemd, over its bus |

pub mod cgroup_manager;
pub mod files;
pub mod limits;
pub mod name;
pub mod processes;
pub mod slices;
pub mod systemd;

pub use cgroup_manager::{CgroupManager, CgroupOptions, MemoryReserve};
pub use files::CgroupFiles;
pub use limits::{CgroupLimits, LimitOptions};
pub use name::{CgroupDriver, CgroupName};
