//! The volumes of pods: what they are made of, and their mounts on the node.
//!
//! | module | what it is |
//! |---|---|
//! | [`volume_manager`] | the volumes of all pods: mount, refresh, unmount |
//! | [`plugin`] | the steps of one volume, by its type |
//! | [`payload`], [`atomic_writer`], [`tokens`] | files from the API, and their updates |
//! | [`empty_dir`], [`host_path`], [`claims`] | the other types |
//! | [`csi`] | volumes of CSI drivers |
//! | [`flex`] | volumes of FlexVolume drivers |
//! | [`local`] | volumes that are directories or devices of the node |
//! | [`block_map`], [`format`] | devices for containers, and devices with filesystems |
//! | [`node_affinity`] | the nodes that can reach a volume |
//! | [`growth`] | volumes of either that grow |
//! | [`attach_waiters`] | pods that wait for volumes of either to be attached |
//! | [`ownership`] | `fsGroup` |
//! | [`subpath`] | paths inside volumes |
//! | [`mounts`] | the result for containers |

pub mod atomic_writer;
pub mod attach_waiters;
pub mod block_map;
pub mod claims;
pub mod csi;
pub mod empty_dir;
pub mod flex;
pub mod format;
pub mod growth;
pub mod host_path;
pub mod local;
pub mod mounts;
pub mod node_affinity;
pub mod ownership;
pub mod payload;
pub mod plugin;
pub mod subpath;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod volume_manager;

pub use mounts::{MountedVolume, PodMounts};
pub use volume_manager::{MountOutcome, VolumeError, VolumeManager};
