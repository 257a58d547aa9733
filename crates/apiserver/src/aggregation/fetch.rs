//! Fetches discovery and OpenAPI documents of aggregated servers.
//!
//! Invariants: only data of the server's own version is kept, within a size limit. A server without a valid
//! response is retried and affects no other.

use super::aggregated_server::{AggregatedServer, RemoteDiscovery};
use super::proxy;
use super::routes::Aggregation;
use bytes::Bytes;
use env::io::RealInstant;
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use outbound::{HttpResponse, Limits};
use schema::openapi::ExternalDocument;
use schema::{Value, decode};
use std::sync::Arc;
use std::time::Duration;

/// Interval of fetches.
const INTERVAL: Duration = Duration::from_secs(60);

/// Timeout and maximum size of a response.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 16 * 1024 * 1024 };

impl Aggregation {
    /// Stores the resource list of an available server, and periodically fetches its other documents.
    pub(super) async fn update_discovery(&self, remote: &AggregatedServer, resources: Option<Bytes>) {
        let before = remote.discovery();
        let mut next = RemoteDiscovery { current: resources.is_some(), ..(*before).clone() };
        if let Some(resources) = resources {
            next.resources = Some(resources);
            if before.fetched.is_none_or(|at| at.elapsed() >= INTERVAL) {
                next.fetched = Some(RealInstant::now());
                next.v3 = self.fetch_v3(remote).await;
                self.fetch_v2(remote, &mut next).await;
            }
        }
        let same = next.resources == before.resources
            && next.current == before.current
            && next.v3 == before.v3
            && next.v2.as_ref().map(Arc::as_ptr) == before.v2.as_ref().map(Arc::as_ptr);
        remote.set_discovery(next);
        if !same {
            self.bump_generation();
        }
    }

    async fn fetch(
        &self,
        remote: &AggregatedServer,
        path: &str,
        tag: Option<HeaderValue>,
    ) -> Option<HttpResponse> {
        let client = remote.proxy.as_ref().ok()?;
        let address = remote.address(&self.api)?;
        let mut request = proxy::own_request(&self.api.names, &address, path)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(tag) = tag {
            request.headers_mut().insert(IF_NONE_MATCH, tag);
        }
        let fetched = client.ask(request, LIMITS).await;
        fetched.inspect_err(|why| tracing::debug!(name = remote.name, path, %why, "fetching a document of an aggregated server failed")).ok()
    }

    /// The URL of its OpenAPI v3 document, if it has one.
    async fn fetch_v3(&self, remote: &AggregatedServer) -> Option<String> {
        let response = self.fetch(remote, "/openapi/v3", None).await.filter(|it| it.status.is_success())?;
        let key = format!("apis/{}", remote.group_version());
        let index = read(response.body).await?;
        let address = index.at(&["paths", &key])?.text(&["serverRelativeURL"]).to_owned();
        // only a URL of its own version is passed on
        let (path, query) = address.split_once('?').unwrap_or((&address, ""));
        let plain = query.bytes().all(|it| it.is_ascii_alphanumeric() || b"=&%-_.".contains(&it));
        (path == format!("/openapi/v3/{key}") && plain && address.len() < 1024).then_some(address)
    }

    /// Its part of the OpenAPI v2 document.
    async fn fetch_v2(&self, remote: &AggregatedServer, next: &mut RemoteDiscovery) {
        let tag = next.tag.clone().filter(|_| next.v2.is_some());
        let Some(response) = self.fetch(remote, "/openapi/v2", tag).await else { return };
        match response.status.as_u16() {
            304 => {}
            200 => {
                let prefix = format!("/apis/{}/", remote.group_version());
                next.tag = response.headers.get(ETAG).cloned();
                let cut = tokio::task::spawn_blocking(move || {
                    ExternalDocument::cut(decode::json_untyped(&response.body).ok()?.value, &prefix)
                });
                next.v2 = cut.await.ok().flatten().map(Arc::new);
            }
            _ => (next.v2, next.tag) = (None, None),
        }
    }
}

/// Parses a response on a blocking thread: it may be large.
async fn read(json: Bytes) -> Option<Value> {
    tokio::task::spawn_blocking(move || decode::json_untyped(&json).ok().map(|it| it.value)).await.ok()?
}
