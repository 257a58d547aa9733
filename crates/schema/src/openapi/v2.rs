//! One document for the whole API, as JSON and as protobuf.

use super::definitions::{self, Definitions};
use super::{Flavour, Members, Source, object, paths, proto, security, security_definitions};
use crate::value::Value;

fn info(source: &Source<'_>) -> Value {
    object([("title", source.dialect.title.into()), ("version", source.version.into())])
}

/// The document as JSON.
pub fn v2(source: &Source<'_>) -> Vec<u8> {
    let places = paths::places(source, source.kinds);
    let mut all_definitions = Members::new();
    for (name, (definition, known_as)) in Definitions::of(source, &paths::wanted(source, &places)).iter() {
        all_definitions.put(name, &definitions::render(source, Flavour::V2, definition, known_as));
    }
    let mut all_paths = Members::new();
    for place in places {
        all_paths.put(&place.path, &paths::render(source, Flavour::V2, &place));
    }
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
pub fn v2_proto(source: &Source<'_>) -> Vec<u8> {
    let mut document = proto::Document::new(&info(source));
    let places = paths::places(source, source.kinds);
    for place in &places {
        document.path(&place.path, &paths::render(source, Flavour::V2, place));
    }
    for (name, (definition, known_as)) in Definitions::of(source, &paths::wanted(source, &places)).iter() {
        document.definition(name, &definitions::render(source, Flavour::V2, definition, known_as));
    }
    document.end(&security(), &security_definitions())
}
