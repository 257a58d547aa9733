//! Lists as responses: a head, the bytes of the items, a tail, sent in pieces as the client reads them.
//!
//! No tree is built for whole objects: JSON items are the stored bytes, protobuf items are encoded once per
//! object and cached.

use super::request_context::RequestContext;
use super::responses::{self, ResponseFormat};
use crate::negotiate::table::{self, Layout};
use crate::negotiate::{Form, Indenter, MIN_BYTES, Transform, gzip};
use crate::serve::Body;
use bytes::{Bytes, BytesMut};
use http::Response;
use rest::{Api, ApiError, Object, Page, Resource};
use schema::proto::{self, ItemHead, ListMeta};
use schema::{Value, decode, yaml};
use std::sync::Arc;

/// Lists are sent in pieces of about this size.
const PIECE: usize = 64 * 1024;
/// Producing this many items that are not sent as stored takes about a millisecond.
const BULK_ROWS: usize = 100;
/// Compressing this many bytes takes longer.
const BULK_BYTES: usize = 256 * 1024;

pub(crate) fn respond(
    page: Page,
    resource: &Arc<Resource>,
    format: &ResponseFormat,
    context: &RequestContext<'_>,
    api: &Api,
) -> Result<Response<Body>, ApiError> {
    if let Some(plain) = format.for_record() {
        let audited = respond(page.clone(), resource, &plain, context, api)?;
        format.record(&audited.into_body().into_bytes());
    }
    let names = &api.names;
    let form = format.output.form;
    let pieces = match (format.output.transform, form) {
        (Transform::Partial { .. }, _) => {
            let custom = !resource.kind.kind_first;
            let name = if custom { "Unstructured" } else { &resource.kind.name };
            let kind = format!("*{}.{name}List", responses::go_package(resource));
            return Err(responses::wrong_shape("PartialObjectMetadata", &format!("is a list ({kind})")));
        }
        (Transform::Whole, Form::Protobuf) => messages(page, resource),
        (Transform::Whole, _) => items(page, resource),
        (Transform::PartialList { beta }, Form::Protobuf) => partial_messages(page, resource, beta, api),
        (Transform::PartialList { beta }, _) => {
            let version = format!("{}/{}", names.meta_group(), table::version(beta));
            let head = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{version}\",\"metadata\":{},\"items\":[",
                list_metadata(&page, false)
            );
            let (resource, names) = (resource.clone(), names.clone());
            let row = move |object: &Object| {
                table::partial(&resource.outline(&resource.json(object)), &names, beta)
            };
            rows(page, head.into_bytes(), Box::new(row)).or_null()
        }
        (Transform::Table { beta }, _) => {
            let layout = responses::layout(resource, beta, context, api)?;
            let head = layout.head(&list_metadata(&page, false));
            let (include, now, is_plain) = (layout.include, layout.now, layout.is_plain());
            let (resource, names) = (resource.clone(), names.clone());
            let row = move |object: &Object| {
                let layout =
                    Layout { resource: &resource, names: &names, beta, include, now, headers: false };
                layout.row_of(object).into()
            };
            let pieces = rows(page, head, Box::new(row));
            if is_plain { pieces.or_null() } else { pieces }
        }
    };
    let is_bulk = pieces.items.len() >= BULK_ROWS || pieces.total.is_some_and(|total| total >= BULK_BYTES);
    let total = pieces.total.filter(|_| !format.pretty && form != Form::Yaml);
    let pieces: Box<dyn Iterator<Item = Bytes> + Send> = match form {
        Form::Yaml => Box::new(YamlPieces::new(pieces, list_key(format.output.transform))),
        _ if format.pretty => {
            let mut indenter = Indenter::default();
            Box::new(pieces.map(move |piece| indenter.indent(&piece)))
        }
        _ => Box::new(pieces),
    };
    if format.gzip && total.is_none_or(|total| total > MIN_BYTES) {
        // few bytes are sent, but many are compressed
        let body = Body::frames(gzip(pieces));
        let body = if is_bulk { body.in_bulk() } else { body };
        return Ok(responses::compress(responses::response(200, form, body, names)));
    }
    let body = match total {
        Some(total) => Body::frames_of(total as u64, pieces),
        None if is_bulk => Body::frames(pieces).in_bulk(),
        None => Body::frames(pieces),
    };
    Ok(responses::response(200, form, body, names))
}

/// The stored bytes of the objects.
fn items(page: Page, resource: &Arc<Resource>) -> Pieces {
    let mut head = resource.list_header.to_vec();
    let metadata = list_metadata(&page, !resource.kind.kind_first);
    head.extend_from_slice(format!("\"metadata\":{},\"items\":[", metadata).as_bytes());
    let commas = page.items.len().saturating_sub(1);
    let bytes: usize = page.items.iter().map(|object| resource.json_item(object).len() + 1).sum();
    let total = Some(head.len() + bytes + commas + 2);
    let row = Row::Item(resource.clone());
    Pieces {
        head: Some(head),
        items: page.items.into_iter(),
        row,
        tail: b"]}",
        total,
        first: true,
        done: false,
    }
}

fn rows(page: Page, head: Vec<u8>, encode: Box<dyn Fn(&Object) -> Bytes + Send>) -> Pieces {
    let (items, row) = (page.items.into_iter(), Row::Json(encode));
    Pieces { head: Some(head), items, row, tail: b"]}", total: None, first: true, done: false }
}

fn messages(page: Page, resource: &Arc<Resource>) -> Pieces {
    let kind = format!("{}List", resource.kind.name);
    let shared = resource.clone();
    let message = move |object: &Object| message(&shared, object);
    protobuf(page, &resource.api_version, &kind, Box::new(message))
}

fn partial_messages(page: Page, resource: &Arc<Resource>, beta: bool, api: &Api) -> Pieces {
    let names = api.names.clone();
    let version = format!("{}/{}", names.meta_group(), table::version(beta));
    let resource = resource.clone();
    let message = move |object: &Object| {
        let json = table::partial(&resource.outline(&resource.json(object)), &names, beta);
        let ty = responses::meta_type("PartialObjectMetadata");
        let decoded = ty.and_then(|ty| Some((schema::decode::json(&json, ty).ok()?.value, ty)));
        decoded.map(|(value, ty)| proto::encode(&value, ty)).unwrap_or_default().into()
    };
    protobuf(page, &version, "PartialObjectMetadataList", Box::new(message))
}

fn protobuf(
    page: Page,
    api_version: &str,
    kind: &str,
    message: Box<dyn Fn(&Object) -> Bytes + Send>,
) -> Pieces {
    let bytes: usize = page.items.iter().map(|object| ItemHead::item_len(message(object).len())).sum();
    let revision = if page.revision == 0 { String::new() } else { page.revision.to_string() };
    let meta = ListMeta {
        resource_version: &revision,
        continue_token: &page.continue_token,
        remaining_item_count: page.remaining.map(|count| count as i64),
    };
    let head = proto::list_head(api_version, kind, &meta, bytes);
    let total = Some(head.len() + bytes + proto::LIST_TAIL.len());
    let row = Row::Message(message);
    let tail = &proto::LIST_TAIL;
    Pieces { head: Some(head), items: page.items.into_iter(), row, tail, total, first: true, done: false }
}

/// The protobuf message of an object in this version, encoded once.
pub(crate) fn message(resource: &Resource, object: &Object) -> Bytes {
    let slot = if resource.hooks.storage.convert.is_some() { 2 } else { 1 };
    object.form(slot, || {
        let json = resource.json(object);
        let value = schema::decode::json(&json, &resource.kind.root).map(|decoded| decoded.value);
        // cached with the object, so without spare capacity
        Bytes::copy_from_slice(&proto::encode(&value.unwrap_or_default(), &resource.kind.root))
    })
}

/// Lists of custom resources always have a `continue`, even if it is empty.
fn list_metadata(page: &Page, always: bool) -> String {
    if page.revision == 0 {
        return "{}".to_owned();
    }
    let mut out = format!("{{\"resourceVersion\":\"{}\"", page.revision);
    if always || !page.continue_token.is_empty() {
        out.push_str(&format!(",\"continue\":\"{}\"", page.continue_token));
    }
    if let Some(remaining) = page.remaining {
        out.push_str(&format!(",\"remainingItemCount\":{remaining}"));
    }
    out.push('}');
    out
}

/// The encoding of an item.
enum Row {
    /// The stored bytes.
    Item(Arc<Resource>),
    /// JSON computed from the object.
    Json(Box<dyn Fn(&Object) -> Bytes + Send>),
    /// A protobuf message computed from the object.
    Message(Box<dyn Fn(&Object) -> Bytes + Send>),
}

impl Row {
    /// The separator of two rows.
    fn separator(&self) -> &'static [u8] {
        match self {
            Row::Item(_) | Row::Json(_) => b",",
            Row::Message(_) => b"",
        }
    }

    fn write(&self, object: &Object, out: &mut BytesMut) {
        match self {
            Row::Item(resource) => {
                out.extend_from_slice(b"{");
                out.extend_from_slice(&resource.json_item(object));
            }
            Row::Json(encode) => out.extend_from_slice(&encode(object)),
            Row::Message(encode) => {
                let message = encode(object);
                out.extend_from_slice(&ItemHead::of(message.len()));
                out.extend_from_slice(&message);
            }
        }
    }
}

/// The bytes of a list in pieces.
struct Pieces {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Object>>,
    row: Row,
    tail: &'static [u8],
    /// Total length, where it is known.
    total: Option<usize>,
    first: bool,
    done: bool,
}

impl Pieces {
    /// An empty list becomes null, as some clients expect.
    fn or_null(mut self) -> Self {
        if self.items.len() == 0 {
            self.head = self.head.map(|mut head| {
                head.pop();
                head
            });
            self.tail = b"null}";
        }
        self
    }
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
                out.extend_from_slice(self.tail);
                self.done = true;
                break;
            };
            if !std::mem::replace(&mut self.first, false) {
                out.extend_from_slice(self.row.separator());
            }
            self.row.write(&object, &mut out);
        }
        Some(out.freeze())
    }
}

/// The field of the items in a list.
fn list_key(transform: Transform) -> &'static str {
    match transform {
        Transform::Table { .. } => "rows",
        _ => "items",
    }
}

/// The bytes of a list as YAML in pieces.
struct YamlPieces {
    pieces: Pieces,
    /// `None` after the end was written.
    writer: Option<yaml::ListWriter>,
}

impl YamlPieces {
    fn new(mut pieces: Pieces, key: &str) -> Self {
        let mut head = pieces.head.take().unwrap_or_default();
        head.extend_from_slice(pieces.tail);
        let document = decode::json_untyped(&head).map(|decoded| decoded.value).unwrap_or_default();
        if pieces.items.len() == 0 {
            pieces.head = Some(yaml::emit(&document).into_bytes());
            return YamlPieces { pieces, writer: None };
        }
        let Value::Map(document) = document else { return YamlPieces { pieces, writer: None } };
        YamlPieces { pieces, writer: Some(yaml::ListWriter::new(document, key)) }
    }
}

impl Iterator for YamlPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let Some(writer) = &mut self.writer else { return self.pieces.head.take().map(Bytes::from) };
        let mut json = BytesMut::new();
        while writer.pending() < PIECE {
            let Some(object) = self.pieces.items.next() else {
                return self.writer.take().map(|writer| writer.finish().into());
            };
            json.clear();
            self.pieces.row.write(&object, &mut json);
            let item = decode::json_untyped(&json).map(|decoded| decoded.value);
            writer.item(&item.unwrap_or_default());
        }
        Some(writer.take().into())
    }
}
