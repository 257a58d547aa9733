//! Objects of the built-in kinds.

use api::tables;
use names::Names;
use schema::decode::{self, TypeMeta};
use schema::table::Kind;
use schema::{Value, encode};
use std::sync::LazyLock;

pub static NAMES: LazyLock<Names> = LazyLock::new(Names::kubernetes);

/// The kind that an object names; a ConfigMap if it names none.
pub fn kind_of(api_version: &str, kind: &str) -> &'static Kind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_it = |it: &&Kind| {
        let stem = &*it.group.stem;
        let is_group = if it.group.in_domain { NAMES.group(stem) == group } else { stem == group };
        it.name == kind && it.version == version && is_group
    };
    let mut kinds = tables::KINDS.iter().chain(tables::TRAVELLING).copied();
    kinds.find(is_it).unwrap_or(&tables::K_CORE_V1_CONFIG_MAP)
}

/// The kind that the text of an object names.
pub fn kind_of_text(text: &[u8]) -> Option<&'static Kind> {
    let meta = TypeMeta::of_json(text).ok()?;
    Some(kind_of(&meta.api_version, &meta.kind))
}

/// An object in the normal form of the kind that it names.
pub fn object(text: &str) -> Option<(&'static Kind, Value)> {
    let kind = kind_of_text(text.as_bytes())?;
    Some((kind, decode::json(text.as_bytes(), &kind.root).ok()?.value))
}

/// A value that a merge made, in normal form; it must then be the same after its own text.
pub fn settle(value: Value, kind: &Kind) -> Option<Value> {
    let value = decode::tree(value, &kind.root).ok()?.value;
    let text = encode::json(&value, &kind.root);
    let again = decode::json(&text, &kind.root).expect("the text of an object decodes").value;
    assert_eq!(again, value, "{}", String::from_utf8_lossy(&text));
    Some(value)
}
