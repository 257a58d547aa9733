//! Envelopes of protobuf messages: objects with their type, lists of messages, frames of a watch.
//!
//! An envelope is four magic bytes and the message
//!
//! ```text
//! 1 {1: apiVersion, 2: kind}   2 the object's message   3 content encoding   4 content type
//! ```
//!
//! where 3 and 4 are written as empty text. A list is an envelope around `{1: list metadata, 2: item}`, with
//! as many 2 as there are items; items are bare messages. As the length of all items stands in front, a list
//! is streamed as [`list_head`], then an [`ItemHead`] and the bytes of each item, then [`LIST_TAIL`].
//!
//! A watch is a sequence of frames: a length in four bytes, the most significant one first, and a message
//! `{1: type, 2: {1: object}}` of that length. That message has no envelope and no magic bytes; the object in
//! it has both.

use super::ProtoError;
use super::decode::{decode, text};
use super::encode::encode;
use super::wire::{DELIMITED, Reader, varint_bytes};
use crate::table::{Text, Type};
use crate::value::Value;

/// The first bytes of every object.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// The rest of the envelope after the last item of a list.
pub const LIST_TAIL: [u8; 4] = [0x1a, 0, 0x22, 0];

/// An opened envelope. Kind and version are empty where the sender left them out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
    pub content_encoding: String,
    pub content_type: String,
}

impl Envelope<'_> {
    /// The object inside, with the kind and version that the envelope names.
    pub fn object(&self, ty: &Type) -> Result<Value, ProtoError> {
        let mut value = decode(self.raw, ty)?;
        for (name, text) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            let travels_outside = ty.field(name).is_some_and(|(_, field)| field.number == 0);
            if travels_outside && !text.is_empty() {
                value.make_map().insert(Text::Borrowed(name), text.clone());
            }
        }
        Ok(value)
    }
}

/// Opens the envelope of an object.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    if bytes.is_empty() {
        return Err(ProtoError::EmptyData);
    }
    let body = bytes.strip_prefix(&MAGIC).ok_or(ProtoError::NoPrefix)?;
    if body.is_empty() {
        return Err(ProtoError::EmptyBody);
    }
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
        content_encoding: String::new(),
        content_type: String::new(),
    };
    each(body, "Unknown", &["TypeMeta", "Raw", "ContentEncoding", "ContentType"], |number, bytes| {
        match number {
            1 => each(bytes, "TypeMeta", &["APIVersion", "Kind"], |number, bytes| {
                *(if number == 1 { &mut envelope.api_version } else { &mut envelope.kind }) = text(bytes);
                Ok(())
            })?,
            2 => envelope.raw = bytes,
            3 => envelope.content_encoding = text(bytes),
            _ => envelope.content_type = text(bytes),
        }
        Ok(())
    })?;
    // a version that cannot be read is none
    if envelope.api_version.matches('/').count() > 1 || envelope.api_version == "/" {
        envelope.api_version.clear();
    }
    Ok(envelope)
}

/// Hands out the fields of a message that has only delimited ones, named in the order of their numbers.
fn each<'a>(
    bytes: &'a [u8],
    message: &str,
    names: &[&str],
    mut field: impl FnMut(i32, &'a [u8]) -> Result<(), ProtoError>,
) -> Result<(), ProtoError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.tag(message)? {
        match names.get(number as usize - 1) {
            None => reader.skip(wire)?,
            Some(_) if wire == DELIMITED => field(number, reader.delimited()?)?,
            Some(name) => return Err(ProtoError::WrongWireType { wire, field: (*name).to_owned() }),
        }
    }
    Ok(())
}

/// An object's message in its envelope.
pub fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = envelope_head(api_version, kind, message.len());
    out.extend_from_slice(message);
    out.extend_from_slice(&LIST_TAIL);
    out
}

/// A whole object in its envelope, with the kind and version that it carries itself.
pub fn seal(value: &Value, ty: &Type) -> Vec<u8> {
    envelope(value.text(&["apiVersion"]), value.text(&["kind"]), &encode(value, ty))
}

/// An envelope up to its message, with room for all of it.
fn envelope_head(api_version: &str, kind: &str, message: usize) -> Vec<u8> {
    let names = delimited_len(api_version.len()) + delimited_len(kind.len());
    let mut out =
        Vec::with_capacity(MAGIC.len() + delimited_len(names) + delimited_len(message) + LIST_TAIL.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&ItemHead::new(1, names));
    put(&mut out, 1, api_version.as_bytes());
    put(&mut out, 2, kind.as_bytes());
    out.extend_from_slice(&ItemHead::new(2, message));
    out
}

/// The metadata of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListMeta<'a> {
    pub resource_version: &'a str,
    pub continue_token: &'a str,
    pub remaining_item_count: Option<i64>,
}

impl ListMeta<'_> {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.resource_version.len() + self.continue_token.len());
        // the link to itself, which is no longer filled in
        put(&mut out, 1, b"");
        put(&mut out, 2, self.resource_version.as_bytes());
        put(&mut out, 3, self.continue_token.as_bytes());
        if let Some(count) = self.remaining_item_count {
            let (bytes, length) = varint_bytes(count as u64);
            out.push(4 << 3);
            out.extend_from_slice(&bytes[..length]);
        }
        out
    }
}

/// The beginning of a list, up to its first item.
///
/// `items_len` is the length before the tail: the sum of [`ItemHead::item_len`] of all items.
pub fn list_head(api_version: &str, kind: &str, meta: &ListMeta<'_>, items_len: usize) -> Vec<u8> {
    let meta = meta.message();
    let mut out = envelope_head(api_version, kind, delimited_len(meta.len()) + items_len);
    put(&mut out, 1, &meta);
    out
}

/// The bytes before an item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemHead {
    bytes: [u8; 11],
    length: u8,
}

impl ItemHead {
    /// The head of an item whose message is this long.
    pub fn of(message: usize) -> Self {
        ItemHead::new(2, message)
    }

    /// How long an item is together with its head.
    pub fn item_len(message: usize) -> usize {
        delimited_len(message)
    }

    /// Tag and length of a delimited field; numbers stay below 16, so a tag is one byte.
    fn new(number: u8, length: usize) -> Self {
        let (varint, varint_length) = varint_bytes(length as u64);
        let mut bytes = [0; 11];
        bytes[0] = number << 3 | DELIMITED;
        bytes[1..].copy_from_slice(&varint);
        ItemHead { bytes, length: varint_length as u8 + 1 }
    }
}

impl std::ops::Deref for ItemHead {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A whole list from the messages of its items.
pub fn list<'a>(
    api_version: &str,
    kind: &str,
    meta: &ListMeta<'_>,
    items: impl Iterator<Item = &'a [u8]> + Clone,
) -> Vec<u8> {
    let items_len = items.clone().map(|item| ItemHead::item_len(item.len())).sum();
    let mut out = list_head(api_version, kind, meta, items_len);
    for item in items {
        put(&mut out, 2, item);
    }
    out.extend_from_slice(&LIST_TAIL);
    out
}

/// The message of a watch event; `object` is an object in its envelope.
pub fn watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(watch_event_len(event_type, object.len()));
    put_watch_event(&mut out, event_type, object);
    out
}

/// A watch event as it stands in the stream; `object` is an object in its envelope.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let length = watch_event_len(event_type, object.len());
    // requests are bounded far below, so no object comes near to four gigabytes
    debug_assert!(u32::try_from(length).is_ok());
    let mut out = Vec::with_capacity(4 + length);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    put_watch_event(&mut out, event_type, object);
    out
}

fn watch_event_len(event_type: &str, object: usize) -> usize {
    delimited_len(event_type.len()) + delimited_len(delimited_len(object))
}

fn put_watch_event(out: &mut Vec<u8>, event_type: &str, object: &[u8]) {
    put(out, 1, event_type.as_bytes());
    out.extend_from_slice(&ItemHead::new(2, delimited_len(object.len())));
    put(out, 1, object);
}

fn put(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.extend_from_slice(&ItemHead::new(number, bytes.len()));
    out.extend_from_slice(bytes);
}

/// How long a delimited field is whose content is this long.
fn delimited_len(content: usize) -> usize {
    ItemHead::new(1, content).len() + content
}
