//! Credentials, metrics and egress that all calls to webhooks share.

use super::metrics::Counters;
use crate::faults::Faults;
use crate::outgoing::webhook_target::ServiceRouting;
use env::World;
use outbound::{ClientMetrics, Users};
use std::sync::Arc;

/// Shared state of webhook clients.
pub(super) struct Clients {
    pub users: Users,
    pub counters: Counters,
    pub calls: Arc<ClientMetrics>,
    pub routing: ServiceRouting,
    pub world: World,
    pub faults: Option<Arc<Faults>>,
}
