//! Get: one object, or a view of it.

use crate::model::error::{ApiError, Subject};
use crate::model::object::Object;
use crate::model::view::{NotFoundSubject, field_at};
use crate::pipeline::api::Api;
use crate::storage::freshness::{invalid_version, parse_revision};
use crate::storage::resource::Resource;
use bytes::Bytes;
use std::sync::Arc;

impl Api {
    /// The object, at least as new as `resource_version`.
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
            // upstream reads expiring objects from etcd, whose errors are others
            version if resource.kind.expires => {
                let revision = parse_revision(version).map_err(invalid_version)?;
                self.wait_for(revision).await.map_err(ApiError::without_retry)?;
            }
            version => self.wait_for(parse_revision(version)?).await?,
        }
        let found = resource.collection.cache.get(namespace, name);
        let object = found.ok_or_else(|| ApiError::not_found(resource.subject(name)))?;
        resource.ready(std::slice::from_ref(&object)).await?;
        Ok(object)
    }

    /// The view of an object, at least as new as `resource_version`.
    pub async fn get_view(
        &self,
        resource: &Resource,
        subresource: &str,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Bytes, ApiError> {
        let (view, served) = resource.view(subresource).ok_or_else(ApiError::no_such_path)?;
        let result = self.get(resource, namespace, name, resource_version).await;
        let object = result.map_err(|why| match why.code {
            404 if view.missing != NotFoundSubject::Object => {
                let kind = format!("{}/{subresource}", resource.kind.plural);
                let of_view = view.missing == NotFoundSubject::PartOfView;
                let group = if of_view { &served.group } else { &resource.group };
                ApiError::not_found(Subject { group, kind: &kind, name })
            }
            _ => why,
        })?;
        let tree = resource.tree(&object)?;
        view.check(&tree)?;
        if let Some(path) = view.declared_at.as_ref().filter(|_| field_at(&tree, &view.inside).is_none()) {
            return Err(ApiError::internal_error(format!("the spec replicas field {path:?} does not exist")));
        }
        Ok(view.json(&tree, served.form()))
    }
}
