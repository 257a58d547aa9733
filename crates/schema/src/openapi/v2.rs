//! The OpenAPI v2 document of the whole API, as JSON and as protobuf.

use super::definitions::{self, Definitions};
use super::join::{ExternalDocument, MergedDocuments};
use super::{Flavour, Members, Source, object, paths, proto, security, security_definitions};
use crate::value::Value;
use std::sync::Arc;

fn info(source: &Source<'_>) -> Value {
    object([("title", source.dialect.title.into()), ("version", source.version.into())])
}

/// The document as JSON, joined with those of other servers.
pub fn v2(source: &Source<'_>, others: &[Arc<ExternalDocument>]) -> Vec<u8> {
    let places = paths::places(source, source.kinds);
    let own = Definitions::of(source, &paths::wanted(source, &places));
    let joined = joined(source, &places, &own, others);
    let mut all_definitions = Members::new();
    for (name, (definition, known_as)) in own.iter() {
        all_definitions.put(name, &definitions::render(source, Flavour::V2, definition, known_as));
    }
    joined.definitions.iter().for_each(|(name, it)| all_definitions.put(name, it));
    let mut all_paths = Members::new();
    for place in places {
        all_paths.put(&place.path, &paths::render(source, Flavour::V2, &place));
    }
    joined.paths.iter().for_each(|(path, it)| all_paths.put(path, it));
    let mut document = Members::new();
    document.put("swagger", &"2.0".into());
    document.put("info", &info(source));
    document.raw("paths", &all_paths.end());
    document.raw("definitions", &all_definitions.end());
    document.put("securityDefinitions", &security_definitions());
    document.put("security", &security());
    document.end()
}

/// The same document in the protobuf form of the gnostic compiler.
pub fn v2_proto(source: &Source<'_>, others: &[Arc<ExternalDocument>]) -> Vec<u8> {
    let mut document = proto::Document::new(&info(source));
    let places = paths::places(source, source.kinds);
    let own = Definitions::of(source, &paths::wanted(source, &places));
    let joined = joined(source, &places, &own, others);
    for place in &places {
        document.path(&place.path, &paths::render(source, Flavour::V2, place));
    }
    joined.paths.iter().for_each(|(path, it)| document.path(path, it));
    for (name, (definition, known_as)) in own.iter() {
        document.definition(name, &definitions::render(source, Flavour::V2, definition, known_as));
    }
    joined.definitions.iter().for_each(|(name, it)| document.definition(name, it));
    document.end(&security(), &security_definitions())
}

fn joined(
    source: &Source<'_>,
    places: &[paths::Place<'_>],
    own: &Definitions<'_>,
    others: &[Arc<ExternalDocument>],
) -> MergedDocuments {
    let paths = places.iter().map(|place| place.path.as_str()).collect();
    MergedDocuments::new(source, &paths, own, others)
}
