//! Registers the built-in kinds.

use super::error::StartError;
use crate::authentication::service_accounts::{self, Issuer};
use crate::reviews::{self, Sources};
use metrics::Registry;
use rest::Api;
use std::sync::Arc;
use std::time::Duration;

/// Which built-in kinds are served, and how.
pub(super) struct KindOptions<'a> {
    pub serving: &'a kinds::Serving,
    pub kinds: kinds::Options,
    pub event_ttl: Duration,
}

/// Registers the built-in kinds with their hooks, virtual resources among them.
pub(super) fn build_api(
    mut api: Api,
    options: &KindOptions<'_>,
    sources: &Sources,
    issuer: Option<&Arc<Issuer>>,
    registry: &Registry,
) -> Result<Arc<Api>, StartError> {
    let KindOptions { serving, kinds: of_kinds, event_ttl } = *options;
    api.set_gates(serving.gates.clone(), serving.closed.clone());
    api.set_scheme(kinds::scheme::find_type);
    api.measure(registry);
    let api = Arc::new(api);
    for (kind, mut hooks) in kinds::builtin_serving(of_kinds, serving) {
        if kind.expires {
            hooks.storage.lifetime_seconds = Some(event_ttl.as_secs() as i64);
        }
        hooks.delete.uncollected |= of_kinds.uncollected;
        hooks.virtual_resource = reviews::of(&kind, sources);
        // virtual resources are never stored, so an empty list stays distinct from none
        hooks.storage.keeps_empty_lists |= hooks.virtual_resource.is_some();
        hooks.subresources.virtuals.extend(issuer.and_then(|it| service_accounts::part(&kind, it)));
        let stored = kinds::stored(&kind).unwrap_or_else(|| kind.clone());
        api.register_as(kind, stored, hooks)?;
    }
    Ok(api)
}
