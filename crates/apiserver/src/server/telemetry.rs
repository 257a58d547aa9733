//! Metrics of outgoing calls, and tracing of requests.

use super::config::Config;
use crate::trace::Tracing;
use metrics::Registry;
use outbound::ClientMetrics;
use std::sync::Arc;

/// Registry, metrics of calls, and tracing.
pub(super) struct Telemetry {
    pub registry: Arc<Registry>,
    /// Metrics of all outgoing calls.
    pub calls: Arc<ClientMetrics>,
    pub tracing: Option<Tracing>,
}

/// Starts the egress proxies and the span exporter, and measures outgoing calls.
pub(super) fn start_telemetry(config: &Config) -> Telemetry {
    let registry = config.observability.metrics.clone();
    config.egress.begin(&registry, &config.world);
    let tracing = config.observability.tracing.clone().map(|configuration| {
        let instance = rest::metadata::new_uid(&config.world);
        let dialer = config.egress.control_plane.clone();
        Tracing::start(configuration, dialer, instance, config.world.clone(), &registry)
    });
    let calls = ClientMetrics::new(&registry);
    let clients = [
        config.authorization.webhook.as_ref().map(|it| &it.client),
        config.authentication.token_webhook.as_ref().map(|it| &it.client),
        config.authentication.oidc.as_ref().map(|it| &it.client),
    ];
    clients.into_iter().flatten().for_each(|client| client.measure(&calls));
    Telemetry { registry, calls, tracing }
}
