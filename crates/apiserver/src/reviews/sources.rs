//! The components that reviews consult.

use crate::authentication::Chain;
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
    /// The components that run in the same process.
    pub components: Arc<[(&'static str, ComponentHealth)]>,
    /// The usage of nodes and pods.
    pub usage: Arc<Collector>,
}
