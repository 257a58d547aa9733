//! State of the loop.

use super::metrics::AttachMetrics;
use crate::Context;
use client::{Informer, WriteTracker};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long an agent is waited for that uses a volume and is not heard of.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { patience: Duration::from_secs(6 * 60) }
    }
}

/// A node, and an attachment to it.
pub(super) type At = (String, String);

/// Options, informers and write trackers of the loop.
pub(super) struct Attacher {
    pub context: Context,
    pub options: Options,
    pub pods: Informer<Pod>,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    pub drivers: Informer<CSIDriver>,
    pub nodes: WriteTracker<Node>,
    /// By node, and by volume.
    pub attachments: WriteTracker<VolumeAttachment>,
    /// Since when it is tried to detach something.
    pub since: Mutex<HashMap<At, Duration>>,
    /// The last warning recorded about each attachment that fails.
    pub told: Mutex<HashMap<At, String>>,
    pub metrics: AttachMetrics,
}
