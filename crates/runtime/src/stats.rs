//! Resource usage as a runtime reports it.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerStats {
    pub id: String,
    pub name: String,
    pub attempt: u32,
    pub labels: BTreeMap<String, String>,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub writable_layer: Option<FilesystemStats>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxStats {
    pub id: String,
    pub name: String,
    pub uid: String,
    pub namespace: String,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub network_timestamp: i64,
    /// The default interface first.
    pub interfaces: Vec<InterfaceStats>,
    pub process_count: Option<u64>,
    pub containers: Vec<ContainerStats>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuStats {
    pub timestamp: i64,
    pub usage_core_nano_seconds: Option<u64>,
    pub usage_nano_cores: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryStats {
    pub timestamp: i64,
    pub working_set_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub usage_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesystemStats {
    pub timestamp: i64,
    pub mountpoint: String,
    pub used_bytes: Option<u64>,
    pub inodes_used: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    pub name: String,
    pub rx_bytes: Option<u64>,
    pub rx_errors: Option<u64>,
    pub tx_bytes: Option<u64>,
    pub tx_errors: Option<u64>,
}
