//! Objects by which the server describes itself, kept up to date while it runs.
//!
//! What always holds: nothing of it can stop the server. One without its service still serves all who know its
//! address; what cannot be kept right is logged and tried again.

pub(crate) mod cluster_keys;
pub(crate) mod identity_lease;
pub(crate) mod kubernetes_service;
pub(crate) mod storage_versions;

pub use cluster_keys::ForeignKeys;

use crate::authentication::TrustMap;
use identity_lease::OwnLease;
use kubernetes_service::OwnService;
use rest::Api;
use std::sync::Arc;
use std::time::Duration;
use storage_versions::StorageVersions;

/// How often everything is looked at.
const EVERY: Duration = Duration::from_secs(10);

/// How often a write is tried again that another server was faster with, and how long is waited in between.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Upkeep {
    pub service: Option<OwnService>,
    pub trusted: TrustMap,
    pub lease: Option<OwnLease>,
    pub versions: Option<StorageVersions>,
}

impl Upkeep {
    /// What must be there before the first request.
    pub async fn begin(&mut self, api: &Arc<Api>) {
        self.keep_found(api).await;
        if let (Some(versions), Some(lease)) = (&mut self.versions, &mut self.lease) {
            lease.keep(api).await;
            versions.keep(api).await;
        }
    }

    pub async fn go_on(mut self, api: Arc<Api>) {
        let mut every = tokio::time::interval(EVERY);
        loop {
            every.tick().await;
            api.storage.trim();
            self.keep_found(&api).await;
            if let Some(lease) = &mut self.lease {
                lease.keep(&api).await;
            }
            if let Some(versions) = &mut self.versions {
                versions.keep(&api).await;
            }
        }
    }

    /// How others find the server, and whom they believe.
    async fn keep_found(&self, api: &Arc<Api>) {
        if let Err(why) = self.trusted.ensure(api).await {
            tracing::warn!(%why, "other servers of the cluster cannot read whom to believe");
        }
        let Some(service) = &self.service else { return };
        let mut tries = 1;
        loop {
            match service.ensure(api).await {
                Ok(()) => return,
                // a server of the same store that starts at the same time was faster: its change is looked at next
                Err(why) if why.code == 409 && tries < TRIES => tries += 1,
                Err(why) => {
                    tracing::warn!(%why, "the service of the server itself is not as it should be");
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
