//! Feature gates of the loops.

/// The feature gates that loops implement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// Secrets hold tokens only for accounts that request one (`LegacyServiceAccountTokenNoAutoGeneration`).
    pub no_token_auto_generation: bool,
    /// Claims of stateful sets may be deleted with the set or when it is scaled down (`StatefulSetAutoDeletePVC`).
    pub claim_retention: bool,
    /// Pods have a deletion cost (`PodDeletionCost`).
    pub deletion_cost: bool,
    /// Disrupted pods have a condition (`PodDisruptionConditions`).
    pub disruption_conditions: bool,
    /// Jobs have a pod failure policy (`JobPodFailurePolicy`).
    pub failure_policy: bool,
    /// Endpoint slices have topology hints (`TopologyAwareHints`).
    pub hints: bool,
    /// Claims without a class get the default one when it is created (`RetroactiveDefaultStorageClass`).
    pub late_default_class: bool,
    /// Pods to delete are ranked by the magnitude of their age (`LogarithmicScaleDown`).
    pub magnitudes: bool,
    /// Several pods of a stateful set may be replaced at a time (`MaxUnavailableStatefulSet`).
    pub max_unavailable: bool,
    /// Ordinals of stateful sets may start at another number than zero (`StatefulSetStartOrdinal`).
    pub ordinals: bool,
    /// Pods of nodes with the out-of-service taint are removed, and their volumes detached (`NodeOutOfServiceVolumeDetach`).
    pub out_of_service: bool,
    /// Jobs count their ready pods (`JobReadyPods`).
    pub ready_pods: bool,
    /// Servers publish the versions in which they store objects (`StorageVersionAPI`).
    pub storage_versions: bool,
    /// Cron jobs have a time zone (`CronJobTimeZone`).
    pub time_zones: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            no_token_auto_generation: true,
            claim_retention: false,
            deletion_cost: true,
            disruption_conditions: true,
            failure_policy: true,
            hints: true,
            late_default_class: true,
            magnitudes: true,
            max_unavailable: false,
            ordinals: false,
            out_of_service: true,
            ready_pods: true,
            storage_versions: false,
            time_zones: true,
        }
    }
}
