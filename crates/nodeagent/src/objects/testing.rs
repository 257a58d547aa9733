//! A source of objects that a test fills.

use super::{ObjectError, ObjectRead, ObjectSource};
use api::authentication::v1::{TokenRequestSpec, TokenRequestStatus};
use api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use api::{Json, Resource, Time, from_json};
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects by namespace and name.
#[derive(Default)]
pub struct FixedObjects {
    pub config_maps: Mutex<BTreeMap<(String, String), ConfigMap>>,
    pub secrets: Mutex<BTreeMap<(String, String), Secret>>,
    pub services: Vec<Arc<Service>>,
    pub node: Mutex<Arc<Node>>,
    pub claims: Mutex<BTreeMap<(String, String), PersistentVolumeClaim>>,
    pub volumes: Mutex<BTreeMap<String, PersistentVolume>>,
    /// Counts the tokens; each is `token-<n>`.
    pub tokens: Mutex<u64>,
    /// Why tokens are refused.
    pub token_error: Mutex<Option<String>>,
    /// Seconds since the epoch at which a token is requested.
    pub now: Mutex<i64>,
}

/// Reads an object of a test.
pub fn object<T: Json>(json: &str) -> T {
    from_json(json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

impl FixedObjects {
    pub fn config_map(&self, json: &str) {
        let map: ConfigMap = object(json);
        self.config_maps.lock().insert((map.namespace().to_owned(), map.name().to_owned()), map);
    }

    pub fn secret(&self, json: &str) {
        let secret: Secret = object(json);
        self.secrets.lock().insert((secret.namespace().to_owned(), secret.name().to_owned()), secret);
    }
}

fn find<T: Clone>(
    objects: &Mutex<BTreeMap<(String, String), T>>,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<T, ObjectError> {
    let found = objects.lock().get(&(namespace.to_owned(), name.to_owned())).cloned();
    found.ok_or_else(|| ObjectError::NotFound(format!("{resource} \"{name}\" not found")))
}

impl ObjectSource for FixedObjects {
    fn config_map<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, Arc<ConfigMap>> {
        let found = find(&self.config_maps, "configmap", namespace, name);
        async move { found.map(Arc::new) }.boxed()
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, Arc<Secret>> {
        let found = find(&self.secrets, "secret", namespace, name);
        async move { found.map(Arc::new) }.boxed()
    }

    fn services(&self) -> Option<Vec<Arc<Service>>> {
        Some(self.services.clone())
    }

    fn node(&self) -> Arc<Node> {
        self.node.lock().clone()
    }

    fn claim<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, PersistentVolumeClaim> {
        let found = find(&self.claims, "persistentvolumeclaims", namespace, name);
        async move { found }.boxed()
    }

    fn volume<'a>(&'a self, name: &'a str) -> ObjectRead<'a, PersistentVolume> {
        let found = self.volumes.lock().get(name).cloned();
        let found =
            found.ok_or_else(|| ObjectError::NotFound(format!("persistentvolumes \"{name}\" not found")));
        async move { found }.boxed()
    }

    fn token<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        spec: TokenRequestSpec,
    ) -> ObjectRead<'a, TokenRequestStatus> {
        if let Some(error) = self.token_error.lock().clone() {
            return async move { Err(ObjectError::Other(error)) }.boxed();
        }
        let number = {
            let mut tokens = self.tokens.lock();
            *tokens += 1;
            *tokens
        };
        let expires = *self.now.lock() + spec.expiration_seconds.unwrap_or(3600);
        let status = TokenRequestStatus {
            token: format!("token-{number}"),
            expiration_timestamp: Some(Time(expires)),
            ..TokenRequestStatus::default()
        };
        async move { Ok(status) }.boxed()
    }
}
