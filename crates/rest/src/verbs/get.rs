//! Get: one object.

use crate::model::error::ApiError;
use crate::model::object::Object;
use crate::pipeline::api::Api;
use crate::storage::resource::Resource;
use crate::verbs::list::parse_revision;
use std::sync::Arc;

impl Api {
    /// The object, at least as new as `resource_version` asks.
    pub async fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Arc<Object>, ApiError> {
        match resource_version {
            "" => self.catch_up().await?,
            "0" => {}
            // what expires is not read from a cache that could catch up
            version => self
                .wait_for(parse_revision(version)?)
                .await
                .map_err(|why| if resource.kind.expires { why.without_retry() } else { why })?,
        }
        let found = resource.collection.cache.get(namespace, name);
        let object = found.ok_or_else(|| ApiError::not_found(resource.subject(name)))?;
        self.ready(resource, std::slice::from_ref(&object)).await?;
        Ok(object)
    }
}
