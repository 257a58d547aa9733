//! Paths that name no resource: discovery, OpenAPI, health, metrics, version, debugging.

use super::answer::{self, ResponseFormat};
use super::plain_text::{not_found, text};
use super::request_context::RequestContext;
use super::service::Service;
use crate::authentication::service_accounts::{CONFIGURATION_PATH, KEYS_PATH};
use crate::discovery::aggregated;
use crate::discovery::debug::Inside;
use crate::discovery::groups::{Documents, Made};
use crate::discovery::{health, version};
use crate::negotiate::{gzip, prefers_whole, tagged};
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
    pub(super) async fn how_it_is(
        &self,
        endpoint: &'static str,
        check: Option<&str>,
        call: &RequestContext<'_>,
    ) -> Response<Body> {
        match self.health.answer(endpoint, check, &call.asked.query).await {
            None => not_found(),
            Some(report) => {
                if !report.failed.is_empty() {
                    tracing::info!(endpoint, failed = ?report.failed, "a health check failed");
                }
                text(report.code, report.text)
            }
        }
    }

    /// Paths that name no resource.
    pub(super) fn plain(self: &Arc<Self>, call: &RequestContext<'_>) -> Result<Response<Body>, ApiError> {
        let path = call.asked.path.as_str();
        let trimmed = path.trim_end_matches('/');
        match trimmed {
            "/metrics" => return Ok(self.numbers(call)),
            "/metrics/slis" if self.gates.slis => return Ok(self.levels(call)),
            "/openapi/v2" => return self.discovery.openapi.v2(&self.api, &self.aggregation, call),
            CONFIGURATION_PATH | KEYS_PATH => return self.about_issuer(call, trimmed),
            _ => {}
        }
        if self.debug.profiling
            && let Some(page) = debug_page(self, call)
        {
            return Ok(page);
        }
        if let (Some(what), Some(fairness)) = (trimmed.strip_prefix(FAIRNESS_PAGES), &self.access.fairness) {
            let details = call.asked.query.flag("includeRequestDetails");
            return Ok(fairness.shown(what, details).map_or_else(not_found, |page| text(200, page)));
        }
        if let Some(rest) = trimmed.strip_prefix("/openapi/v3").filter(|_| self.gates.openapi_v3) {
            return self.discovery.openapi.v3(
                &self.api,
                &self.aggregation,
                call,
                rest.trim_start_matches('/'),
            );
        }
        if let Some(whole) = self.whole_discovery(call, trimmed) {
            return whole;
        }
        let document = match trimmed {
            "/version" => Some((version::json(), None)),
            "" | "/index.html" => Some((self.index(), None)),
            _ => self.documents().get(trimmed).map(|it| (it.json.clone(), Some(it.hash.clone()))),
        };
        match document {
            Some((json, hash)) => {
                // the same distinction that clients know from elsewhere
                let groups = trimmed.starts_with("/apis") && trimmed.matches('/').count() < 3;
                let head =
                    call.asked.method == Method::HEAD && (groups || matches!(trimmed, "" | "/index.html"));
                if !head && call.asked.method != Method::GET {
                    return Err(ApiError::method_not_allowed());
                }
                let names = &self.api.names;
                let manner = match trimmed {
                    "/version" => ResponseFormat::of_plain(call)?.indented().unrecorded(),
                    "" | "/index.html" => ResponseFormat::of_page(call).indented().unrecorded(),
                    _ => ResponseFormat::of_document(call, names)?,
                };
                let response = answer::document(200, json.clone(), document_type(&json), &manner, names);
                Ok(match hash {
                    // each form is a document of its own
                    Some(hash) => tagged(response, &(hash + manner.mark()), call.headers),
                    None => response,
                })
            }
            None if trimmed.starts_with("/api/") => Err(ApiError::no_such_path()),
            // a version that a known group does not have
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

    /// Everything that is counted.
    fn numbers(&self, call: &RequestContext<'_>) -> Response<Body> {
        numbers(self.metrics.registry.pages().map(Bytes::from), call)
    }

    /// How health checks went, or, where somebody deletes that, nothing from now on.
    fn levels(&self, call: &RequestContext<'_>) -> Response<Body> {
        if call.asked.method == Method::DELETE {
            self.health.slis.reset();
            return text(200, "metrics reset\n".to_owned());
        }
        numbers(std::iter::once(Bytes::from(self.health.slis.text())), call)
    }

    /// What verifiers of tokens elsewhere need to know.
    fn about_issuer(&self, call: &RequestContext<'_>, path: &str) -> Result<Response<Body>, ApiError> {
        let Some(issuer) = &self.discovery.issuer else { return Ok(not_found()) };
        if call.asked.method != Method::GET {
            return Err(ApiError::method_not_allowed());
        }
        let (json, media) = match path {
            KEYS_PATH => (issuer.keys.clone(), "application/jwk-set+json"),
            _ => (issuer.configuration.clone(), "application/json"),
        };
        let mut response = Response::new(Body::full(json));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        Ok(response)
    }

    /// Discovery, made anew when the resources have changed.
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
        let whole = self.gates.whole_discovery;
        let made = Made { resources: &resources, routes: &routes, names, address, hashes, whole };
        let made = Arc::new(Documents::new(from, &made));
        self.discovery.documents.store(made.clone());
        made
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

    /// Everything below `/api` or `/apis` at once, where that is asked for.
    fn whole_discovery(
        &self,
        call: &RequestContext<'_>,
        path: &str,
    ) -> Option<Result<Response<Body>, ApiError>> {
        let at = ["/api", "/apis"].iter().position(|it| *it == path)?;
        if !self.gates.whole_discovery || !matches!(call.asked.method, Method::GET | Method::HEAD) {
            return None;
        }
        let names = &self.api.names;
        let form = prefers_whole(call.header(header::ACCEPT), names)?;
        let documents = self.documents();
        let document = &documents.whole.as_ref()?[at];
        let mut manner = ResponseFormat::forgiving(call, names);
        manner.output.form = form;
        let ty = aggregated::document_type();
        let mut response = answer::document(200, document.json.clone(), ty, &manner, names);
        let group = names.group("apidiscovery");
        let said = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let media =
            format!("{};g={group};v=v2beta1;as={}", said.unwrap_or("application/json"), aggregated::KIND);
        if let Ok(media) = HeaderValue::try_from(media) {
            response.headers_mut().insert(header::CONTENT_TYPE, media);
        }
        Some(Ok(tagged(response, &format!("{}{}", document.hash, manner.mark()), call.headers)))
    }
}

/// A page below `/debug`.
fn debug_page(service: &Service, call: &RequestContext<'_>) -> Option<Response<Body>> {
    let inside = Inside {
        command: &service.debug.command,
        verbosity: service.debug.verbosity.as_ref(),
        holdings: &|| holdings(service),
    };
    inside.page(&call.asked.method, &call.asked.path, &call.body)
}

/// What collectors read.
fn numbers(pages: impl Iterator<Item = Bytes> + Send + 'static, call: &RequestContext<'_>) -> Response<Body> {
    let mut response = match ResponseFormat::accepts_gzip(call) {
        true => answer::compressed(Response::new(Body::frames(gzip(pages)))),
        false => Response::new(Body::frames(pages)),
    };
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The type of a discovery document, by the kind it names itself.
fn document_type(json: &[u8]) -> Option<&'static schema::table::Type> {
    let decoded = schema::decode::json_untyped(json).ok()?;
    answer::meta_type(decoded.value.text(&["kind"]))
}

fn holdings(service: &Service) -> String {
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
