//! `/openapi/v2` and `/openapi/v3`, built from the tables on first use and cached until the resources change.
//!
//! v2 includes the documents of aggregated servers; the index of v3 lists them. Both support revalidation by
//! `ETag`; a v3 document requested by its hash is immutable and may be cached forever.

use super::version::{MAJOR, MINOR};
use crate::aggregation::Aggregation;
use crate::handle::request_context::RequestContext;
use crate::handle::responses::ResponseFormat;
use crate::negotiate::{accepts_any, gzip, with_etag};
use crate::serve::Body;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use names::Names;
use parking_lot::Mutex;
use rest::{Api, ApiError, Resource};
use schema::openapi::{self, Dialect, ExternalDocument, PROTO_MEDIA_TYPE, Source};
use schema::table::{Kind, Ref};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Clients accept a media type with an invalid character; the response has this one.
const RESPONSE_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Clients that prefer this form of v3 documents read JSON, too.
const V3_PROTO_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// The documents of the current resources.
#[derive(Default)]
pub struct OpenApi {
    current: ArcSwap<Documents>,
}

#[derive(Default)]
struct Documents {
    /// Generations of the local resources and of aggregated documents.
    from: (u64, u64),
    v2: OnceLock<Document>,
    v2_proto: OnceLock<Document>,
    v3: OnceLock<BTreeMap<String, V3Document>>,
    /// The v3 documents of the previous resources, most of which are still valid.
    previous: Mutex<BTreeMap<String, V3Document>>,
}

/// A v3 document, and the resources that it is built from.
#[derive(Clone)]
struct V3Document {
    document: Arc<Document>,
    sources: Vec<Arc<Resource>>,
}

impl V3Document {
    fn has_sources(&self, resources: &[&Arc<Resource>]) -> bool {
        let same = |(a, b): (&Arc<Resource>, &&Arc<Resource>)| Arc::ptr_eq(a, b);
        self.sources.len() == resources.len() && self.sources.iter().zip(resources).all(same)
    }
}

struct Document {
    bytes: Bytes,
    /// gzip form, built on first use: these are megabytes.
    gzipped: OnceLock<Bytes>,
    hash: String,
}

impl Document {
    fn new(bytes: Vec<u8>) -> Self {
        Document { hash: openapi::v3_hash(&bytes), bytes: bytes.into(), gzipped: OnceLock::new() }
    }

    fn gzipped(&self) -> Bytes {
        let zip = || gzip(std::iter::once(self.bytes.clone())).flatten().collect();
        self.gzipped.get_or_init(zip).clone()
    }
}

impl OpenApi {
    pub(crate) fn v2(
        &self,
        api: &Api,
        aggregation: &Aggregation,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, ApiError> {
        only_get(context)?;
        let documents = self.documents(api, aggregation);
        let others = || -> Vec<Arc<ExternalDocument>> {
            let mut all: Vec<_> = aggregation.routes().entries.clone();
            all.sort_by_key(|one| std::cmp::Reverse(one.priority.group));
            all.iter().filter_map(|one| one.remote.as_ref()?.discovery().v2.clone()).collect()
        };
        let accept = context.header(header::ACCEPT).unwrap_or("");
        if !accepts_any(Some(accept), &["application/json", PROTO_MEDIA_TYPE, RESPONSE_TYPE]) {
            return Ok(bare(StatusCode::NOT_ACCEPTABLE));
        }
        if accept.contains(PROTO_MEDIA_TYPE) || accept.contains(RESPONSE_TYPE) {
            let make = || with_source(api, |source| Document::new(openapi::v2_proto(source, &others())));
            let built = documents.v2_proto.get_or_init(make);
            return Ok(respond(built, RESPONSE_TYPE, context, false));
        }
        let make = || with_source(api, |source| Document::new(openapi::v2(source, &others())));
        let built = documents.v2.get_or_init(make);
        Ok(respond(built, "application/json", context, false))
    }

    /// The document at a path, or the index.
    pub(crate) fn v3(
        &self,
        api: &Api,
        aggregation: &Aggregation,
        context: &RequestContext<'_>,
        path: Option<&str>,
    ) -> Result<Response<Body>, ApiError> {
        only_get(context)?;
        let documents = self.documents(api, aggregation);
        let built =
            documents.v3.get_or_init(|| v3_documents(api, std::mem::take(&mut documents.previous.lock())));
        let Some(path) = path else {
            let own = |(path, part): (&String, &V3Document)| {
                (path.clone(), openapi::v3_address(path, &part.document.hash))
            };
            let mut listed: BTreeMap<String, String> = built.iter().map(own).collect();
            for remote in aggregation.routes().remotes() {
                let path = format!("apis/{}", remote.group_version());
                match &remote.discovery().v3 {
                    Some(address) => listed.insert(path, address.clone()),
                    None => listed.remove(&path),
                };
            }
            let listed = listed.iter().map(|(path, address)| (path.as_str(), address.as_str()));
            let index = Document::new(openapi::v3_index(listed));
            return Ok(respond(&index, "application/json", context, false));
        };
        let Some(V3Document { document, .. }) = built.get(path) else {
            return Ok(bare(StatusCode::NOT_FOUND));
        };
        if !accepts_any(context.header(header::ACCEPT), &["application/json", V3_PROTO_MEDIA_TYPE]) {
            return Ok(bare(StatusCode::NOT_ACCEPTABLE));
        }
        match context.info.query.get("hash") {
            Some(hash) if hash != document.hash => {
                // an outdated hash redirects to the current document
                let mut response = bare(StatusCode::MOVED_PERMANENTLY);
                let address = openapi::v3_address(path, &document.hash);
                if let Ok(value) = HeaderValue::from_str(&address) {
                    response.headers_mut().insert(header::LOCATION, value);
                }
                Ok(response)
            }
            hash => Ok(respond(document, "application/json", context, hash.is_some())),
        }
    }

    fn documents(&self, api: &Api, aggregation: &Aggregation) -> Arc<Documents> {
        let from = (api.resources().generation, aggregation.generation());
        let current = self.current.load_full();
        if current.from == from {
            return current;
        }
        let previous = current.v3.get().cloned().unwrap_or_else(|| current.previous.lock().clone());
        let fresh = Arc::new(Documents { from, previous: Mutex::new(previous), ..Documents::default() });
        self.current.store(fresh.clone());
        fresh
    }
}

/// A response without a body.
fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

fn only_get(context: &RequestContext<'_>) -> Result<(), ApiError> {
    if matches!(context.info.method, Method::GET | Method::HEAD) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

/// All v3 documents; those with unchanged resources are reused.
fn v3_documents(api: &Api, mut previous: BTreeMap<String, V3Document>) -> BTreeMap<String, V3Document> {
    let resources = api.resources();
    let mut versions: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    let mut groups: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    for resource in &resources.all {
        versions.entry(&resource.api_version).or_default().push(resource);
        groups.entry(&resource.group).or_default().push(resource);
    }
    let mut built = BTreeMap::new();
    let mut add = |path: String, own: &[&Arc<Resource>], make: &dyn Fn(&Source<'_>) -> Vec<u8>| {
        let part = previous.remove(&path).filter(|part| part.has_sources(own)).unwrap_or_else(|| {
            let sources = own.iter().map(|it| Arc::clone(it)).collect();
            let document = with_source_of(api, own, |source| Document::new(make(source)));
            V3Document { document: Arc::new(document), sources }
        });
        built.insert(path, part);
    };
    for own in versions.values() {
        let Some(Kind { group, version, .. }) = own.first().map(|it| &*it.kind) else { continue };
        let path = with_dialect(api, |dialect| openapi::v3_path(dialect, group, version));
        add(path, own, &|source| openapi::v3(source, group, version));
    }
    for (name, own) in &groups {
        let path = if name.is_empty() { "api".to_owned() } else { format!("apis/{name}") };
        add(path.clone(), own, &|source| openapi::v3_group(source, &path).unwrap_or_default());
    }
    let all: Vec<&Arc<Resource>> = resources.all.iter().filter(|it| it.kind.kind_first).collect();
    add("apis".to_owned(), &all, &|source| openapi::v3_group(source, "apis").unwrap_or_default());
    built
}

/// The source of documents for these resources and the types of every server.
fn with_source_of<T>(api: &Api, own: &[&Arc<Resource>], make: impl FnOnce(&Source<'_>) -> T) -> T {
    let resources = api.resources();
    let others = resources.all.iter().filter(|it| it.kind.kind_first);
    let all: Vec<&Arc<Resource>> =
        others.chain(own.iter().copied().filter(|it| !it.kind.kind_first)).collect();
    with_resources(api, &all, make)
}

/// Runs `make` with the source of all resources.
fn with_source<T>(api: &Api, make: impl FnOnce(&Source<'_>) -> T) -> T {
    let resources = api.resources();
    with_resources(api, &resources.all.iter().collect::<Vec<_>>(), make)
}

fn with_dialect<T>(api: &Api, make: impl FnOnce(&Dialect<'_>) -> T) -> T {
    let Names { api_domain, vendor, .. } = &api.names;
    let (reversed, prefix) = (api.names.reversed_api_domain(), api.names.extension_prefix());
    make(&Dialect {
        api_domain,
        reversed_domain: &reversed,
        extension_prefix: &prefix,
        vendor,
        title: "Pintle",
    })
}

fn with_resources<T>(api: &Api, resources: &[&Arc<Resource>], make: impl FnOnce(&Source<'_>) -> T) -> T {
    let kinds: Vec<&Kind> =
        resources.iter().map(|it| &*it.kind).chain(kinds::tables::TRAVELLING.iter().copied()).collect();
    with_dialect(api, |dialect| {
        make(&Source {
            kinds: &kinds,
            extra_types: &[],
            find_type: &|package, name| kinds::tables::type_named(package, name).map(Ref::Static),
            deletes_object: &|kind| {
                let mut all = resources.iter();
                all.any(|it| std::ptr::eq(&*it.kind, kind) && it.hooks.delete.returns_object)
            },
            dialect,
            tells_values: kinds::gates::ENUMS.is_open_in(&api.opened, &api.closed),
            version: &format!("v{MAJOR}.{MINOR}.4"),
        })
    })
}

fn respond(
    document: &Document,
    media_type: &'static str,
    context: &RequestContext<'_>,
    forever: bool,
) -> Response<Body> {
    let gzipped = ResponseFormat::accepts_gzip(context);
    let bytes = if gzipped { document.gzipped() } else { document.bytes.clone() };
    let mut response = Response::new(Body::full(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    let cache_control = if forever { "public, immutable" } else { "no-cache, private" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    if gzipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    with_etag(response, &document.hash, context.headers)
}
