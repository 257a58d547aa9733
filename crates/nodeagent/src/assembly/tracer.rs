//! The tracer of the configuration.

use crate::configuration::{Configuration, Gates, StartError};
use env::World;
use metrics::Registry;
use outbound::trace::{Tracer, TracerOptions};
use outbound::{Dialer, Endpoint};
use schema::Value;
use std::sync::Arc;

/// The collector of a configuration that names none.
const ENDPOINT: &str = "localhost:4317";

/// Starts the tracer, if the configuration has one. `service` and `host` name the process in its spans.
pub fn tracer(
    configuration: &Configuration,
    gates: &Gates,
    (service, host): (&str, &str),
    world: &World,
    registry: &Registry,
) -> Result<Option<Arc<Tracer>>, StartError> {
    let Some(settings) = configuration.at(&["tracing"]).filter(|it| !it.is_null()) else { return Ok(None) };
    if !gates.is_open("KubeletTracing") {
        return Ok(None);
    }
    let text = settings.at(&["endpoint"]).and_then(Value::as_str).unwrap_or(ENDPOINT);
    let endpoint: Endpoint = text.parse().map_err(|why| {
        StartError::new(format!("failed to construct kubelet dependencies: tracing.endpoint: {why}"))
    })?;
    let rate = settings.at(&["samplingRatePerMillion"]).and_then(Value::as_int).unwrap_or(0);
    let options = TracerOptions {
        endpoint,
        per_million: u32::try_from(rate).unwrap_or(0),
        resource: vec![("service.name", service.to_owned()), ("host.name", host.to_owned())],
    };
    Ok(Some(Arc::new(Tracer::start(options, Dialer::Direct, world.clone(), registry))))
}
