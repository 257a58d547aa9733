//! `/openapi/v2` and `/openapi/v3`: made from the tables when first asked for, and kept until they change.
//!
//! Both can be revalidated by their `ETag`; a v3 document asked for by its hash never changes and may be kept
//! for ever.

use super::version::{MAJOR, MINOR};
use crate::handle::Call;
use crate::handle::answer::Manner;
use crate::negotiate::{gzip, tagged};
use crate::serve::Body;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use names::Names;
use rest::api::Resources;
use rest::{Api, ApiError};
use schema::openapi::{self, Dialect, PROTO_MEDIA_TYPE, Source};
use schema::table::{Group, Kind, Ref, Text};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// What clients ask for has a sign in it that media types may not have; they are answered without.
const ANSWERED_AS: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The documents of the present resources.
#[derive(Default)]
pub struct OpenApi {
    current: ArcSwap<Documents>,
}

#[derive(Default)]
struct Documents {
    generation: u64,
    v2: OnceLock<Document>,
    v2_proto: OnceLock<Document>,
    v3: OnceLock<BTreeMap<String, Document>>,
}

struct Document {
    bytes: Bytes,
    /// The same compressed, made when it is first asked for: these are megabytes.
    zipped: OnceLock<Bytes>,
    hash: String,
}

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        Document { hash: openapi::v3_hash(&bytes), bytes: bytes.into(), zipped: OnceLock::new() }
    }

    fn zipped(&self) -> Bytes {
        let zip = || gzip(std::iter::once(self.bytes.clone())).flatten().collect();
        self.zipped.get_or_init(zip).clone()
    }
}

impl OpenApi {
    pub(crate) fn v2(&self, api: &Api, call: &Call<'_>) -> Result<Response<Body>, ApiError> {
        only_get(call)?;
        let documents = self.documents(api);
        let accept = call.header(header::ACCEPT).unwrap_or("");
        if accept.contains(PROTO_MEDIA_TYPE) || accept.contains(ANSWERED_AS) {
            let made =
                documents.v2_proto.get_or_init(|| with_source(api, |s| Document::new(openapi::v2_proto(s))));
            return Ok(respond(made, ANSWERED_AS, call, false));
        }
        let made = documents.v2.get_or_init(|| with_source(api, |s| Document::new(openapi::v2(s))));
        Ok(respond(made, "application/json", call, false))
    }

    pub(crate) fn v3(&self, api: &Api, call: &Call<'_>, path: &str) -> Result<Response<Body>, ApiError> {
        only_get(call)?;
        let documents = self.documents(api);
        let made = documents.v3.get_or_init(|| v3_documents(api));
        if path.is_empty() {
            let listed = made.iter().map(|(path, document)| (path.as_str(), document.hash.as_str()));
            let index = Document::new(openapi::v3_index(listed));
            return Ok(respond(&index, "application/json", call, false));
        }
        let document = made.get(path).ok_or_else(ApiError::no_such_path)?;
        match call.asked.query.get("hash") {
            Some(hash) if hash != document.hash => {
                // an old address leads to the present document
                let mut response = Response::new(Body::Empty);
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                let address = format!("/openapi/v3/{path}?hash={}", document.hash);
                if let Ok(value) = HeaderValue::from_str(&address) {
                    response.headers_mut().insert(header::LOCATION, value);
                }
                Ok(response)
            }
            hash => Ok(respond(document, "application/json", call, hash.is_some())),
        }
    }

    fn documents(&self, api: &Api) -> Arc<Documents> {
        let generation = api.resources().generation;
        let current = self.current.load_full();
        if current.generation == generation {
            return current;
        }
        let fresh = Arc::new(Documents { generation, ..Documents::default() });
        self.current.store(fresh.clone());
        fresh
    }
}

fn only_get(call: &Call<'_>) -> Result<(), ApiError> {
    if matches!(call.asked.method, Method::GET | Method::HEAD) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

fn v3_documents(api: &Api) -> BTreeMap<String, Document> {
    let resources = api.resources();
    let mut versions: Vec<(Group, Text)> = Vec::new();
    for resource in &resources.all {
        let version = (resource.kind.group.clone(), resource.kind.version.clone());
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    with_source(api, |source| {
        let made = versions.iter().map(|(group, version)| {
            let path = openapi::v3_path(source.dialect, group, version);
            (path, Document::new(openapi::v3(source, group, version)))
        });
        made.chain(openapi::v3_groups(source).into_iter().map(|(path, json)| (path, Document::new(json))))
            .collect()
    })
}

/// Runs `make` with everything that documents are made from.
fn with_source<T>(api: &Api, make: impl FnOnce(&Source<'_>) -> T) -> T {
    let Names { api_domain, vendor, .. } = &api.names;
    let (reversed, prefix) = (api.names.reversed_api_domain(), api.names.extension_prefix());
    let dialect = Dialect {
        api_domain,
        reversed_domain: &reversed,
        extension_prefix: &prefix,
        vendor,
        title: "Pintle",
    };
    let resources = api.resources();
    let kinds = all_kinds(&resources);
    let source = Source {
        kinds: &kinds,
        extra_types: &[],
        find_type: &|package, name| kinds::tables::type_named(package, name).map(Ref::Static),
        deletes_object: &|kind| {
            let mut all = resources.all.iter();
            all.any(|it| std::ptr::eq(&*it.kind, kind) && it.hooks.delete_returns_object)
        },
        dialect: &dialect,
        version: &format!("v{MAJOR}.{MINOR}.4"),
    };
    make(&source)
}

/// What is served, and the kinds that only travel in bodies.
fn all_kinds(resources: &Resources) -> Vec<&Kind> {
    let served = resources.all.iter().map(|resource| &*resource.kind);
    served.chain(kinds::tables::TRAVELLING.iter().copied()).collect()
}

fn respond(document: &Document, media_type: &'static str, call: &Call<'_>, forever: bool) -> Response<Body> {
    let zipped = Manner::accepts_gzip(call);
    let bytes = if zipped { document.zipped() } else { document.bytes.clone() };
    let mut response = Response::new(Body::full(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    let keep = if forever { "public, immutable" } else { "no-cache, private" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    tagged(response, &document.hash, call.headers)
}
