//! Metrics of outgoing calls, and tracing of requests.

use super::config::Config;
use crate::trace::Tracing;
use metrics::Registry;
use outbound::ClientMetrics;
use std::sync::Arc;

/// See the module.
pub(super) struct Telemetry {
    pub registry: Arc<Registry>,
    /// Metrics of all outgoing calls.
    pub calls: Arc<ClientMetrics>,
    pub tracing: Option<Tracing>,
}

/// Starts the egress proxies and the span exporter, and measures outgoing calls.
pub(super) fn start_telemetry(config: &Config) -> Telemetry {
    let registry = config.observe.metrics.clone();
    config.egress.begin(&registry, &config.world);
    let tracing = config.observe.tracing.clone().map(|configuration| {
        let instance = rest::metadata::new_uid(&config.world);
        let way = config.egress.control_plane.clone();
        Tracing::start(configuration, way, instance, config.world.clone(), &registry)
    });
    let calls = ClientMetrics::new(&registry);
    let clients = [
        config.permission.webhook.as_ref().map(|it| &it.caller),
        config.identity.token_webhook.as_ref().map(|it| &it.caller),
        config.identity.oidc.as_ref().map(|it| &it.caller),
    ];
    clients.into_iter().flatten().for_each(|client| client.measure(&calls));
    Telemetry { registry, calls, tracing }
}
