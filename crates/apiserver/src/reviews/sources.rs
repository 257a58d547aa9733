//! The components that reviews consult.

use crate::authentication::{Chain, Objects};
use crate::options::deployment::ComponentHealth;
use crate::resource_metrics::Collector;
use auth::Authorizer;
use std::sync::Arc;
use store::Store;

/// Authenticators, authorizer and components.
#[derive(Clone)]
pub struct Sources {
    pub authorizer: Arc<dyn Authorizer>,
    pub callers: Arc<Chain>,
    pub store: Arc<dyn Store>,
    /// The components that run in the same process without a lease.
    pub components: Arc<[(&'static str, ComponentHealth)]>,
    /// Leases, by which components of other processes are found.
    pub objects: Objects,
    /// The usage of nodes and pods.
    pub usage: Arc<Collector>,
}
