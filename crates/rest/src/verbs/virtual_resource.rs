//! Virtual resources: the verbs of kinds whose objects are computed and never stored.
//!
//! A creation is decoded, defaulted and admitted like any other, and then completed rather than stored. A read shows
//! the current objects. They have no uid, revision or creation time.

use crate::model::error::ApiError;
use crate::model::form::{Form, api_version};
use crate::model::hooks::VirtualSubresource;
use crate::model::metadata;
use crate::model::object::Object;
use crate::model::operation::Operation;
use crate::model::options::ListOptions;
use crate::model::virtual_resource::{Find, Lookup, VirtualRead, VirtualRequest, VirtualResource};
use crate::pipeline::api::AdmissionAttributes;
use crate::pipeline::api::Api;
use crate::pipeline::decode::{ExpectedKind, Input};
use crate::pipeline::request::{WriteOutcome, WriteRequest};
use crate::storage::resource::Resource;
use crate::verbs::list::Page;
use schema::{Value, defaults, encode};
use std::sync::Arc;

impl Api {
    /// Responds to a creation.
    pub async fn create_virtual(
        &self,
        request: &mut WriteRequest<'_>,
        kind: &dyn VirtualResource,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let mut object = self.decode(request, input)?;
        metadata::clear_server_fields(&mut object);
        request.place(&mut object)?;
        request.resource.default(&mut object, &self.names);
        self.track(request, None, &mut object);
        let name = object.text(&["metadata", "name"]).to_owned();
        let attributes = request.attributes(self, Operation::Create, &name);
        self.mutate(&attributes, Some(&mut object), None).await?;
        self.validate(&attributes, &object, None).await?;
        let find = |plural: &str, namespace: &str, name: &str| self.find(plural, namespace, name);
        let lookup = |plural: &str, namespace: &str, name: &str| self.lookup(plural, namespace, name);
        let response = kind.create(object, &self.virtual_request(request, &find, &lookup)).get().await?;
        Ok(WriteOutcome { created: true, json: request.encode(&response), revision: None })
    }

    /// Responds to a post to a virtual subresource.
    pub async fn create_virtual_part(
        &self,
        request: &mut WriteRequest<'_>,
        part: &VirtualSubresource,
        input: &Input,
    ) -> Result<WriteOutcome, ApiError> {
        let root = &part.kind.root;
        let group = part.kind.group.full(&self.names.api_domain);
        let api_version = api_version(&group, &part.kind.version);
        let expected = ExpectedKind {
            ty: root,
            kind: &part.kind.name,
            api_version: &api_version,
            registry: Some(self),
            any_kind: false,
        };
        let mut object = input.typed(&expected, request.options.field_validation, &mut request.warnings)?;
        request.user.record.record_object(&object, || {
            let mut formatted = object.clone();
            defaults::apply(root, &mut formatted);
            encode::json(&formatted, root).into()
        });
        metadata::clear_server_fields(&mut object);
        request.place(&mut object)?;
        request.dedup_owners(&mut object, true);
        defaults::apply(root, &mut object);
        self.track_as(request, request.resource, (root, &api_version), None, &mut object);
        let form = Form { kind: &part.kind.name, api_version: &api_version, ty: root };
        let attributes = AdmissionAttributes {
            other: Some(form),
            ..request.attributes(self, Operation::Create, request.name)
        };
        self.mutate(&attributes, Some(&mut object), None).await?;
        let find = |plural: &str, namespace: &str, name: &str| self.find(plural, namespace, name);
        let lookup = |plural: &str, namespace: &str, name: &str| self.lookup(plural, namespace, name);
        let virtual_request = self.virtual_request(request, &find, &lookup);
        part.resource.prepare(&mut object, &virtual_request)?;
        self.validate(&attributes, &object, None).await?;
        let response = part.resource.create(object, &virtual_request).get().await?;
        Ok(WriteOutcome { created: true, json: encode::json(&response, root).into(), revision: None })
    }

    fn virtual_request<'a>(
        &'a self,
        request: &WriteRequest<'a>,
        find: &'a Find<'a>,
        lookup: &'a Lookup<'a>,
    ) -> VirtualRequest<'a> {
        let WriteRequest { resource, namespace, name, user, .. } = request;
        let subject = resource.subject(name);
        VirtualRequest { subject, namespace, user, names: &self.names, world: &self.world, find, lookup }
    }

    /// All current objects that the selectors match, in one page without a revision.
    pub async fn list_virtual(
        &self,
        resource: &Resource,
        kind: &dyn VirtualResource,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Page, ApiError> {
        let selector = resource.selector(&options.label_selector, &options.field_selector)?;
        let now = self.formatted_now();
        let selects = |value: &Value| selector.matches_labels(value);
        let read = VirtualRead { namespace, name: selector.name(), selects: &selects, now: &now };
        let objects = kind.read(&read).get().await?;
        let objects = objects.into_iter().map(|value| unstored(resource, value));
        let items = objects.filter(|object| selector.matches(object)).collect();
        Ok(Page { revision: 0, items, continue_token: String::new(), remaining: None })
    }

    /// The current object of a name.
    pub async fn get_virtual(
        &self,
        resource: &Resource,
        kind: &dyn VirtualResource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Object>, ApiError> {
        let now = self.formatted_now();
        let read = VirtualRead { namespace, name: Some(name), selects: &|_| true, now: &now };
        let objects = kind.read(&read).get().await?;
        let object = objects.into_iter().find(|value| value.text(&["metadata", "name"]) == name);
        match object {
            Some(value) => Ok(unstored(resource, value)),
            None => Err(kind.missing(resource.subject(name))),
        }
    }

    fn formatted_now(&self) -> String {
        schema::time::format_time(env::unix_seconds(&self.world))
    }
}

fn unstored(resource: &Resource, mut value: Value) -> Arc<Object> {
    value.set(&["kind"], &*resource.kind.name);
    value.set(&["apiVersion"], &*resource.api_version);
    Object::unstored(&value, resource.collection.index())
}
