//! Volumes of CSI drivers.
//!
//! A driver registers with the agent ([`drivers`]), which writes it into the node's objects ([`node_info`]). A volume is
//! attached to the node by others ([`attach`]), staged once on the node, and published to each pod that uses it
//! ([`mount`]); the way back is in [`unmount`]. All state is in directories with a file of volume data each
//! ([`paths`], [`volume_data`]); after a restart it is read from there ([`reconstruct`]). At most one operation on a volume
//! runs at a time ([`volume_table`]), and it runs to its end even if the worker of the pod waits no longer.
//!
//! | module | what it is |
//! |---|---|
//! | [`csi_volumes`] | the volumes of the node: mount, unmount, usage |
//! | [`service`] | the driver's service on the node: a trait, and its client over gRPC |
//! | [`drivers`], [`node_info`] | registered drivers; CSINode and the node's annotation |
//! | [`volume`] | a volume of a pod as its objects describe it |
//! | [`storage_api`] | objects of the API: drivers, attachments, the node, claims |
//! | [`publish_context`] | secrets and attributes of a request |
//! | [`expand`] | volumes that grow |

pub mod attach;
pub mod csi_volumes;
pub mod drivers;
pub mod expand;
#[cfg(test)]
mod host_path_driver_tests;
pub mod mount;
pub mod mount_error;
pub mod node_info;
pub mod paths;
pub mod publish_context;
pub mod reconstruct;
pub mod service;
pub mod storage_api;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod unmount;
pub mod volume;
pub mod volume_data;
pub mod volume_table;

pub use csi_volumes::{CsiOptions, CsiOutcome, CsiVolumes};
pub use drivers::CsiDrivers;
pub use node_info::NodeInfoWriter;
pub use storage_api::{ApiStorage, StorageApi};
pub use volume::{CsiVolume, VolumeId};
