//! Objects, lists and errors as responses, in the form that the client asked for.

use super::{Call, Service};
use crate::negotiate::table::{self, Include, Layout};
use crate::negotiate::{Form, Output, Transform, accepts_gzip, gzip, pretty, wants_pretty};
use crate::request::Asked;
use crate::serve::Body;
use crate::status;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use rest::{ApiError, Page, Resource};
use schema::{decode, encode, yaml};
use std::sync::Arc;
use std::time::Duration;

/// Lists are sent in pieces of about this size.
const PIECE: usize = 64 * 1024;

/// An error, in a form that the client reads.
pub fn failure(error: &ApiError, asked: &Asked, headers: &HeaderMap, service: &Service) -> Response<Body> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let form = Output::parse(accept, &service.api.names, true, true).map_or(Form::Json, |output| output.form);
    let json = status::failure(error);
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let body = match form {
        Form::Json if wants_pretty(&asked.query, agent) => pretty(&json),
        Form::Json => json,
        Form::Yaml => to_yaml(&json),
    };
    let mut response = response(error.code, form, Body::full(body));
    let seconds = error.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A document that is JSON already.
pub(crate) fn json(json: Bytes, output: &Output, call: &Call<'_>) -> Response<Body> {
    with_code(200, json, output, call)
}

pub(crate) fn with_code(code: u16, json: Bytes, output: &Output, call: &Call<'_>) -> Response<Body> {
    let agent = call.header(header::USER_AGENT).unwrap_or("");
    let body = match output.form {
        Form::Json if wants_pretty(&call.asked.query, agent) => pretty(&json),
        Form::Json => json,
        Form::Yaml => to_yaml(&json),
    };
    if body.len() > crate::negotiate::WORTH_IT && accepts_gzip(call.header(header::ACCEPT_ENCODING)) {
        let mut response = response(code, output.form, Body::frames(gzip(std::iter::once(body))));
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return response;
    }
    response(code, output.form, Body::full(body))
}

/// One object, given as its JSON.
pub(crate) fn object(
    code: u16,
    json: Bytes,
    resource: &Resource,
    output: &Output,
    call: &Call<'_>,
    service: &Service,
) -> Result<Response<Body>, ApiError> {
    let names = &service.api.names;
    let shaped = match output.transform {
        Transform::Whole => json,
        Transform::Partial => table::partial(&json, names, false),
        Transform::PartialList => {
            let mut error = ApiError::not_acceptable(&[]);
            let kind = &resource.kind.name;
            error.message = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({kind})"
            );
            return Err(error);
        }
        Transform::Table { beta } => {
            let layout = layout(resource, beta, call, service)?;
            let value =
                decode::json(&json, &resource.kind.root).map(|decoded| decoded.value).unwrap_or_default();
            let metadata =
                format!("{{\"resourceVersion\":{:?}}}", value.text(&["metadata", "resourceVersion"]));
            let mut out = layout.head(&metadata);
            out.extend_from_slice(&layout.row(&json));
            out.extend_from_slice(b"]}");
            out.into()
        }
    };
    Ok(with_code(code, shaped, output, call))
}

pub(crate) fn layout<'a>(
    resource: &'a Resource,
    beta: bool,
    call: &Call<'_>,
    service: &'a Service,
) -> Result<Layout<'a>, ApiError> {
    let now = Duration::from_secs(ambient::unix_seconds(&service.api.world).max(0) as u64);
    let include = Include::parse(&call.asked.query)?;
    Ok(Layout { resource, names: &service.api.names, beta, include, now, headers: true })
}

/// A list: its header, the items' bytes, the end. Nothing is decoded for the whole form.
pub(crate) fn list(
    page: Page,
    resource: &Arc<Resource>,
    output: &Output,
    call: &Call<'_>,
    service: &Service,
) -> Result<Response<Body>, ApiError> {
    let metadata = list_metadata(&page);
    let names = service.api.names.clone();
    let (head, row): (Vec<u8>, Row) = match output.transform {
        Transform::Whole => {
            let mut head = resource.list_header.to_vec();
            head.extend_from_slice(format!("\"metadata\":{metadata},\"items\":[").as_bytes());
            let resource = resource.clone();
            (head, Row::Item(resource))
        }
        Transform::PartialList => {
            let kind = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{}/v1\"",
                names.meta_group()
            );
            let head = format!("{kind},\"metadata\":{metadata},\"items\":[").into_bytes();
            let resource = resource.clone();
            (head, Row::Made(Box::new(move |object| table::partial(&resource.json(object), &names, false))))
        }
        Transform::Partial => {
            let mut error = ApiError::not_acceptable(&[]);
            let kind = &resource.kind.name;
            error.message = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({kind}List)"
            );
            return Err(error);
        }
        Transform::Table { beta } => {
            let layout = layout(resource, beta, call, service)?;
            let head = layout.head(&metadata);
            let (include, now) = (layout.include, layout.now);
            let resource = resource.clone();
            let row = move |object: &rest::Object| {
                let layout =
                    Layout { resource: &resource, names: &names, beta, include, now, headers: false };
                layout.row(&resource.json(object)).into()
            };
            (head, Row::Made(Box::new(row)))
        }
    };
    let agent = call.header(header::USER_AGENT).unwrap_or("");
    let whole = output.form == Form::Yaml || wants_pretty(&call.asked.query, agent);
    let total = match &row {
        Row::Item(resource) => {
            let items: usize = page.items.iter().map(|object| resource.json_item(object).len() + 2).sum();
            Some(head.len() + items.saturating_sub(usize::from(!page.items.is_empty())) + 2)
        }
        Row::Made(_) => None,
    };
    let pieces = Pieces { head: Some(head), items: page.items.into_iter(), row, first: true, done: false };
    if whole {
        let json: Vec<u8> = pieces.flatten().collect();
        return Ok(with_code(200, json.into(), output, call));
    }
    let large = total.is_none_or(|total| total > crate::negotiate::WORTH_IT);
    if large && accepts_gzip(call.header(header::ACCEPT_ENCODING)) {
        let mut response = response(200, output.form, Body::frames(gzip(pieces)));
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return Ok(response);
    }
    let body = match total {
        Some(total) => Body::frames_of(total as u64, pieces),
        None => Body::frames(pieces),
    };
    Ok(response(200, output.form, body))
}

fn list_metadata(page: &Page) -> String {
    let mut out = format!("{{\"resourceVersion\":\"{}\"", page.revision);
    if !page.continue_token.is_empty() {
        out.push_str(&format!(",\"continue\":\"{}\"", page.continue_token));
    }
    if let Some(remaining) = page.remaining {
        out.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    out.push('}');
    out
}

/// How an item of a list is written.
enum Row {
    /// The object's own bytes.
    Item(Arc<Resource>),
    /// Bytes made from the object.
    Made(Box<dyn Fn(&rest::Object) -> Bytes + Send>),
}

/// The text of a list, piece by piece.
struct Pieces {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<rest::Object>>,
    row: Row,
    first: bool,
    done: bool,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = BytesMut::with_capacity(PIECE + 8192);
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        while out.len() < PIECE {
            let Some(object) = self.items.next() else {
                out.extend_from_slice(b"]}");
                self.done = true;
                break;
            };
            let comma = !std::mem::replace(&mut self.first, false);
            match &self.row {
                Row::Item(resource) => {
                    out.extend_from_slice(if comma { b",{" } else { b"{" });
                    out.extend_from_slice(&resource.json_item(&object));
                }
                Row::Made(make) => {
                    if comma {
                        out.extend_from_slice(b",");
                    }
                    out.extend_from_slice(&make(&object));
                }
            }
        }
        Some(out.freeze())
    }
}

pub(crate) fn to_yaml(json: &[u8]) -> Bytes {
    match decode::json_untyped(json) {
        Ok(decoded) => yaml::emit(&decoded.value).into(),
        Err(_) => Bytes::copy_from_slice(json),
    }
}

pub(crate) fn response(code: u16, form: Form, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.media_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Adds what the client should know although its request succeeded.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut seen: Vec<&String> = Vec::new();
    for warning in warnings {
        if seen.contains(&warning) {
            continue;
        }
        seen.push(warning);
        let mut quoted = Vec::new();
        encode::string(warning, &mut quoted);
        let text = format!("299 - {}", String::from_utf8_lossy(&quoted));
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
