//! State that the loops over claims and over volumes share.

use super::free_volumes::FreeVolumes;
use super::metrics::OperationMetrics;
use crate::Context;
use crate::volumes::AnnotationKeys;
use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use api::storage::v1::StorageClass;
use client::{Informer, Key, Queue, WriteTracker};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often pending claims are reconciled again.
    pub sync_period: Duration,
    /// Whether volumes are provisioned for claims.
    pub provisioning: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { sync_period: Duration::from_secs(15), provisioning: true }
    }
}

/// Options, informers, queues and write trackers of both loops.
pub(super) struct Binder {
    pub context: Context,
    pub options: Options,
    pub keys: AnnotationKeys,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    pub classes: Informer<StorageClass>,
    pub pods: Informer<Pod>,
    pub free_volumes: Arc<Mutex<FreeVolumes>>,
    pub claim_queue: Queue<Key>,
    pub wrote_claims: WriteTracker<PersistentVolumeClaim>,
    /// By claim.
    pub wrote_volumes: WriteTracker<PersistentVolume>,
    /// Provisioning and deletion that external drivers have not finished.
    pub operations: Arc<OperationMetrics>,
}
