//! Errors of starting a server.

use crate::admission::BadPlugins;
use crate::audit::BadAudit;
use crate::self_registration::cluster_keys::ForeignKeys;
use crate::serve::ServeError;
use encryption::DecryptError;
use rest::ApiError;
use rest::storage::Unreadable;
use store::StoreError;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Plugins(#[from] BadPlugins),
    #[error(transparent)]
    Audit(#[from] BadAudit),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
    #[error(transparent)]
    ForeignKeys(#[from] ForeignKeys),
    /// The `before_ready` callback failed.
    #[error("{0}")]
    BeforeReady(String),
    #[error("{name:?}, which every cluster has, could not be made: {why}")]
    System { name: String, why: ApiError },
}
