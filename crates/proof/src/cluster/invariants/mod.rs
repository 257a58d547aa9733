//! The invariants of a cluster, under all failures: folds over its history.
//!
//! | module | asserts |
//! |---|---|
//! | [`availability`] | a rollout keeps `replicas - maxUnavailable` pods ready |
//! | [`pod_identity`] | a pod vanishes only after its containers have ended: no two pods of a StatefulSet's name |
//! | [`jobs`] | each pod of a Job is counted once, none is forgotten, an end is final |
//! | [`garbage`] | an object with a living owner stays, an orphaned one stays, blocking dependents go first |
//! | [`quota`] | neither usage nor `status.used` is above a quota |
//! | [`leases`] | a lease has one holder, and a component one leader |
//! | [`budgets`] | no eviction without a disruption that its budgets allow |
//! | [`finalizers`] | no object vanishes before its finalizer was run |
//! | [`convergence`] | after the failures the cluster converges |
//!
//! Invariants: each of them is broken by a planted history (`tests`); none knows more than the API shows.

pub mod availability;
mod breach;
pub mod budgets;
pub mod convergence;
pub mod finalizers;
pub mod garbage;
pub mod jobs;
pub mod leases;
pub mod pod_identity;
pub mod quota;
#[cfg(test)]
mod tests;

pub use breach::{Breach, Invariant};

/// All of them, at their beginning.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(availability::Availability::default()),
        Box::new(pod_identity::PodIdentity),
        Box::new(jobs::Jobs::default()),
        Box::new(garbage::Garbage::default()),
        Box::new(quota::Quota),
        Box::new(leases::Leases::default()),
        Box::new(budgets::Budgets::default()),
        Box::new(finalizers::Finalizers::default()),
    ]
}
