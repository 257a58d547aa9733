//! Feature gates that the configuration depends on.

/// Which gates are on; the defaults are those of 1.26.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gates {
    pub pod_scheduling_readiness: bool,
    pub dynamic_resource_allocation: bool,
    pub volume_capacity_priority: bool,
}
