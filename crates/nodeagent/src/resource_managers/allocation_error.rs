//! Why a pod cannot have the resources that it needs, in upstream's words.

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error("Resources cannot be allocated with Topology locality")]
    TopologyAffinity,
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    SmtAlignment { requested: usize, per_core: usize },
    #[error("Allocate failed due to {0}, which is unexpected")]
    Unexpected(String),
}

impl AllocationError {
    /// The reason of the pod's status.
    pub fn reason(&self) -> &'static str {
        match self {
            AllocationError::TopologyAffinity => "TopologyAffinityError",
            AllocationError::SmtAlignment { .. } => "SMTAlignmentError",
            AllocationError::Unexpected(_) => "UnexpectedAdmissionError",
        }
    }
}
