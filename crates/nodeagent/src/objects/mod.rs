//! The API objects that pods refer to: config maps, secrets, services, claims, volumes and tokens.
//!
//! [`ObjectSource`] is what the makers of environments and volumes see; [`cache`] implements it over the API by one of
//! the three strategies of the configuration. A test hands in a source of its own.

pub mod cache;
pub mod references;
#[cfg(test)]
pub mod testing;

use api::authentication::v1::{TokenRequestSpec, TokenRequestStatus};
use api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Why an object could not be had. Its display is the text that events and statuses quote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The server has no such object.
    #[error("{0}")]
    NotFound(String),
    /// The server refused, or did not answer.
    #[error("{0}")]
    Other(String),
}

impl ObjectError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, ObjectError::NotFound(_))
    }
}

impl From<client::Error> for ObjectError {
    fn from(error: client::Error) -> Self {
        match error.is_not_found() {
            true => ObjectError::NotFound(error.message()),
            false => ObjectError::Other(error.message()),
        }
    }
}

/// The future of a read.
pub type ObjectRead<'a, T> = BoxFuture<'a, Result<T, ObjectError>>;

/// Reads objects of the API. See the module.
pub trait ObjectSource: Send + Sync + 'static {
    fn config_map<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, Arc<ConfigMap>>;
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, Arc<Secret>>;
    /// The services of all namespaces, or `None` if they were never read.
    fn services(&self) -> Option<Vec<Arc<Service>>>;
    /// The node of the agent: as it was seen last, or as the agent registers it.
    fn node(&self) -> Arc<Node>;
    fn claim<'a>(&'a self, namespace: &'a str, name: &'a str) -> ObjectRead<'a, PersistentVolumeClaim>;
    fn volume<'a>(&'a self, name: &'a str) -> ObjectRead<'a, PersistentVolume>;
    /// Requests a token of a service account.
    fn token<'a>(
        &'a self,
        namespace: &'a str,
        account: &'a str,
        spec: TokenRequestSpec,
    ) -> ObjectRead<'a, TokenRequestStatus>;
}
