//! Credentials, metrics and egress that all calls to webhooks share.

use super::metrics::Counters;
use crate::outgoing::webhook_target::Way;
use env::World;
use outbound::{ClientMetrics, Users};
use std::sync::Arc;

/// See the module.
pub(super) struct Clients {
    pub users: Users,
    pub counters: Counters,
    pub calls: Arc<ClientMetrics>,
    pub way: Way,
    pub world: World,
}
