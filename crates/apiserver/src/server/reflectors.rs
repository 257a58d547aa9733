//! Background tasks of a running server that follow objects and files.

use super::storage::OpenKeys;
use crate::aggregation;
use crate::apiextensions::Definitions;
use crate::authorization::roles;
use crate::flowcontrol::Fairness;
use rest::Api;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Reflectors that are not started yet.
pub(super) struct Reflectors {
    /// Follows custom resource definitions.
    pub definitions: Option<Definitions>,
    /// Follows APIServices.
    pub api_services: Option<aggregation::Reflector>,
    /// Reloads the configuration of encryption at rest.
    pub keys: OpenKeys,
}

impl Reflectors {
    /// Starts all, with those of roles and of flow control. They end when the set is dropped.
    pub fn spawn(
        self,
        roles: roles::Reflector,
        fairness: Option<&Arc<Fairness>>,
        api: &Arc<Api>,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(roles.follow());
        if let (Some(reloader), Some(keyring)) = (self.keys.reload, self.keys.keyring) {
            tasks.spawn(async move { reloader.run(&keyring).await });
        }
        if let Some(definitions) = self.definitions {
            tasks.spawn(definitions.follow());
        }
        if let Some(api_services) = self.api_services {
            tasks.spawn(api_services.follow());
        }
        if let Some(fairness) = fairness {
            tasks.spawn(fairness.clone().follow(api.clone()));
        }
        tasks
    }
}
