//! A write request, and its state on the way through the stages.

use crate::model::context::Requester;
use crate::model::error::ApiError;
use crate::model::hooks::SubresourceHooks;
use crate::model::metadata;
use crate::model::object::Object;
use crate::model::operation::Operation;
use crate::model::options::WriteOptions;
use crate::model::view::View;
use crate::pipeline::api::{AdmissionAttributes, Api, ReinvocationContext, RequestOptions};
use crate::storage::resource::Resource;
use bytes::Bytes;
use merge::managed;
use schema::{Value, encode};
use std::sync::Arc;

/// A request to write an object.
pub struct WriteRequest<'a> {
    pub resource: &'a Arc<Resource>,
    pub namespace: &'a str,
    /// As the URL has it; empty when creating in a collection.
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub options: &'a WriteOptions,
    pub user: &'a Requester,
    /// The field manager.
    pub manager: &'a str,
    /// The object carries its managed fields already, as an applied one does.
    pub owned: bool,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// The result of a write.
pub struct WriteOutcome {
    pub created: bool,
    /// The object in the version of the request.
    pub json: Bytes,
    /// The stored revision; absent where nothing is stored.
    pub revision: Option<u64>,
}

/// Why a write was not carried out.
pub(crate) enum WriteError {
    Api(ApiError),
    /// Another write was committed first: the verb tries again.
    Conflict,
}

impl From<ApiError> for WriteError {
    fn from(why: ApiError) -> Self {
        WriteError::Api(why)
    }
}

/// Computes the next state from the current one. Called again after a conflict.
pub(crate) type UpdateFn<'n> = dyn Fn(&Value, &mut Vec<String>) -> Result<Value, ApiError> + Send + Sync + 'n;

/// How often a write that names no version is tried when other writes are committed first.
pub(crate) const ATTEMPTS: usize = 20;

/// The stored object that a write replaces.
pub(crate) struct Base {
    pub stored: Arc<Object>,
    /// In the version of the request.
    pub tree: Value,
}

/// A write on its way through the stages.
pub(crate) struct Write<'w, 'r> {
    pub request: &'w mut WriteRequest<'r>,
    /// Absent for a new object.
    pub base: Option<&'w Base>,
    /// The part of the object that the subresource writes; absent for the whole object and for views.
    pub part: Option<&'static SubresourceHooks>,
    /// The view that the subresource is, with the resource that it is served as.
    pub view: Option<(&'r View, &'r Resource)>,
    /// The name of a new object before mutation.
    pub sent_name: String,
    /// What the client sent for fields that this write cannot change: a status, or the whole object for a part.
    pub ignored_part: Option<Value>,
    /// Whether an apply renews a manager's time and has other values than the stored ones of fields that the server
    /// decides. Known after mutation.
    pub applies_server_fields: bool,
    /// The new or next state.
    pub object: Value,
}

impl<'w, 'r> Write<'w, 'r> {
    pub fn new(request: &'w mut WriteRequest<'r>, base: Option<&'w Base>, object: Value) -> Self {
        let view = request.view();
        Write {
            request,
            base,
            part: None,
            view,
            sent_name: String::new(),
            ignored_part: None,
            applies_server_fields: false,
            object,
        }
    }

    pub fn resource(&self) -> &'r Arc<Resource> {
        self.request.resource
    }

    /// The tree of the stored object; absent for a new object.
    pub fn old(&self) -> Option<&'w Value> {
        self.base.map(|base| &base.tree)
    }

    /// Whether the client sent other values than the stored ones for fields that this write cannot change.
    pub fn sends_other_fields(&self, old: &Value) -> bool {
        match (&self.ignored_part, self.part) {
            (Some(sent), Some(_)) => !managed::is_alike(sent, &self.object),
            (Some(status), None) => status != old.at(&["status"]).unwrap_or(&Value::Null),
            (None, _) => false,
        }
    }

    /// The metadata of the body that the subresource ignores.
    pub fn ignored_metadata(&self) -> &'static [&'static str] {
        self.part.map_or(&[], |part| part.ignored_metadata)
    }
}

impl<'r> WriteRequest<'r> {
    /// The subresource as a view, with the resource that it is served as.
    pub(crate) fn view(&self) -> Option<(&'r View, &'r Resource)> {
        let resource: &'r Arc<Resource> = self.resource;
        resource.view(self.subresource).map(|(view, served)| (view, &**served))
    }

    /// The resource whose kind clients write and read here.
    pub(crate) fn target(&self) -> &'r Arc<Resource> {
        let resource: &'r Arc<Resource> = self.resource;
        resource.view(self.subresource).map_or(resource, |(_, served)| served)
    }

    pub(crate) fn attributes<'b>(
        &'b self,
        api: &'b Api,
        operation: Operation,
        name: &'b str,
    ) -> AdmissionAttributes<'b> {
        AdmissionAttributes {
            resource: self.resource,
            operation,
            namespace: self.namespace,
            name,
            request_name: self.name,
            subresource: self.subresource,
            user: self.user,
            dry_run: self.options.dry_run,
            api,
            other: self.view().map(|(_, served)| served.form()),
            options: RequestOptions::Write(self.options),
            reinvocation: ReinvocationContext::default(),
        }
    }

    /// Sets the namespace of the request; an error if the object names another one.
    pub(crate) fn place(&self, object: &mut Value) -> Result<(), ApiError> {
        if !self.resource.kind.namespaced {
            object.unset(&["metadata", "namespace"]);
            return Ok(());
        }
        let given = object.text(&["metadata", "namespace"]);
        if given.is_empty() {
            object.set(&["metadata", "namespace"], self.namespace);
        } else if given != self.namespace {
            return Err(ApiError::wrong_namespace());
        }
        Ok(())
    }

    /// Drops repeated owner references, with a warning that says whether the client sent them in a whole object.
    pub(crate) fn dedup_owners(&mut self, object: &mut Value, are_sent: bool) {
        let repeated = metadata::dedup_owners(object);
        if !repeated.is_empty() {
            let when = if are_sent { "" } else { " after mutating admission happens" };
            self.warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
                 reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
                repeated.join(", ")
            ));
        }
    }

    pub(crate) fn has_status(&self) -> bool {
        self.resource.subresource("status").is_some()
    }

    /// The bytes of an object that is not stored, as they would be read: custom resources have the defaults of a read,
    /// also in a part that the write leaves out.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        if let Some((view, served)) = self.view() {
            return view.json(object, served.form());
        }
        let (resource, lists) = (self.resource, self.resource.hooks.storage.empty_lists());
        if resource.hooks.storage.convert.is_some() || resource.hooks.storage.custom_versions.is_some() {
            let object = resource.from(resource, object.clone());
            return encode::as_stored(&object, &resource.kind.root, lists).into();
        }
        encode::as_stored(object, &resource.kind.root, lists).into()
    }
}
