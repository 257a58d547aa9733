//! Self-registration: objects by which the server describes itself, maintained while it runs.
//!
//! Invariant: no failure here stops the server; failures are logged and retried.

pub(crate) mod cluster_keys;
pub(crate) mod identity_lease;
pub(crate) mod kubernetes_service;
pub(crate) mod storage_versions;

pub use cluster_keys::ForeignKeys;

use crate::authentication::TrustMap;
use env::{Interval, Upkeep};
use identity_lease::IdentityLease;
use kubernetes_service::KubernetesService;
use rest::Api;
use std::sync::Arc;
use std::time::Duration;
use storage_versions::StorageVersions;

/// Interval of reconciliation.
const INTERVAL: Duration = Duration::from_secs(10);

/// Retries of a write after a conflict, and the pause between them.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The objects of this server.
pub(crate) struct SelfRegistration {
    pub service: Option<KubernetesService>,
    pub trusted: TrustMap,
    pub lease: Option<IdentityLease>,
    pub versions: Option<StorageVersions>,
}

impl SelfRegistration {
    /// Creates the objects that must exist before the first request.
    pub async fn begin(&mut self, api: &Arc<Api>) {
        self.reconcile_discovery(api).await;
        if let (Some(versions), Some(lease)) = (&mut self.versions, &mut self.lease) {
            lease.maintain(api).await;
            versions.maintain(api).await;
        }
    }

    pub async fn run(mut self, api: Arc<Api>) {
        // other servers compare leases as well, but their own is renewed first
        let mut every = Interval::upkeep(&api.world, Upkeep::renewal(INTERVAL));
        loop {
            every.tick().await;
            api.storage.trim();
            self.reconcile_discovery(&api).await;
            if let Some(lease) = &mut self.lease {
                lease.maintain(&api).await;
            }
            if let Some(versions) = &mut self.versions {
                versions.maintain(&api).await;
            }
        }
    }

    /// Reconciles the Service and the trust ConfigMap.
    async fn reconcile_discovery(&self, api: &Arc<Api>) {
        if let Err(why) = self.trusted.ensure(api).await {
            tracing::warn!(%why, "the extension-apiserver-authentication ConfigMap could not be reconciled");
        }
        let Some(service) = &self.service else { return };
        let mut tries = 1;
        loop {
            match service.ensure(api).await {
                Ok(()) => return,
                // another server of the same store wrote concurrently: read its change and retry
                Err(why) if why.code == 409 && tries < TRIES => tries += 1,
                Err(why) => {
                    tracing::warn!(%why, "the kubernetes Service could not be reconciled");
                    return;
                }
            }
            env::io::sleep(PAUSE).await;
        }
    }
}
