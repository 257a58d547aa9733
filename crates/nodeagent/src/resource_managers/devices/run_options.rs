//! What a container sees of its devices.

use super::device::AllocatedDevices;
use crate::runtime::{Device, Mount};
use std::collections::BTreeMap;

/// Additions to the configuration of a container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceRunOptions {
    pub envs: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub annotations: BTreeMap<String, String>,
}

impl DeviceRunOptions {
    /// Adds the response of a plugin. The first plugin that sets a variable, path or annotation wins.
    pub fn add(&mut self, allocated: &AllocatedDevices) {
        let response = &allocated.response;
        for (name, value) in &response.envs {
            if !self.envs.iter().any(|(known, _)| known == name) {
                self.envs.push((name.clone(), value.clone()));
            }
        }
        for it in &response.devices {
            if !self.devices.iter().any(|known| known.container_path == it.container_path) {
                self.devices.push(Device {
                    container_path: it.container_path.clone(),
                    host_path: it.host_path.clone(),
                    permissions: it.permissions.clone(),
                });
            }
        }
        for it in &response.mounts {
            if !self.mounts.iter().any(|known| known.container_path == it.container_path) {
                self.mounts.push(Mount {
                    container_path: it.container_path.clone(),
                    host_path: it.host_path.clone(),
                    is_readonly: it.read_only,
                    ..Mount::default()
                });
            }
        }
        for (name, value) in &response.annotations {
            self.annotations.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}
