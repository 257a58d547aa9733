//! Nonresource paths: discovery, OpenAPI, health, metrics, version, debugging.

use super::plain_text::{not_found, text};
use super::request_context::RequestContext;
use super::responses::{self, ResponseFormat};
use super::service::Service;
use crate::authentication::service_accounts::{CONFIGURATION_PATH, KEYS_PATH};
use crate::discovery::aggregated;
use crate::discovery::debug::DebugData;
use crate::discovery::groups::{Documents, Sources};
use crate::discovery::{health, version};
use crate::negotiate::{gzip, prefers_aggregated, with_etag};
use crate::serve::Body;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Response};
use rest::ApiError;
use schema::Value;
use std::fmt::Write as _;
use std::sync::Arc;

/// Dumps of priority levels, queues and requests.
const FAIRNESS_PAGES: &str = "/debug/api_priority_and_fairness/";

impl Service {
    pub(super) async fn health_check(
        &self,
        endpoint: &'static str,
        check: Option<&str>,
        context: &RequestContext<'_>,
    ) -> Response<Body> {
        match self.health.respond(endpoint, check, &context.info.query).await {
            None => not_found(),
            Some(report) => {
                if !report.failed.is_empty() {
                    tracing::info!(endpoint, failed = ?report.failed, "a health check failed");
                }
                text(report.code, report.text)
            }
        }
    }

    /// Dispatches nonresource paths.
    pub(super) fn plain(self: &Arc<Self>, context: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        let path = context.info.path.as_str();
        let trimmed = path.trim_end_matches('/');
        match trimmed {
            "/metrics" if path == trimmed => return Ok(self.numbers(context)),
            "/metrics/slis" if self.gates.slis => return Ok(self.sli_metrics(context)),
            "/openapi/v2" if path == trimmed => {
                return self.discovery.openapi.v2(&self.api, &self.aggregation, context);
            }
            CONFIGURATION_PATH | KEYS_PATH => return self.issuer_documents(context, trimmed),
            _ => {}
        }
        if self.debug.profiling
            && let Some(page) = debug_page(self, context)
        {
            return Ok(page);
        }
        if let (Some(page), Some(fairness)) = (trimmed.strip_prefix(FAIRNESS_PAGES), &self.access.fairness) {
            let details = context.info.query.flag("includeRequestDetails");
            return Ok(fairness.debug_page(page, details).map_or_else(not_found, |page| text(200, page)));
        }
        if let Some(rest) = path.strip_prefix("/openapi/v3").filter(|_| self.gates.openapi_v3)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            let document = rest.strip_prefix('/');
            return self.discovery.openapi.v3(&self.api, &self.aggregation, context, document);
        }
        if let Some(aggregated) = self.aggregated_discovery(context, trimmed) {
            return aggregated;
        }
        let document = match trimmed {
            "/version" => Some((version::json(), None)),
            "" | "/index.html" => Some((self.index(), None)),
            _ => self.documents().get(trimmed).map(|it| (it.json.clone(), Some(it.hash.clone()))),
        };
        match document {
            Some((json, hash)) => {
                let route = self.has_route(trimmed);
                let is_read = context.info.method == Method::GET;
                if !is_read && (route || context.info.method != Method::HEAD) {
                    return Err(ApiError::method_not_allowed());
                }
                let names = &self.api.names;
                let format = match trimmed {
                    "/version" => ResponseFormat::of_plain(context)?.indented().unrecorded(),
                    "" | "/index.html" => ResponseFormat::of_page(context).indented().unrecorded(),
                    _ => ResponseFormat::of_document(context, names, route)?,
                };
                let response = responses::document(200, json.clone(), document_type(&json), &format, names);
                Ok(match hash {
                    // each encoding has an ETag of its own
                    Some(hash) => with_etag(response, &(hash + format.etag_suffix()), context.headers),
                    None => response,
                })
            }
            None if trimmed.starts_with("/api/") || self.is_below_route(trimmed) => {
                Err(ApiError::no_such_path())
            }
            // an unknown version of a known group
            None if trimmed.strip_prefix("/apis/").is_some_and(|rest| {
                rest.split_once('/').is_some_and(|(group, _)| {
                    self.documents().get(&format!("/apis/{group}")).is_some()
                        && !self.api.resources().is_custom(group)
                })
            }) =>
            {
                Err(ApiError::no_such_path())
            }
            None => Ok(not_found()),
        }
    }

    /// Whether the document at a path has a route of its own, which knows its methods and media types. The index, the lists
    /// of groups and versions, and the resources of custom versions are behind one handler for many paths.
    fn has_route(&self, path: &str) -> bool {
        let Some(group_version) = path.strip_prefix("/apis/") else {
            return !matches!(path, "" | "/index.html" | "/apis");
        };
        match group_version.split_once('/') {
            None => group_version == self.api.names.group("apiregistration"),
            Some(_) => self.api.resources().of_version(group_version).any(|it| it.kind.kind_first),
        }
    }

    /// Whether a path is below that of a document with a route of its own.
    fn is_below_route(&self, path: &str) -> bool {
        let issuer = self.discovery.issuer.as_ref().map(|_| [CONFIGURATION_PATH, KEYS_PATH]);
        let mut routes = std::iter::once("/version").chain(issuer.into_iter().flatten());
        routes.any(|route| path.strip_prefix(route).is_some_and(|rest| rest.starts_with('/')))
    }

    /// The metrics of the server.
    fn numbers(&self, context: &RequestContext<'_>) -> Response<Body> {
        numbers(self.metrics.registry.pages().map(Bytes::from), context)
    }

    /// The SLI metrics of health checks; DELETE resets them.
    fn sli_metrics(&self, context: &RequestContext<'_>) -> Response<Body> {
        if context.info.method == Method::DELETE {
            self.health.slis.reset();
            return text(200, "metrics reset\n".to_owned());
        }
        numbers(std::iter::once(Bytes::from(self.health.slis.text())), context)
    }

    /// The OpenID discovery documents of the token issuer.
    fn issuer_documents(&self, context: &RequestContext<'_>, path: &str) -> Result<Response<Body>, ApiError> {
        let Some(issuer) = &self.discovery.issuer else { return Ok(not_found()) };
        if context.info.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let (json, media) = match path {
            KEYS_PATH => (issuer.keys.clone(), "application/jwk-set+json"),
            _ => {
                ResponseFormat::of_plain(context)?;
                (issuer.configuration.clone(), "application/json")
            }
        };
        let mut response = Response::new(Body::full(json));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        Ok(response)
    }

    /// The discovery documents, rebuilt when the resources have changed.
    pub(super) fn documents(&self) -> Arc<Documents> {
        let resources = self.api.resources();
        let from = (resources.generation, self.aggregation.generation());
        let current = self.discovery.documents.load_full();
        if current.from == from && resources.generation > 0 {
            return current;
        }
        let routes = self.aggregation.routes();
        let (names, address, hashes) =
            (&self.api.names, &*self.discovery.advertised, self.gates.storage_hash);
        let aggregated = self.gates.aggregated_discovery;
        let documents =
            Sources { resources: &resources, routes: &routes, names, address, hashes, aggregated };
        let documents = Arc::new(Documents::new(from, &documents));
        self.discovery.documents.store(documents.clone());
        documents
    }

    fn index(&self) -> Bytes {
        let documents = self.documents();
        let mut paths: Vec<String> = documents.paths().map(str::to_owned).collect();
        paths.extend(
            ["/apis/", "/metrics", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"]
                .map(str::to_owned),
        );
        paths.extend(self.gates.slis.then(|| "/metrics/slis".to_owned()));
        if self.discovery.issuer.is_some() {
            paths.extend([CONFIGURATION_PATH, KEYS_PATH].map(str::to_owned));
        }
        for endpoint in health::ENDPOINTS {
            paths.push(format!("/{endpoint}"));
            paths.extend(self.health.names(endpoint).map(|check| format!("/{endpoint}/{check}")));
        }
        paths.sort();
        paths.dedup();
        let mut out = Value::map();
        out.set(&["paths"], Value::List(paths.into_iter().map(Value::from).collect()));
        schema::encode::untyped(&out).into()
    }

    /// The aggregated discovery document of `/api` or `/apis`, if the client prefers it.
    fn aggregated_discovery(
        &self,
        context: &RequestContext<'_>,
        path: &str,
    ) -> Option<Result<Response<Body>, ApiError>> {
        let at = ["/api", "/apis"].iter().position(|it| *it == path)?;
        if !self.gates.aggregated_discovery || !matches!(context.info.method, Method::GET | Method::HEAD) {
            return None;
        }
        let names = &self.api.names;
        let form = prefers_aggregated(context.header(header::ACCEPT), names)?;
        let documents = self.documents();
        let document = &documents.aggregated.as_ref()?[at];
        let mut format = ResponseFormat::lenient(context, names);
        format.output.form = form;
        let ty = aggregated::document_type();
        let mut response = responses::document(200, document.json.clone(), ty, &format, names);
        let group = names.group("apidiscovery");
        let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let media = format!(
            "{};g={group};v=v2beta1;as={}",
            content_type.unwrap_or("application/json"),
            aggregated::KIND
        );
        if let Ok(media) = HeaderValue::try_from(media) {
            response.headers_mut().insert(header::CONTENT_TYPE, media);
        }
        Some(Ok(with_etag(response, &format!("{}{}", document.hash, format.etag_suffix()), context.headers)))
    }
}

/// A page below `/debug`.
fn debug_page(service: &Service, context: &RequestContext<'_>) -> Option<Response<Body>> {
    let inside = DebugData {
        command: &service.debug.command,
        verbosity: service.debug.verbosity.as_ref(),
        memory_usage: &|| memory_usage(service),
    };
    inside.page(&context.info.method, &context.info.path, &context.body)
}

/// Metrics in text form.
fn numbers(
    pages: impl Iterator<Item = Bytes> + Send + 'static,
    context: &RequestContext<'_>,
) -> Response<Body> {
    let mut response = match ResponseFormat::accepts_gzip(context) {
        true => responses::compress(Response::new(Body::frames(gzip(pages)))),
        false => Response::new(Body::frames(pages)),
    };
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The type of a discovery document, by its `kind`.
fn document_type(json: &[u8]) -> Option<&'static schema::table::Type> {
    let decoded = schema::decode::json_untyped(json).ok()?;
    responses::meta_type(decoded.value.text(&["kind"]))
}

fn memory_usage(service: &Service) -> String {
    let mut lines: Vec<_> = service
        .api
        .storage
        .collections()
        .iter()
        .map(|collection| (collection.prefix.clone(), collection.cache.stats()))
        .collect();
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut out = "objects  events kept  bytes of events  pages  watches  collection\n".to_owned();
    for (prefix, stats) in lines {
        // writing to a string cannot fail
        let _ = writeln!(
            out,
            "{:7}  {:11}  {:15}  {:5}  {:7}  {prefix}",
            stats.objects, stats.ring_events, stats.ring_bytes, stats.pins, stats.watchers
        );
    }
    out
}
