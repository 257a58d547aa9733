//! Errors of starting a server.

use crate::admission::InvalidPlugins;
use crate::audit::AuditError;
use crate::self_registration::cluster_keys::ForeignKeys;
use crate::serve::ServeError;
use encryption::DecryptError;
use rest::ApiError;
use rest::storage::UnreadableObject;
use store::StoreError;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Plugins(#[from] InvalidPlugins),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Unreadable(#[from] UnreadableObject),
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
    #[error(transparent)]
    ForeignKeys(#[from] ForeignKeys),
    /// The `before_ready` callback failed.
    #[error("{0}")]
    BeforeReady(String),
    #[error("the bootstrap object {name:?} could not be created: {why}")]
    System { name: String, why: ApiError },
}
