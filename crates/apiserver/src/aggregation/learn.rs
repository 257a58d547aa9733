//! Fetches discovery and OpenAPI documents of aggregated servers.
//!
//! What always holds: only what belongs to the version that a server answers for is kept, and no more than a bound.
//! A server that says nothing, or nonsense, is asked again and harms nobody else.

use super::proxy;
use super::remote::{Learned, Remote};
use super::routes::Aggregation;
use bytes::Bytes;
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use outbound::{Answer, Limits};
use schema::openapi::Other;
use schema::{Value, decode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a server is asked how it describes itself.
const EVERY: Duration = Duration::from_secs(60);

/// How long an answer may take, and how large it may be.
const LIMITS: Limits = Limits { time: Duration::from_secs(10), answer: 16 * 1024 * 1024 };

impl Aggregation {
    /// Keeps what a server says, if it answered at all, and asks for the rest now and then.
    pub(super) async fn learn(&self, remote: &Remote, resources: Option<Bytes>) {
        let before = remote.learned();
        let mut next = Learned { current: resources.is_some(), ..(*before).clone() };
        if let Some(resources) = resources {
            next.resources = Some(resources);
            if before.asked.is_none_or(|at| at.elapsed() >= EVERY) {
                next.asked = Some(Instant::now());
                next.v3 = self.third(remote).await;
                self.second(remote, &mut next).await;
            }
        }
        let same = next.resources == before.resources
            && next.current == before.current
            && next.v3 == before.v3
            && next.v2.as_ref().map(Arc::as_ptr) == before.v2.as_ref().map(Arc::as_ptr);
        remote.learn(next);
        if !same {
            self.changed();
        }
    }

    async fn ask(&self, remote: &Remote, path: &str, tag: Option<HeaderValue>) -> Option<Answer> {
        let relay = remote.relay.as_ref().ok()?;
        let address = remote.address(&self.api)?;
        let mut request = proxy::own_request(&self.api.names, &address, path)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(tag) = tag {
            request.headers_mut().insert(IF_NONE_MATCH, tag);
        }
        let asked = relay.ask(request, LIMITS).await;
        asked.inspect_err(|why| tracing::debug!(name = remote.name, path, %why, "no description")).ok()
    }

    /// Where it describes its version by itself, if it does.
    async fn third(&self, remote: &Remote) -> Option<String> {
        let answer = self.ask(remote, "/openapi/v3", None).await.filter(|it| it.status.is_success())?;
        let key = format!("apis/{}", remote.group_version());
        let index = read(answer.body).await?;
        let address = index.at(&["paths", &key])?.text(&["serverRelativeURL"]).to_owned();
        // of what it says, only what leads to itself is passed on
        let (path, query) = address.split_once('?').unwrap_or((&address, ""));
        let plain = query.bytes().all(|it| it.is_ascii_alphanumeric() || b"=&%-_.".contains(&it));
        (path == format!("/openapi/v3/{key}") && plain && address.len() < 1024).then_some(address)
    }

    /// Its part of the one description of everything.
    async fn second(&self, remote: &Remote, next: &mut Learned) {
        let tag = next.tag.clone().filter(|_| next.v2.is_some());
        let Some(answer) = self.ask(remote, "/openapi/v2", tag).await else { return };
        match answer.status.as_u16() {
            304 => {}
            200 => {
                let prefix = format!("/apis/{}/", remote.group_version());
                next.tag = answer.headers.get(ETAG).cloned();
                let cut = tokio::task::spawn_blocking(move || {
                    Other::cut(decode::json_untyped(&answer.body).ok()?.value, &prefix)
                });
                next.v2 = cut.await.ok().flatten().map(Arc::new);
            }
            _ => (next.v2, next.tag) = (None, None),
        }
    }
}

/// An answer as a tree, made beside everything else: it may be large.
async fn read(json: Bytes) -> Option<Value> {
    tokio::task::spawn_blocking(move || decode::json_untyped(&json).ok().map(|it| it.value)).await.ok()?
}
