//! Requests for resources: dispatch over verbs, and their options.

use super::plain_text::not_found;
use super::request_context::RequestContext;
use super::resource_path::{PathError, ResourcePath};
use super::responses::{self, ResponseFormat};
use super::service::Service;
use super::subresources::on_node;
use super::{deprecation, lists, watch};
use crate::audit;
use crate::negotiate::{Form, Output, body_format, patch_type};
use crate::request::Target;
use crate::serve::Body;
use http::{Method, Response, header};
use merge::managed::default_manager;
use rest::hooks::VirtualSubresource;
use rest::metadata::check_name_parameter;
use rest::options::{DeleteOptions, ListOptions, WriteOptions};
use rest::{ApiError, AuditDetail, DeleteOutcome, Details, PatchKind, Requester, Resource, WriteRequest};
use rest::{Format, Input};
use schema::{Value, proto};
use std::sync::Arc;

impl Service {
    pub(crate) async fn resource(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
        target: &Target,
    ) -> Result<Response<Body>, ApiError> {
        let resources = self.api.resources();
        let resource = match resources.get(&target.group_version, &target.resource) {
            Some(resource) => resource.clone(),
            None if resources.is_custom(&target.group) => return Ok(not_found()),
            None if resources.has_version(&target.group_version) || target.group.is_empty() => {
                return Err(ApiError::no_such_path());
            }
            None if self.documents().get(&format!("/apis/{}", target.group)).is_some() => {
                return Err(ApiError::no_such_path());
            }
            None => return Ok(not_found()),
        };
        let path = match resource.kind.kind_first {
            true => ResourcePath::find(&resource, target, context.info)?,
            false => match ResourcePath::find_custom(&resource, target, context.info.verb) {
                Ok(path) => path,
                // a path of no custom resource exists nowhere else either
                Err(PathError::Path) => return Ok(not_found()),
                Err(misplaced) => {
                    let deprecated = deprecation::warning(&resource, &self.api.names, self.release);
                    context.record.warn_first(deprecated.into_iter().collect());
                    return Err(match misplaced {
                        PathError::Verb => not_supported(&resource, target, context.info.verb),
                        _ => ApiError::not_found(resource.subject(&target.name)),
                    });
                }
            },
        };
        if context.info.method == Method::HEAD && resource.kind.kind_first && !path.is_proxy() {
            return Err(ApiError::method_not_allowed());
        }
        if !context.body.is_empty() {
            let verb =
                if context.info.verb == "deletecollection" { "delete_collection" } else { context.info.verb };
            self.metrics.requests.body(&resource, verb, context.body.len());
        }
        let result = self.verb(context, &path).await.map_err(|why| named_error(path.name, why));
        let Some(deprecated) = deprecation::warning(&resource, &self.api.names, self.release) else {
            return result;
        };
        self.metrics.record_deprecated(&resource, &target.subresource);
        if context.record.audit_detail() > AuditDetail::Nothing {
            deprecation::annotate(&resource, &self.api.names, &context.record);
        }
        let response = match result {
            Ok(response) => response,
            // refused before the resource was reached
            Err(error) if error.is_about_media() => return Err(error),
            Err(error) => responses::failure(&error, context, &self.api.names),
        };
        context.record.warn_first(vec![deprecated]);
        Ok(response)
    }

    async fn verb(
        self: &Arc<Self>,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        if !matches!(context.info.verb, "get" | "list" | "watch") {
            // writes and their admission read the newest state; reads state their own requirement
            self.api.catch_up().await?;
        }
        match (context.info.verb, path.subresource) {
            (_, sub) if on_node(sub) => self.connect(context, path).await,
            ("create", sub) if !sub.is_empty() => self.act(context, path).await,
            ("get", _) => self.get(context, path).await,
            ("list", _) => self.list(context, path).await,
            ("watch", _) if !path.resource.kind.verbs.iter().any(|one| one == "watch") => {
                Err(ApiError::no_watch(&path.resource.kind.plural))
            }
            ("watch", _) => watch::start(self, context, path).await,
            ("create", _) => self.create(context, path).await,
            ("update", _) => self.update(context, path).await,
            ("patch", _) => self.patch(context, path).await,
            ("delete", _) => self.delete(context, path).await,
            ("deletecollection", _) => self.delete_collection(context, path).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    async fn get(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let format = ResponseFormat::of(context, &self.api.names, path.resource, false)?;
        let version = context.info.query.get("resourceVersion").unwrap_or("");
        if context.info.query.get("export").is_some_and(|_| context.info.query.flag("export")) {
            return Err(ApiError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        let (resource, names) = (path.resource, &self.api.names);
        if let Some((_, served)) = resource.view(path.subresource) {
            let (namespace, name) = (path.namespace, path.name);
            let json = self.api.get_view(resource, path.subresource, namespace, name, version).await?;
            return responses::object(200, json, served, &format, context, &self.api);
        }
        let object = match &resource.hooks.virtual_resource {
            Some(virtual_resource) => {
                let (namespace, name) = (path.namespace, path.name);
                self.api.get_virtual(resource, &**virtual_resource, namespace, name).await?
            }
            None => self.api.get(resource, path.namespace, path.name, version).await?,
        };
        if format.output == Output::PROTOBUF {
            format.record(&resource.json(&object));
            let message = lists::message(resource, &object);
            let sealed = proto::envelope(&resource.api_version, &resource.kind.name, &message);
            return Ok(responses::response(200, Form::Protobuf, Body::full(sealed), names));
        }
        responses::object(200, resource.json(&object), resource, &format, context, &self.api)
    }

    async fn list(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let format = ResponseFormat::of(context, &self.api.names, path.resource, true)?;
        let options = ListOptions::parse(&context.info.query, &self.api.names)?;
        let mut page = match &path.resource.hooks.virtual_resource {
            Some(virtual_resource) => {
                let namespace = path.namespace;
                self.api.list_virtual(path.resource, &**virtual_resource, namespace, &options).await?
            }
            None => self.api.list(path.resource, path.namespace, &options).await?,
        };
        if !self.gates.remaining_item_count {
            page.remaining = None;
        }
        lists::respond(page, path.resource, &format, context, &self.api)
    }

    async fn create(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        if path.resource.hooks.create.acts_on.is_some() {
            return self.act(context, path).await;
        }
        let format = ResponseFormat::of(context, &self.api.names, path.resource, false)?;
        let input = self.input(context)?;
        let options = WriteOptions::parse(&context.info.query, "CreateOptions", &self.api.names)?;
        if let Some(virtual_resource) = &path.resource.hooks.virtual_resource {
            let work = async |write: &mut WriteRequest<'_>| {
                self.api.create_virtual(write, &**virtual_resource, &input).await
            };
            return self.write(context, path, &options, &format, work).await;
        }
        self.write(context, path, &options, &format, async |write| self.api.create(write, &input).await).await
    }

    /// A create that changes or deletes another object.
    async fn act(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let format = ResponseFormat::of_action(context, &self.api.names)?;
        if let Some(part) =
            path.resource.hooks.subresources.virtuals.iter().find(|one| one.name == path.subresource)
        {
            return self.create_virtual_subresource(context, path, part, &format).await;
        }
        let action = path.resource.hooks.subresources.actions.iter().find(|one| one.name == path.subresource);
        let target_resource = path.resource.hooks.create.acts_on.filter(|_| path.subresource.is_empty());
        let input = self.input(context)?;
        let options = WriteOptions::parse(&context.info.query, "CreateOptions", &self.api.names)?;
        let (user, manager) = (requester(context), manager(context, &options));
        let mut write = path.write_request(&options, &user, &manager);
        let done = match (action, target_resource) {
            (Some(action), _) => self.api.act(&mut write, action, &input).await,
            (None, Some(target_resource)) => {
                self.api.act_elsewhere(&mut write, target_resource, &input).await
            }
            (None, None) => Err(ApiError::method_not_allowed()),
        };
        // an error has warnings too
        context.record.warn_first(write.warnings);
        done?;
        let status = crate::negotiate::status::empty_success(201);
        Ok(responses::document(201, status, responses::meta_type("Status"), &format, &self.api.names))
    }

    /// A create of a virtual subresource, which changes nothing.
    async fn create_virtual_subresource(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
        part: &VirtualSubresource,
        format: &ResponseFormat,
    ) -> Result<Response<Body>, ApiError> {
        let input = self.input(context)?;
        let options = WriteOptions::parse(&context.info.query, "CreateOptions", &self.api.names)?;
        let (user, manager) = (requester(context), manager(context, &options));
        let mut write = path.write_request(&options, &user, &manager);
        let written = self.api.create_virtual_part(&mut write, part, &input).await;
        context.record.warn_first(write.warnings);
        responses::typed_object(201, written?.json, &part.kind.root, format, &self.api.names)
    }

    async fn update(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        check_named(path)?;
        let format = ResponseFormat::of(context, &self.api.names, path.resource, false)?;
        // an update checks its parameters before the media type of its body, a creation after it
        let options = WriteOptions::parse(&context.info.query, "UpdateOptions", &self.api.names)?;
        let input = self.input(context)?;
        self.write(context, path, &options, &format, async |write| self.api.update(write, &input).await).await
    }

    async fn patch(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let merges_lists = path.resource.kind.kind_first;
        let kind = match patch_type(context.header(header::CONTENT_TYPE)) {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            // only tables of built-in kinds define how lists merge
            "application/strategic-merge-patch+json" if merges_lists => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => None,
            _ if !merges_lists => return Err(ApiError::unsupported_media_type(&ACCEPTED_BY_ALL)),
            // without a body the media type is irrelevant, and no patch type is acceptable
            _ if context.body.is_empty() => return Err(ApiError::nothing_acceptable(&[])),
            _ => return Err(ApiError::unknown_media_type()),
        };
        check_named(path)?;
        let format = ResponseFormat::of(context, &self.api.names, path.resource, false)?;
        let options = WriteOptions::parse_patch(&context.info.query, kind.is_none(), &self.api.names)?;
        let input = Input { bytes: context.body.clone(), format: Format::Json };
        context.record.record_request(|| audit::patch_body(&context.body));
        let work = async |write: &mut WriteRequest<'_>| match kind {
            Some(kind) => self.api.patch(write, kind, &input).await,
            None => self.api.apply(write, &input).await,
        };
        self.write(context, path, &options, &format, work).await
    }

    async fn write(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
        options: &WriteOptions,
        format: &ResponseFormat,
        work: impl AsyncFnOnce(&mut WriteRequest<'_>) -> Result<rest::WriteOutcome, ApiError>,
    ) -> Result<Response<Body>, ApiError> {
        let user = requester(context);
        let manager = manager(context, options);
        let mut write = path.write_request(options, &user, &manager);
        let written = work(&mut write).await.map_err(|why| named_error(path.name, why));
        let warnings = std::mem::take(&mut write.warnings);
        let response = match written {
            Ok(written) => {
                let code = if written.created { 201 } else { 200 };
                let served = path.resource.view(path.subresource).map(|(_, served)| served);
                let resource = served.unwrap_or(path.resource);
                responses::object(code, written.json, resource, format, context, &self.api)
            }
            Err(error) => Ok(responses::failure(&error, context, &self.api.names)),
        };
        context.record.warn_first(warnings);
        response
    }

    async fn delete(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let format = ResponseFormat::of(context, &self.api.names, path.resource, false)?;
        let options =
            DeleteOptions::parse(&context.info.query, &self.delete_body(context)?, &self.api.names)?;
        let (resource, name) = (path.resource, path.name);
        let deleted = self.api.delete(resource, path.namespace, name, &options, &requester(context)).await;
        let deleted = deleted.map_err(|why| named_error(name, why));
        let result =
            deleted.and_then(|deleted| self.delete_response(context, path, &options, &format, deleted));
        Ok(self.warn_of_orphans(context, resource, &options, result))
    }

    fn delete_response(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
        options: &DeleteOptions,
        format: &ResponseFormat,
        deleted: DeleteOutcome,
    ) -> Result<Response<Body>, ApiError> {
        let (resource, name) = (path.resource, path.name);
        match deleted {
            DeleteOutcome::Object { json, gone } => {
                let code = if !gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
                responses::object(code, json, resource, format, context, &self.api)
            }
            DeleteOutcome::Gone { uid } => {
                let (group, kind) = (resource.group.clone(), resource.kind.plural.to_string());
                let details = Details { name: name.to_owned(), group, kind, uid, ..Details::default() };
                let status = crate::negotiate::status::success(&details);
                Ok(responses::document(200, status, responses::meta_type("Status"), format, &self.api.names))
            }
        }
    }

    /// Warns a client that left the propagation policy open.
    fn warn_of_orphans(
        &self,
        context: &RequestContext<'_>,
        resource: &Resource,
        options: &DeleteOptions,
        result: Result<Response<Body>, ApiError>,
    ) -> Response<Body> {
        let warning = resource.hooks.delete.warning;
        if !warning.is_empty() && options.propagation.is_none() && options.orphan_dependents.is_none() {
            context.record.warn_first(vec![warning.to_owned()]);
        }
        result.unwrap_or_else(|error| responses::failure(&error, context, &self.api.names))
    }

    async fn delete_collection(
        &self,
        context: &RequestContext<'_>,
        path: &ResourcePath<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let format = ResponseFormat::of(context, &self.api.names, path.resource, false)?;
        let list = ListOptions::parse(&context.info.query, &self.api.names)?;
        // the warning about dependents is for requests whose objects are known
        path.resource.selector(&list.label_selector, &list.field_selector)?;
        let options =
            DeleteOptions::parse(&context.info.query, &self.delete_body(context)?, &self.api.names)?;
        let user = requester(context);
        let page = self
            .api
            .delete_collection(path.resource, path.namespace, &list, &options, &user, self.delete_workers)
            .await;
        let result = page.and_then(|page| lists::respond(page, path.resource, &format, context, &self.api));
        Ok(self.warn_of_orphans(context, path.resource, &options, result))
    }

    fn input(&self, context: &RequestContext<'_>) -> Result<Input, ApiError> {
        let format = body_format(context.header(header::CONTENT_TYPE), &self.api.names)?;
        Ok(Input { bytes: context.body.clone(), format })
    }

    /// The options in the body of a delete; `Null` without a body.
    fn delete_body(&self, context: &RequestContext<'_>) -> Result<Value, ApiError> {
        if context.body.is_empty() {
            return Ok(Value::Null);
        }
        let Some(ty) = responses::meta_type("DeleteOptions") else { return Ok(Value::Null) };
        let options = self.input(context)?.options(ty, "DeleteOptions", &self.api.names.meta_group())?;
        context.record.record_request(|| {
            let mut audited = options.clone();
            audited.set(&["kind"], "DeleteOptions");
            audited.set(&["apiVersion"], format!("{}/__internal", self.api.names.meta_group()));
            Some(schema::encode::json(&audited, ty).into())
        });
        Ok(options)
    }
}

/// The error of a request for an object. A name that cannot be a path segment is reported where the object is looked for,
/// behind the errors of the request itself and instead of all but those of its subresources.
fn named_error(name: &str, error: ApiError) -> ApiError {
    let kind = error.details.as_ref().map_or("", |it| &*it.kind);
    let is_of_other = kind.ends_with("Options") || kind.contains('/');
    let is_of_object = !name.is_empty() && matches!(error.code, 404 | 409 | 422) && !is_of_other;
    check_name_parameter(name).err().filter(|_| is_of_object).unwrap_or(error)
}

/// Refuses to change an object without a name in the path.
fn check_named(path: &ResourcePath<'_>) -> Result<(), ApiError> {
    match path.name {
        "" => Err(ApiError::bad_request("name must be provided")),
        _ => Ok(()),
    }
}

/// Patch types of every kind.
const ACCEPTED_BY_ALL: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// A custom resource does not have this verb, or has it no longer.
fn not_supported(resource: &Resource, target: &Target, verb: &str) -> ApiError {
    let mut error = ApiError::method_not_supported(resource.subject(""), verb);
    if verb == "create" && target.subresource.is_empty() {
        error.message = "create not allowed while custom resource definition is terminating".to_owned();
    }
    error
}

/// The field manager of a write.
fn manager(context: &RequestContext<'_>, options: &WriteOptions) -> String {
    match &*options.field_manager {
        "" => default_manager(context.header(header::USER_AGENT).unwrap_or("")),
        name => name.to_owned(),
    }
}

pub(super) fn requester(context: &RequestContext<'_>) -> Requester {
    let user = &context.user;
    Requester {
        name: user.name.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.iter().map(|(key, values)| (key.clone(), values.clone())).collect(),
        record: context.record.clone(),
    }
}
