//! Requests for resources: dispatch over verbs, and their options.

use super::answer::{self, ResponseFormat};
use super::place::{Misplaced, Place, check_segment};
use super::plain_text::not_found;
use super::request_context::RequestContext;
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
use rest::options::{DeleteOptions, ListOptions, WriteOptions};
use rest::{ApiError, Deleted, Details, PatchKind, Requester, Resource, Shown, WriteRequest};
use rest::{Format, Input};
use schema::{Value, proto};
use std::sync::Arc;

impl Service {
    pub(crate) async fn resource(
        self: &Arc<Self>,
        call: &RequestContext<'_>,
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
        let place = match resource.kind.kind_first {
            true => Place::find(&resource, target, call.asked)?,
            false => match Place::find_custom(&resource, target, call.asked.verb) {
                Ok(place) => place,
                // a path that is of no custom resource is of nothing else either
                Err(Misplaced::Path) => return Ok(not_found()),
                Err(misplaced) => {
                    let deprecated = deprecation::warning(&resource, &self.api.names, self.release);
                    call.notes.warn_first(deprecated.into_iter().collect());
                    return Err(match misplaced {
                        Misplaced::Verb => not_supported(&resource, target, call.asked.verb),
                        _ => ApiError::not_found(resource.subject(&target.name)),
                    });
                }
            },
        };
        check_segment(place.name)?;
        if call.asked.method == Method::HEAD && resource.kind.kind_first {
            return Err(ApiError::method_not_allowed());
        }
        if !call.body.is_empty() {
            let verb =
                if call.asked.verb == "deletecollection" { "delete_collection" } else { call.asked.verb };
            self.metrics.requests.body(&resource, verb, call.body.len());
        }
        let answered = self.verb(call, &place).await;
        let Some(deprecated) = deprecation::warning(&resource, &self.api.names, self.release) else {
            return answered;
        };
        self.metrics.deprecated(&resource, &target.subresource);
        if call.notes.shown() > Shown::Nothing {
            deprecation::annotate(&resource, &self.api.names, &call.notes);
        }
        let response = match answered {
            Ok(response) => response,
            // refused before anything of the resource was asked
            Err(error) if error.is_about_media() => return Err(error),
            Err(error) => answer::failure(&error, call, &self.api.names),
        };
        call.notes.warn_first(vec![deprecated]);
        Ok(response)
    }

    async fn verb(
        self: &Arc<Self>,
        call: &RequestContext<'_>,
        place: &Place<'_>,
    ) -> Result<Response<Body>, ApiError> {
        if !matches!(call.asked.verb, "get" | "list" | "watch") {
            // what is changed, and what decides about it, is the newest; reads say themselves what they want
            self.api.catch_up().await?;
        }
        match (call.asked.verb, place.subresource) {
            (_, sub) if on_node(sub) => self.connect(call, place).await,
            ("create", sub) if !sub.is_empty() => self.act(call, place).await,
            ("get", _) => self.get(call, place).await,
            ("list", _) => self.list(call, place).await,
            ("watch", _) if !place.resource.kind.verbs.iter().any(|one| one == "watch") => {
                Err(ApiError::no_watch(&place.resource.kind.plural))
            }
            ("watch", _) => watch::start(self, call, place).await,
            ("create", _) => self.create(call, place).await,
            ("update", _) => self.update(call, place).await,
            ("patch", _) => self.patch(call, place).await,
            ("delete", _) => self.delete(call, place).await,
            ("deletecollection", _) => self.delete_collection(call, place).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    async fn get(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, false)?;
        let version = call.asked.query.get("resourceVersion").unwrap_or("");
        if call.asked.query.get("export").is_some_and(|_| call.asked.query.flag("export")) {
            return Err(ApiError::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        let (resource, names) = (place.resource, &self.api.names);
        if let Some((_, served)) = resource.view(place.subresource) {
            let (namespace, name) = (place.namespace, place.name);
            let json = self.api.get_view(resource, place.subresource, namespace, name, version).await?;
            return answer::object(200, json, served, &manner, call, &self.api);
        }
        let object = match &resource.hooks.virtual_resource {
            Some(answer) => self.api.get_virtual(resource, &**answer, place.name)?,
            None => self.api.get(resource, place.namespace, place.name, version).await?,
        };
        if manner.output == Output::PROTOBUF {
            manner.record(&resource.json(&object));
            let message = lists::message(resource, &object);
            let sealed = proto::envelope(&resource.api_version, &resource.kind.name, &message);
            return Ok(answer::response(200, Form::Protobuf, Body::full(sealed), names));
        }
        answer::object(200, resource.json(&object), resource, &manner, call, &self.api)
    }

    async fn list(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, true)?;
        let options = ListOptions::parse(&call.asked.query, &self.api.names)?;
        let mut page = match &place.resource.hooks.virtual_resource {
            Some(answer) => self.api.list_virtual(place.resource, &**answer, &options)?,
            None => self.api.list(place.resource, place.namespace, &options).await?,
        };
        if !self.gates.remaining {
            page.remaining = None;
        }
        lists::answer(page, place.resource, &manner, call, &self.api)
    }

    async fn create(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        if place.resource.hooks.create.acts_on.is_some() {
            return self.act(call, place).await;
        }
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, false)?;
        let input = self.input(call)?;
        let options = WriteOptions::parse(&call.asked.query, "CreateOptions", &self.api.names)?;
        if let Some(answer) = &place.resource.hooks.virtual_resource {
            let work = async |writing: &mut WriteRequest<'_>| {
                self.api.create_virtual(writing, &**answer, &input).await
            };
            return self.write(call, place, &options, &manner, work).await;
        }
        self.write(call, place, &options, &manner, async |writing| self.api.create(writing, &input).await)
            .await
    }

    /// A post that changes an object elsewhere, or takes it away.
    async fn act(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        let manner = ResponseFormat::of_action(call, &self.api.names)?;
        if let Some(part) =
            place.resource.hooks.subresources.virtuals.iter().find(|one| one.name == place.subresource)
        {
            return self.answer_part(call, place, part, &manner).await;
        }
        let action =
            place.resource.hooks.subresources.actions.iter().find(|one| one.name == place.subresource);
        let there = place.resource.hooks.create.acts_on.filter(|_| place.subresource.is_empty());
        let input = self.input(call)?;
        let options = WriteOptions::parse(&call.asked.query, "CreateOptions", &self.api.names)?;
        let (user, manager) = (requester(call), manager(call, &options));
        let mut writing = WriteRequest {
            resource: place.resource,
            namespace: place.namespace,
            name: place.name,
            subresource: place.subresource,
            options: &options,
            user: &user,
            manager: &manager,
            owned: false,
            warnings: Vec::new(),
        };
        match (action, there) {
            (Some(action), _) => self.api.act(&mut writing, action, &input).await?,
            (None, Some(there)) => self.api.act_elsewhere(&mut writing, there, &input).await?,
            (None, None) => return Err(ApiError::method_not_allowed()),
        }
        let status = crate::negotiate::status::done(201);
        let response = answer::document(201, status, answer::meta_type("Status"), &manner, &self.api.names);
        call.notes.warn_first(writing.warnings);
        Ok(response)
    }

    /// A post to a part of an object that is answered and changes nothing.
    async fn answer_part(
        &self,
        call: &RequestContext<'_>,
        place: &Place<'_>,
        part: &VirtualSubresource,
        manner: &ResponseFormat,
    ) -> Result<Response<Body>, ApiError> {
        let input = self.input(call)?;
        let options = WriteOptions::parse(&call.asked.query, "CreateOptions", &self.api.names)?;
        let (user, manager) = (requester(call), manager(call, &options));
        let mut writing = WriteRequest {
            resource: place.resource,
            namespace: place.namespace,
            name: place.name,
            subresource: place.subresource,
            options: &options,
            user: &user,
            manager: &manager,
            owned: false,
            warnings: Vec::new(),
        };
        let written = self.api.create_virtual_part(&mut writing, part, &input).await?;
        let response = answer::typed(201, written.json, &part.kind.root, manner, &self.api.names)?;
        call.notes.warn_first(writing.warnings);
        Ok(response)
    }

    async fn update(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        check_named(place)?;
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, false)?;
        let input = self.input(call)?;
        let options = WriteOptions::parse(&call.asked.query, "UpdateOptions", &self.api.names)?;
        self.write(call, place, &options, &manner, async |writing| self.api.update(writing, &input).await)
            .await
    }

    async fn patch(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        let merges_lists = place.resource.kind.kind_first;
        let kind = match patch_type(call.header(header::CONTENT_TYPE)) {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            // only tables of built-in kinds say how lists merge
            "application/strategic-merge-patch+json" if merges_lists => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => None,
            _ if !merges_lists => return Err(ApiError::unsupported_media_type(&ACCEPTED_BY_ALL)),
            // without a body nothing is of the wrong type, and no patch gives anything to accept
            _ if call.body.is_empty() => return Err(ApiError::nothing_acceptable(&[])),
            _ => return Err(ApiError::unknown_media_type()),
        };
        check_named(place)?;
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, false)?;
        let options = WriteOptions::parse_patch(&call.asked.query, kind.is_none(), &self.api.names)?;
        let input = Input { bytes: call.body.clone(), format: Format::Json };
        call.notes.saw_request(|| audit::patch_body(&call.body));
        let work = async |writing: &mut WriteRequest<'_>| match kind {
            Some(kind) => self.api.patch(writing, kind, &input).await,
            None => self.api.apply(writing, &input).await,
        };
        self.write(call, place, &options, &manner, work).await
    }

    async fn write(
        &self,
        call: &RequestContext<'_>,
        place: &Place<'_>,
        options: &WriteOptions,
        manner: &ResponseFormat,
        work: impl AsyncFnOnce(&mut WriteRequest<'_>) -> Result<rest::WriteOutcome, ApiError>,
    ) -> Result<Response<Body>, ApiError> {
        let user = requester(call);
        let manager = manager(call, options);
        let mut writing = WriteRequest {
            resource: place.resource,
            namespace: place.namespace,
            name: place.name,
            subresource: place.subresource,
            options,
            user: &user,
            manager: &manager,
            owned: false,
            warnings: Vec::new(),
        };
        let written = work(&mut writing).await;
        let warnings = std::mem::take(&mut writing.warnings);
        let response = match written {
            Ok(written) => {
                let code = if written.created { 201 } else { 200 };
                let served = place.resource.view(place.subresource).map(|(_, served)| served);
                let resource = served.unwrap_or(place.resource);
                answer::object(code, written.json, resource, manner, call, &self.api)
            }
            Err(error) => Ok(answer::failure(&error, call, &self.api.names)),
        };
        call.notes.warn_first(warnings);
        response
    }

    async fn delete(&self, call: &RequestContext<'_>, place: &Place<'_>) -> Result<Response<Body>, ApiError> {
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, false)?;
        let options = DeleteOptions::parse(&call.asked.query, &self.delete_body(call)?, &self.api.names)?;
        let (resource, name) = (place.resource, place.name);
        let deleted = self.api.delete(resource, place.namespace, name, &options, &requester(call)).await;
        let answered = deleted.and_then(|deleted| self.deleted(call, place, &options, &manner, deleted));
        Ok(self.warn_of_orphans(call, resource, &options, answered))
    }

    fn deleted(
        &self,
        call: &RequestContext<'_>,
        place: &Place<'_>,
        options: &DeleteOptions,
        manner: &ResponseFormat,
        deleted: Deleted,
    ) -> Result<Response<Body>, ApiError> {
        let (resource, name) = (place.resource, place.name);
        match deleted {
            Deleted::Object { json, gone } => {
                let code = if !gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
                answer::object(code, json, resource, manner, call, &self.api)
            }
            Deleted::Gone { uid } => {
                let (group, kind) = (resource.group.clone(), resource.kind.plural.to_string());
                let details = Details { name: name.to_owned(), group, kind, uid, ..Details::default() };
                let status = crate::negotiate::status::success(&details);
                Ok(answer::document(200, status, answer::meta_type("Status"), manner, &self.api.names))
            }
        }
    }

    /// Tells a client that left open what becomes of dependents, whatever the answer is.
    fn warn_of_orphans(
        &self,
        call: &RequestContext<'_>,
        resource: &Resource,
        options: &DeleteOptions,
        answered: Result<Response<Body>, ApiError>,
    ) -> Response<Body> {
        let warning = resource.hooks.delete.warning;
        if !warning.is_empty() && options.propagation.is_none() && options.orphan_dependents.is_none() {
            call.notes.warn_first(vec![warning.to_owned()]);
        }
        answered.unwrap_or_else(|error| answer::failure(&error, call, &self.api.names))
    }

    async fn delete_collection(
        &self,
        call: &RequestContext<'_>,
        place: &Place<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let manner = ResponseFormat::of(call, &self.api.names, place.resource, false)?;
        let list = ListOptions::parse(&call.asked.query, &self.api.names)?;
        let options = DeleteOptions::parse(&call.asked.query, &self.delete_body(call)?, &self.api.names)?;
        let user = requester(call);
        let page = self
            .api
            .delete_collection(place.resource, place.namespace, &list, &options, &user, self.delete_workers)
            .await;
        let answered = page.and_then(|page| lists::answer(page, place.resource, &manner, call, &self.api));
        Ok(self.warn_of_orphans(call, place.resource, &options, answered))
    }

    fn input(&self, call: &RequestContext<'_>) -> Result<Input, ApiError> {
        let format = body_format(call.header(header::CONTENT_TYPE), &self.api.names)?;
        Ok(Input { bytes: call.body.clone(), format })
    }

    /// The options in the body of a delete, `Null` when there is none.
    fn delete_body(&self, call: &RequestContext<'_>) -> Result<Value, ApiError> {
        if call.body.is_empty() {
            return Ok(Value::Null);
        }
        let Some(ty) = answer::meta_type("DeleteOptions") else { return Ok(Value::Null) };
        let options = self.input(call)?.options(ty, "DeleteOptions", &self.api.names.meta_group())?;
        call.notes.saw_request(|| {
            let mut shown = options.clone();
            shown.set(&["kind"], "DeleteOptions");
            shown.set(&["apiVersion"], format!("{}/__internal", self.api.names.meta_group()));
            Some(schema::encode::json(&shown, ty).into())
        });
        Ok(options)
    }
}

/// Refuses to change an object that the path does not name.
fn check_named(place: &Place<'_>) -> Result<(), ApiError> {
    match place.name {
        "" => Err(ApiError::bad_request("name must be provided")),
        _ => Ok(()),
    }
}

/// Patches that every kind takes.
const ACCEPTED_BY_ALL: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// A kind that was made while the server ran does not have this verb here, or has it no longer.
fn not_supported(resource: &Resource, target: &Target, verb: &str) -> ApiError {
    let mut error = ApiError::method_not_supported(resource.subject(""), verb);
    if verb == "create" && target.subresource.is_empty() {
        error.message = "create not allowed while custom resource definition is terminating".to_owned();
    }
    error
}

/// Who owns what is written.
fn manager(call: &RequestContext<'_>, options: &WriteOptions) -> String {
    match &*options.field_manager {
        "" => default_manager(call.header(header::USER_AGENT).unwrap_or("")),
        given => given.to_owned(),
    }
}

pub(super) fn requester(call: &RequestContext<'_>) -> Requester {
    let user = &call.user;
    Requester {
        name: user.name.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.iter().map(|(key, values)| (key.clone(), values.clone())).collect(),
        notes: call.notes.clone(),
    }
}
