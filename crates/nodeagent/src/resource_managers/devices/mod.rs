//! The device manager: devices of plugins for containers, by the device plugin API v1beta1.
//!
//! | module | what it is |
//! |---|---|
//! | [`registration`] | the socket at which plugins register |
//! | [`plugin`] | calls to a plugin |
//! | [`device`], [`device_state`], [`hints`], [`choice`] | devices and who has them, NUMA nodes, the choice for a container |
//! | [`run_options`] | what a container sees of its devices |
//! | [`checkpoint`] | the file `kubelet_internal_checkpoint` |
//! | [`device_manager`] | the manager |

pub mod checkpoint;
pub mod choice;
pub mod device;
pub mod device_manager;
pub mod device_state;
pub mod hints;
pub mod plugin;
pub mod registration;
pub mod run_options;

pub use device_manager::{DeviceAmounts, DeviceManager, DeviceManagerOptions};
pub use run_options::DeviceRunOptions;

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
