//! Settings of the node object.

use super::addresses::AddressOptions;
use super::capacity::{PodLimits, Reservations};
use api::core::v1::Taint;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOptions {
    pub name: String,
    pub addresses: AddressOptions,
    /// Whether the agent creates the node object.
    pub is_registered: bool,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub is_schedulable: bool,
    pub provider_id: String,
    /// Whether a cloud controller initializes the node.
    pub has_external_cloud: bool,
    /// Whether a controller attaches volumes.
    pub has_controlled_attach: bool,
    pub port: i32,
    pub pods: PodLimits,
    pub reservations: Reservations,
    /// Whether pods together are limited to what is not held back.
    pub is_allocatable_enforced: bool,
    /// The most images of the status; -1 for all.
    pub max_images: i32,
    /// The version of the agent: `v1.26.4`.
    pub version: String,
    /// How often the status is computed, and written if it changed.
    pub update_frequency: Duration,
    /// How often the status is written although it did not change.
    pub report_frequency: Duration,
    pub lease_duration: Duration,
    /// The directory of the agent, whose filesystem is the node's storage.
    pub root_dir: PathBuf,
    /// Whether local storage is counted.
    pub has_storage_isolation: bool,
    /// Whether persistent volumes can be folders of the node.
    pub has_local_volumes: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        NodeOptions {
            name: String::new(),
            addresses: AddressOptions::default(),
            is_registered: true,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            is_schedulable: true,
            provider_id: String::new(),
            has_external_cloud: false,
            has_controlled_attach: true,
            port: 10250,
            pods: PodLimits { max_pods: 110, pods_per_core: 0 },
            reservations: Reservations::default(),
            is_allocatable_enforced: true,
            max_images: 50,
            version: "v1.26.4".to_owned(),
            update_frequency: Duration::from_secs(10),
            report_frequency: Duration::from_secs(5 * 60),
            lease_duration: Duration::from_secs(40),
            root_dir: PathBuf::from("/var/lib/kubelet"),
            has_storage_isolation: true,
            has_local_volumes: false,
        }
    }
}
