//! The OpenAPI v3 documents, one for each group and version, and their index.

use super::definitions::{self, Definitions};
use super::{Dialect, Flavour, Members, Source, object, paths, root_path, security_definitions};
use crate::table::{Group, Kind};
use crate::value::{Map, Value};
use sha2::{Digest, Sha512};

/// The document of one group and version.
pub fn v3(source: &Source<'_>, group: &Group, version: &str) -> Vec<u8> {
    let own: Vec<&Kind> =
        source.kinds.iter().copied().filter(|kind| kind.group == *group && kind.version == version).collect();
    let root = format!("{}/", root_path(source.dialect, group, version));
    let places = paths::places(source, &own);
    document(source, places.into_iter().filter(|place| place.path.starts_with(&root)).collect())
}

/// The documents that tell of groups and their versions, by their keys in the index: `api`, `apis/apps`.
pub fn v3_groups(source: &Source<'_>) -> Vec<(String, Vec<u8>)> {
    let places = paths::places(source, source.kinds).into_iter().filter(|place| place.is_group_discovery());
    places.map(|place| (place.path.trim_matches('/').to_owned(), document(source, vec![place]))).collect()
}

/// One of them.
pub fn v3_group(source: &Source<'_>, key: &str) -> Option<Vec<u8>> {
    let group = key.strip_prefix("apis/");
    let concerned = |kind: &&Kind| group.is_none_or(|it| kind.group.full(source.dialect.api_domain) == it);
    let kinds: Vec<&Kind> = source.kinds.iter().copied().filter(concerned).collect();
    let mut places = paths::places(source, &kinds).into_iter().filter(|place| place.is_group_discovery());
    places.find(|place| place.path.trim_matches('/') == key).map(|place| document(source, vec![place]))
}

fn document(source: &Source<'_>, places: Vec<paths::Place<'_>>) -> Vec<u8> {
    let mut schemas = Members::new();
    for (name, (definition, known_as)) in Definitions::of(source, &paths::wanted(source, &places)).iter() {
        schemas.put(name, &definitions::render(source, Flavour::V3, definition, known_as));
    }
    let mut all_paths = Members::new();
    for place in places {
        all_paths.put(&place.path, &paths::render(source, Flavour::V3, &place));
    }
    let mut components = Members::new();
    components.raw("schemas", &schemas.end());
    components.put("securitySchemes", &security_definitions());
    let mut document = Members::new();
    document.put("openapi", &"3.0.0".into());
    document
        .put("info", &object([("title", source.dialect.title.into()), ("version", source.version.into())]));
    document.raw("paths", &all_paths.end());
    document.raw("components", &components.end());
    document.end()
}

/// The key of a group and version in the index: `api/v1`, `apis/apps/v1`.
pub fn v3_path(dialect: &Dialect<'_>, group: &Group, version: &str) -> String {
    root_path(dialect, group, version).trim_start_matches('/').to_owned()
}

/// The hash in the URL of a document, for caching.
pub fn v3_hash(document: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha512::digest(document).iter().fold(String::with_capacity(128), |mut out, byte| {
        let _ = write!(out, "{byte:02X}");
        out
    })
}

/// Where a document is found.
pub fn v3_address(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// The index: from [`v3_path`] to the address of each document.
pub fn v3_index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let entry = |address: &str| object([("serverRelativeURL", address.into())]);
    let paths: Map =
        documents.into_iter().map(|(path, address)| (path.to_owned().into(), entry(address))).collect();
    crate::encode::untyped(&object([("paths", Value::Map(paths))]))
}
