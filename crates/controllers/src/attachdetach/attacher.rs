//! The state of the controller.

use super::decide::NodeAttachment;
use super::flex::FlexAttachments;
use super::metrics::AttachMetrics;
use crate::Context;
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use client::{Informer, WriteTracker};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// After how long a volume that the node reports in use is detached from a node that is not ready.
    pub force_detach_after: Duration,
    /// The directory of FlexVolume drivers; without one there are none.
    pub flex_directory: Option<PathBuf>,
    /// How often FlexVolume drivers must confirm that volumes are attached; `None` for never.
    pub verify_period: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            force_detach_after: Duration::from_secs(6 * 60),
            flex_directory: None,
            verify_period: Some(Duration::from_secs(60)),
        }
    }
}

/// See the module.
pub(super) struct Attacher {
    pub context: Context,
    pub options: Options,
    pub pods: Informer<Pod>,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    pub drivers: Informer<CSIDriver>,
    pub csi_nodes: Informer<CSINode>,
    pub nodes: WriteTracker<Node>,
    /// Writes by node, and by volume.
    pub attachments: WriteTracker<VolumeAttachment>,
    /// Since when each attachment waits to be detached.
    pub waiting_since: Mutex<HashMap<NodeAttachment, Duration>>,
    /// The last warning recorded about each attachment that fails.
    pub warnings: Mutex<HashMap<NodeAttachment, String>>,
    pub metrics: AttachMetrics,
    pub flex: Arc<FlexAttachments>,
}
