//! Feature gates of the loops.

/// The feature gates that loops implement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// Tokens are kept in secrets for those only who ask for one.
    pub asked_tokens: bool,
    /// Claims of stateful sets may go with their set, or with pods of which there are fewer from now on.
    pub claim_retention: bool,
    /// Pods say what it costs to delete them.
    pub deletion_cost: bool,
    /// Pods that are disrupted say so in a condition.
    pub disruption_conditions: bool,
    /// Jobs say what failures of their pods mean.
    pub failure_policy: bool,
    /// Endpoint slices say for which zones their endpoints are.
    pub hints: bool,
    /// Claims that name no class get the default one when there comes to be one.
    pub late_default_class: bool,
    /// Of pods that are too many, ages are compared by their order of magnitude.
    pub magnitudes: bool,
    /// Several pods of a stateful set may be replaced at a time.
    pub max_unavailable: bool,
    /// Ordinals of stateful sets may begin with another number than zero.
    pub ordinals: bool,
    /// Pods of nodes that are said to be out of service are removed, and volumes detached from them.
    pub out_of_service: bool,
    /// Jobs say how many of their pods are ready.
    pub ready_pods: bool,
    /// Servers say in which versions they keep objects.
    pub storage_versions: bool,
    /// Cron jobs have a time zone.
    pub time_zones: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            asked_tokens: true,
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
