//! `/openapi/v2` and `/openapi/v3`: made from the tables when first asked for, and kept until they change. What other
//! servers say about their versions is a part of the first, and is listed in the index of the second.
//!
//! Both can be revalidated by their `ETag`; a v3 document asked for by its hash never changes and may be kept
//! for ever.

use super::version::{MAJOR, MINOR};
use crate::aggregation::Aggregation;
use crate::handle::RequestContext;
use crate::handle::answer::ResponseFormat;
use crate::negotiate::{gzip, tagged};
use crate::serve::Body;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use names::Names;
use parking_lot::Mutex;
use rest::{Api, ApiError, Resource};
use schema::openapi::{self, Dialect, Other, PROTO_MEDIA_TYPE, Source};
use schema::table::{Kind, Ref};
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
    /// The generations of the resources, and of what others say.
    from: (u64, u64),
    v2: OnceLock<Document>,
    v2_proto: OnceLock<Document>,
    v3: OnceLock<BTreeMap<String, Part>>,
    /// Those of the resources before, of which most are still right.
    before: Mutex<BTreeMap<String, Part>>,
}

/// A document of version 3, and the resources that it is made from.
#[derive(Clone)]
struct Part {
    document: Arc<Document>,
    made_from: Vec<Arc<Resource>>,
}

impl Part {
    fn is_made_from(&self, resources: &[&Arc<Resource>]) -> bool {
        let same = |(a, b): (&Arc<Resource>, &&Arc<Resource>)| Arc::ptr_eq(a, b);
        self.made_from.len() == resources.len() && self.made_from.iter().zip(resources).all(same)
    }
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
    pub(crate) fn v2(
        &self,
        api: &Api,
        aggregation: &Aggregation,
        call: &RequestContext<'_>,
    ) -> Result<Response<Body>, ApiError> {
        only_get(call)?;
        let documents = self.documents(api, aggregation);
        let others = || -> Vec<Arc<Other>> {
            let mut all: Vec<_> = aggregation.routes().listed.clone();
            all.sort_by_key(|one| std::cmp::Reverse(one.priority.group));
            all.iter().filter_map(|one| one.remote.as_ref()?.learned().v2.clone()).collect()
        };
        let accept = call.header(header::ACCEPT).unwrap_or("");
        if accept.contains(PROTO_MEDIA_TYPE) || accept.contains(ANSWERED_AS) {
            let make = || with_source(api, |source| Document::new(openapi::v2_proto(source, &others())));
            let made = documents.v2_proto.get_or_init(make);
            return Ok(respond(made, ANSWERED_AS, call, false));
        }
        let make = || with_source(api, |source| Document::new(openapi::v2(source, &others())));
        let made = documents.v2.get_or_init(make);
        Ok(respond(made, "application/json", call, false))
    }

    pub(crate) fn v3(
        &self,
        api: &Api,
        aggregation: &Aggregation,
        call: &RequestContext<'_>,
        path: &str,
    ) -> Result<Response<Body>, ApiError> {
        only_get(call)?;
        let documents = self.documents(api, aggregation);
        let made =
            documents.v3.get_or_init(|| v3_documents(api, std::mem::take(&mut documents.before.lock())));
        if path.is_empty() {
            let own = |(path, part): (&String, &Part)| {
                (path.clone(), openapi::v3_address(path, &part.document.hash))
            };
            let mut listed: BTreeMap<String, String> = made.iter().map(own).collect();
            for remote in aggregation.routes().remotes() {
                let path = format!("apis/{}", remote.group_version());
                match &remote.learned().v3 {
                    Some(address) => listed.insert(path, address.clone()),
                    None => listed.remove(&path),
                };
            }
            let listed = listed.iter().map(|(path, address)| (path.as_str(), address.as_str()));
            let index = Document::new(openapi::v3_index(listed));
            return Ok(respond(&index, "application/json", call, false));
        }
        let document = &made.get(path).ok_or_else(ApiError::no_such_path)?.document;
        match call.asked.query.get("hash") {
            Some(hash) if hash != document.hash => {
                // an old address leads to the present document
                let mut response = Response::new(Body::Empty);
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                let address = openapi::v3_address(path, &document.hash);
                if let Ok(value) = HeaderValue::from_str(&address) {
                    response.headers_mut().insert(header::LOCATION, value);
                }
                Ok(response)
            }
            hash => Ok(respond(document, "application/json", call, hash.is_some())),
        }
    }

    fn documents(&self, api: &Api, aggregation: &Aggregation) -> Arc<Documents> {
        let from = (api.resources().generation, aggregation.generation());
        let current = self.current.load_full();
        if current.from == from {
            return current;
        }
        let before = current.v3.get().cloned().unwrap_or_else(|| current.before.lock().clone());
        let fresh = Arc::new(Documents { from, before: Mutex::new(before), ..Documents::default() });
        self.current.store(fresh.clone());
        fresh
    }
}

fn only_get(call: &RequestContext<'_>) -> Result<(), ApiError> {
    if matches!(call.asked.method, Method::GET | Method::HEAD) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

/// All documents of version 3; those whose resources are as before are not made again.
fn v3_documents(api: &Api, mut before: BTreeMap<String, Part>) -> BTreeMap<String, Part> {
    let resources = api.resources();
    let mut versions: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    let mut groups: BTreeMap<&str, Vec<&Arc<Resource>>> = BTreeMap::new();
    for resource in &resources.all {
        versions.entry(&resource.api_version).or_default().push(resource);
        groups.entry(&resource.group).or_default().push(resource);
    }
    let mut made = BTreeMap::new();
    let mut keep = |path: String, own: &[&Arc<Resource>], make: &dyn Fn(&Source<'_>) -> Vec<u8>| {
        let part = before.remove(&path).filter(|part| part.is_made_from(own)).unwrap_or_else(|| {
            let made_from = own.iter().map(|it| Arc::clone(it)).collect();
            let document = with_source_of(api, own, |source| Document::new(make(source)));
            Part { document: Arc::new(document), made_from }
        });
        made.insert(path, part);
    };
    for own in versions.values() {
        let Some(Kind { group, version, .. }) = own.first().map(|it| &*it.kind) else { continue };
        let path = with_dialect(api, |dialect| openapi::v3_path(dialect, group, version));
        keep(path, own, &|source| openapi::v3(source, group, version));
    }
    for (name, own) in &groups {
        let path = if name.is_empty() { "api".to_owned() } else { format!("apis/{name}") };
        keep(path.clone(), own, &|source| openapi::v3_group(source, &path).unwrap_or_default());
    }
    let all: Vec<&Arc<Resource>> = resources.all.iter().filter(|it| it.kind.kind_first).collect();
    keep("apis".to_owned(), &all, &|source| openapi::v3_group(source, "apis").unwrap_or_default());
    made
}

/// What documents are made from that are about some resources: these, and those that every server has.
fn with_source_of<T>(api: &Api, own: &[&Arc<Resource>], make: impl FnOnce(&Source<'_>) -> T) -> T {
    let resources = api.resources();
    let others = resources.all.iter().filter(|it| it.kind.kind_first);
    let all: Vec<&Arc<Resource>> =
        others.chain(own.iter().copied().filter(|it| !it.kind.kind_first)).collect();
    with_resources(api, &all, make)
}

/// Runs `make` with everything that documents are made from.
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
    call: &RequestContext<'_>,
    forever: bool,
) -> Response<Body> {
    let zipped = ResponseFormat::accepts_gzip(call);
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
