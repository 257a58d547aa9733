//! The resource-version rules of reads: parses a requested version, and waits until the caches have reached it.

use crate::model::error::ApiError;
use crate::storage::registry::ResourceRegistry;
use std::time::Duration;

/// How long a read waits for a version that the caches have not reached.
const TIMEOUT: Duration = Duration::from_secs(3);

impl ResourceRegistry {
    /// Waits until all writes so far are in the caches, where other processes write to the same store: for reads of
    /// the most recent state, and for writes.
    pub async fn catch_up(&self) -> Result<(), ApiError> {
        match self.storage.store.catch_up() {
            None => Ok(()),
            Some(seen) => seen.await.map_err(|why| {
                ApiError::unavailable(format!("the store does not say what its newest state is: {why}"))
            }),
        }
    }

    /// Waits until the state is at least as new as `revision`.
    pub async fn wait_for(&self, revision: u64) -> Result<(), ApiError> {
        let published = &self.storage.published;
        if published.get() >= revision {
            return Ok(());
        }
        // another process may have written it
        self.catch_up().await?;
        match env::io::timeout(TIMEOUT, published.reached(revision)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ApiError::too_large_resource_version(revision, published.get())),
        }
    }
}

/// The error of an invalid version in a read that upstream sends to etcd.
pub fn invalid_version(why: ApiError) -> ApiError {
    ApiError::bad_request(format!("invalid resource version: {}", why.message))
}

/// Parses the resource version of a read.
pub fn parse_revision(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        let text = schema::problem::quoted(text);
        ApiError::internal(format!(
            "resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: {why}"
        ))
    })
}
