//! Objects, documents and errors as responses, in the negotiated format.

use super::bulk_threads::BODY_BYTES;
use super::request_context::RequestContext;
use crate::negotiate::status;
use crate::negotiate::table::{self, Include, Layout};
use crate::negotiate::{
    Form, MIN_BYTES, Offer, Output, Transform, accepts_gzip, gzip, is_pretty_requested, pretty,
};
use crate::serve::Body;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use names::Names;
use rest::{Api, ApiError, AuditDetail, RequestRecord, Resource};
use schema::table::Type;
use schema::{decode, encode, proto, yaml};
use std::sync::Arc;
use std::time::Duration;

/// The package of the API's own types.
pub(crate) const META_PACKAGE: &str = "apimachinery.pkg.apis.meta.v1";

/// A type of the API itself, such as `Status`.
pub(crate) fn meta_type(name: &str) -> Option<&'static Type> {
    kinds::tables::type_named(META_PACKAGE, name)
}

/// The negotiated format of a response.
#[derive(Debug, Clone)]
pub(crate) struct ResponseFormat {
    pub output: Output,
    pub pretty: bool,
    pub gzip: bool,
    /// The record of the request, where audit needs the response.
    record: Option<Arc<RequestRecord>>,
}

impl ResponseFormat {
    /// The same format, without audit.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        ResponseFormat { record: None, ..self }
    }

    /// Plain JSON in the same shape, without audit; only where audit events contain responses.
    pub fn for_record(&self) -> Option<Self> {
        let is_audited =
            self.record.as_ref().is_some_and(|record| record.audit_detail() == AuditDetail::Response);
        let output = Output { form: Form::Json, ..self.output };
        is_audited.then_some(ResponseFormat { output, pretty: false, gzip: false, record: None })
    }

    /// Adds a response to the request's record.
    pub fn record(&self, json: &Bytes) {
        let Some(record) = &self.record else { return };
        if json.starts_with(status::HEAD) { record.record_status(json) } else { record.record_response(json) }
    }

    /// For a document that is neither an object nor a list; `route`: whether unknown media types are refused before
    /// negotiation.
    pub fn of_document(context: &RequestContext<'_>, names: &Names, route: bool) -> Result<Self, ApiError> {
        let offer = Offer { transforms: false, tables: false, stream: false, protobuf: true, route };
        Ok(Self::with(context, Output::parse(context.header(header::ACCEPT), names, offer)?))
    }

    /// For a document in a single encoding.
    pub fn of_plain(context: &RequestContext<'_>) -> Result<Self, ApiError> {
        let accept = context.header(header::ACCEPT).unwrap_or("*/*");
        let media = |clause: &str| clause.split(';').next().unwrap_or("").trim().to_owned();
        let plain = |clause| matches!(&*media(clause), "application/json" | "*/*" | "");
        if accept.split(',').any(plain) {
            return Ok(Self::with(context, Output::JSON));
        }
        Err(ApiError::nothing_acceptable(&["application/json"]))
    }

    /// For a document that is JSON regardless of `Accept`.
    pub fn of_page(context: &RequestContext<'_>) -> Self {
        Self::with(context, Output::JSON)
    }

    /// The same, always indented.
    pub fn indented(self) -> Self {
        ResponseFormat { pretty: true, ..self }
    }

    /// For objects of a resource; `stream`: whether a watch is possible here.
    pub fn of(
        context: &RequestContext<'_>,
        names: &Names,
        resource: &Resource,
        stream: bool,
    ) -> Result<Self, ApiError> {
        let part = context.info.target.as_ref().map_or("", |target| &target.subresource);
        let untabled =
            resource.hooks.subresources.parts.iter().any(|one| one.without_table && one.name == part);
        let tables = !untabled && resource.kind.verbs.iter().any(|verb| verb == "get");
        let builtin = resource.kind.kind_first;
        let offer = Offer { transforms: true, tables, stream, protobuf: builtin, route: builtin };
        Ok(Self::with(context, Output::parse(context.header(header::ACCEPT), names, offer)?))
    }

    /// For the result of an action, which has no table.
    pub fn of_action(context: &RequestContext<'_>, names: &Names) -> Result<Self, ApiError> {
        let offer = Offer { transforms: true, tables: false, stream: false, protobuf: true, route: true };
        Ok(Self::with(context, Output::parse(context.header(header::ACCEPT), names, offer)?))
    }

    /// For responses that ignore an unacceptable `Accept`.
    pub fn lenient(context: &RequestContext<'_>, names: &Names) -> Self {
        let offer = Offer { transforms: false, tables: false, stream: true, protobuf: true, route: true };
        let form = Output::parse(context.header(header::ACCEPT), names, offer).map(|output| output.form);
        let output = Output { form: form.unwrap_or(Form::Json), transform: Transform::Whole };
        Self::with(context, output)
    }

    fn with(context: &RequestContext<'_>, output: Output) -> Self {
        let agent = context.header(header::USER_AGENT).unwrap_or("");
        let pretty = output.form == Form::Json && is_pretty_requested(&context.info.query, agent);
        let record = (context.record.audit_detail() > AuditDetail::Nothing).then(|| context.record.clone());
        ResponseFormat { output, pretty, gzip: Self::accepts_gzip(context), record }
    }

    /// Suffix of the ETag of this format; empty for JSON.
    pub fn etag_suffix(&self) -> &'static str {
        match self.output.form {
            Form::Json if self.pretty => "-pretty",
            Form::Json => "",
            Form::Yaml => "-yaml",
            Form::Protobuf => "-protobuf",
        }
    }

    pub fn accepts_gzip(context: &RequestContext<'_>) -> bool {
        accepts_gzip(context.header(header::ACCEPT_ENCODING))
    }
}

/// An error, in a format that the client reads.
pub(crate) fn failure(error: &ApiError, context: &RequestContext<'_>, names: &Names) -> Response<Body> {
    let mut format = ResponseFormat::lenient(context, names);
    if error.code == 406 {
        // a fallback format, beside the usual path of responses
        format = format.unrecorded();
    }
    let mut response = document(error.code, status::failure(error), meta_type("Status"), &format, names);
    let seconds = error.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A JSON document; `ty` is its table, for the encodings that need one.
pub(crate) fn document(
    code: u16,
    json: Bytes,
    ty: Option<&Type>,
    format: &ResponseFormat,
    names: &Names,
) -> Response<Body> {
    format.record(&json);
    let form = format.output.form;
    let body = match form {
        Form::Json if format.pretty => pretty(&json),
        Form::Json => json,
        Form::Yaml => to_yaml(&json),
        Form::Protobuf => match ty {
            Some(ty) => protobuf_envelope(&json, ty),
            None => return response(code, Form::Json, Body::full(json), names),
        },
    };
    if body.len() > MIN_BYTES && format.gzip {
        let is_bulk = body.len() >= BODY_BYTES;
        let body = Body::frames(gzip(std::iter::once(body)));
        // few bytes are sent, but many are compressed
        let body = if is_bulk { body.in_bulk() } else { body };
        return compress(response(code, form, body, names));
    }
    response(code, form, Body::full(body), names)
}

/// An object without a resource, given as its JSON.
pub(crate) fn typed_object(
    code: u16,
    json: Bytes,
    ty: &Type,
    format: &ResponseFormat,
    names: &Names,
) -> Result<Response<Body>, ApiError> {
    match format.output.transform {
        Transform::Whole => Ok(document(code, json, Some(ty), format, names)),
        Transform::Partial { beta } => {
            let partial = table::partial(&json, names, beta);
            Ok(document(code, partial, meta_type("PartialObjectMetadata"), format, names))
        }
        _ => Err(wrong_shape("PartialObjectMetadataList", &format!("is not a list ({})", ty.name))),
    }
}

/// One object, given as its JSON.
pub(crate) fn object(
    code: u16,
    json: Bytes,
    resource: &Resource,
    format: &ResponseFormat,
    context: &RequestContext<'_>,
    api: &Api,
) -> Result<Response<Body>, ApiError> {
    let names = &api.names;
    let (json, ty) = match format.output.transform {
        Transform::Whole => (json, Some(&*resource.kind.root)),
        Transform::Partial { beta } => {
            (table::partial(&resource.outline(&json), names, beta), meta_type("PartialObjectMetadata"))
        }
        Transform::PartialList { .. } => {
            if !resource.kind.kind_first {
                return Err(ApiError::internal("content is not a list"));
            }
            let kind = format!("*{}.{}", go_package(resource), resource.kind.name);
            return Err(wrong_shape("PartialObjectMetadataList", &format!("is not a list ({kind})")));
        }
        Transform::Table { beta } => {
            let layout = layout(resource, beta, context, api)?;
            let value = decode::json(&json, &resource.kind.root).map(|decoded| decoded.value);
            let version = value.unwrap_or_default().text(&["metadata", "resourceVersion"]).to_owned();
            let metadata = match &*version {
                "" => "{}".to_owned(),
                version => format!("{{\"resourceVersion\":{version:?}}}"),
            };
            let mut out = layout.head(&metadata);
            out.extend_from_slice(&layout.row(&json));
            out.extend_from_slice(b"]}");
            (out.into(), None)
        }
    };
    Ok(document(code, json, ty, format, names))
}

/// The Go package of a resource as messages name it: `core`, `apps`.
pub(crate) fn go_package(resource: &Resource) -> &str {
    let (kind, stored) = (&resource.kind, &resource.collection.kind);
    if kind.name == stored.name {
        return stored.root.package.rsplit('.').nth(1).unwrap_or("unstructured");
    }
    // a subresource of another kind; that of a custom resource is not converted
    let of_custom = usize::from(!stored.root.package.is_empty());
    kind.root.package.rsplit('.').nth(of_custom).unwrap_or_default()
}

/// A client that requested the metadata of one object where it would get a list, or the reverse.
pub(crate) fn wrong_shape(requested: &str, but: &str) -> ApiError {
    let mut error = ApiError::not_acceptable(&[]);
    error.message = format!("you requested {requested}, but the requested object {but}");
    error
}

pub(crate) fn layout<'a>(
    resource: &'a Resource,
    beta: bool,
    context: &RequestContext<'_>,
    api: &'a Api,
) -> Result<Layout<'a>, ApiError> {
    let now = Duration::from_secs(env::unix_seconds(&api.world).max(0) as u64);
    let include = Include::parse(&context.info.query)?;
    Ok(Layout { resource, names: &api.names, beta, include, now, headers: true })
}

/// JSON as a protobuf message in its envelope.
pub(crate) fn protobuf_envelope(json: &[u8], ty: &Type) -> Bytes {
    let value = decode::json(json, ty).map(|decoded| decoded.value).unwrap_or_default();
    proto::seal(&value, ty).into()
}

fn to_yaml(json: &[u8]) -> Bytes {
    match decode::json_untyped(json) {
        Ok(decoded) => yaml::emit(&decoded.value).into(),
        Err(_) => Bytes::copy_from_slice(json),
    }
}

pub(crate) fn response(code: u16, form: Form, body: Body, names: &Names) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(form, names));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn content_type(form: Form, names: &Names) -> HeaderValue {
    match form {
        Form::Json => HeaderValue::from_static("application/json"),
        Form::Yaml => HeaderValue::from_static("application/yaml"),
        Form::Protobuf => HeaderValue::from_str(&names.protobuf_media_type())
            .unwrap_or(HeaderValue::from_static("application/octet-stream")),
    }
}

pub(crate) fn compress(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// Adds warnings as headers, without duplicates.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let mut quoted = Vec::new();
        encode::string(warning, &mut quoted);
        let text = format!("299 - {}", String::from_utf8_lossy(&quoted));
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
