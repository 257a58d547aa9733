//! The reflector: lists the objects of a resource, then watches them, for ever, and passes everything to a [`Sink`].
//!
//! What always holds: events arrive in the order in which they happened. A watch that breaks is resumed; when the server
//! answers that the resource version is too old (410), the reflector lists again, and the sink finds the difference.
//! Requests to a server that fails are about a second apart.
//!
//! The sink parses pages and events; the reflector has no type parameter, so that its code is compiled once for all kinds.

use crate::backoff::Backoff;
use crate::key::Key;
use futures_util::{AsyncBufReadExt, pin_mut};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::ErrorResponse;
use kube::core::request::{Error, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::time::Duration;

/// The limit of a page.
const PAGE: u32 = 500;
/// The capacity of the line buffer that is kept between events.
const LINE: usize = 1024;

/// The receiver of lists and watch events.
pub trait Sink: Send + Sync + 'static {
    /// A page of a list, which [`page`] parses. The sink adds the keys of its objects to `all`.
    fn list_page(&self, text: &str, all: &mut HashSet<Key>) -> Result<Page, serde_json::Error>;

    /// The list is complete as of this resource version: objects whose key is not in `all` are gone.
    fn list_complete(&self, all: HashSet<Key>, version: &str);

    /// A line of the watch: a [`kube::api::WatchEvent`].
    fn watch_event(&self, line: &str) -> Result<WatchProgress, serde_json::Error>;
}

/// The metadata of a page.
pub struct Page {
    pub version: String,
    /// The continue token.
    pub next: Option<String>,
}

/// Reads a page of a list.
pub fn page<T: DeserializeOwned>(text: &str) -> Result<(Vec<T>, Page), serde_json::Error> {
    #[derive(Deserialize)]
    struct List<T> {
        #[serde(default)]
        metadata: Metadata,
        /// Some servers leave an empty list out.
        items: Option<Vec<T>>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        resource_version: String,
        #[serde(rename = "continue")]
        next: String,
    }

    let List { metadata, items } = serde_json::from_str(text)?;
    let next = Some(metadata.next).filter(|token| !token.is_empty());
    Ok((items.unwrap_or_default(), Page { version: metadata.resource_version, next }))
}

/// The effect of a watch event.
pub enum WatchProgress {
    /// The sink has everything up to this resource version.
    Reached(String),
    Failed(ErrorResponse),
}

/// The resource to list and watch.
pub struct Source {
    pub client: Client,
    pub path: String,
    /// A field selector; empty for all.
    pub fields: String,
    /// Whether to request metadata only.
    pub bare: bool,
}

impl Source {
    fn list(&self, after: Option<&str>) -> Result<http::Request<Vec<u8>>, Error> {
        let params = ListParams {
            field_selector: self.selector(),
            continue_token: after.map(str::to_owned),
            ..ListParams::default().limit(PAGE)
        };
        let request = Request::new(&self.path);
        if self.bare { request.list_metadata(&params) } else { request.list(&params) }
    }

    fn watch(&self, version: &str) -> Result<http::Request<Vec<u8>>, Error> {
        let params = WatchParams { field_selector: self.selector(), ..WatchParams::default() };
        let request = Request::new(&self.path);
        if self.bare { request.watch_metadata(&params, version) } else { request.watch(&params, version) }
    }

    fn selector(&self) -> Option<String> {
        Some(self.fields.clone()).filter(|fields| !fields.is_empty())
    }
}

/// Why a watch ended without an error.
enum WatchEnd {
    /// The server closed it: it can be resumed.
    Closed,
    /// The resource version is too old: a new list is needed.
    Expired,
}

/// The backoff of failed requests. It stays short, so that changes arrive soon after the server answers again. A server
/// that is too busy sends how long to wait
/// ([`retry_after`](crate::retry_after)).
fn retry() -> Backoff {
    Backoff::up_to(Duration::from_secs(1))
}

/// Lists and watches for ever.
pub async fn list_and_watch(source: Source, sink: Box<dyn Sink>) {
    let (path, mut backoff) = (&source.path, retry());
    loop {
        let mut version = match list(&source, &*sink).await {
            Ok(version) => version,
            Err(why) => {
                tracing::warn!(path, %why, "cannot list");
                tokio::time::sleep(backoff.pause()).await;
                continue;
            }
        };
        loop {
            let began = version.clone();
            let ended = watch(&source, &*sink, &mut version).await;
            // events arrived: a failure from here on is a new one
            if began != version {
                backoff = retry();
            }
            match ended {
                // the usual end of a watch, after minutes and with a bookmark at the latest
                Ok(WatchEnd::Closed) if began != version => {}
                Ok(WatchEnd::Closed) => tokio::time::sleep(backoff.pause()).await,
                Ok(WatchEnd::Expired) => {
                    tokio::time::sleep(backoff.pause()).await;
                    break;
                }
                Err(why) => {
                    tracing::debug!(path, %why, "a watch broke");
                    tokio::time::sleep(backoff.pause()).await;
                }
            }
        }
    }
}

async fn list(source: &Source, sink: &dyn Sink) -> Result<String, kube::Error> {
    let mut all = HashSet::new();
    let mut next: Option<String> = None;
    loop {
        let request = source.list(next.as_deref()).map_err(kube::Error::BuildRequest)?;
        let text = source.client.request_text(request).await?;
        let page = sink.list_page(&text, &mut all).map_err(kube::Error::SerdeError)?;
        if page.next.is_none() {
            sink.list_complete(all, &page.version);
            return Ok(page.version);
        }
        next = page.next;
    }
}

async fn watch(source: &Source, sink: &dyn Sink, version: &mut String) -> Result<WatchEnd, kube::Error> {
    let request = source.watch(version).map_err(kube::Error::BuildRequest)?;
    let lines = match source.client.request_stream(request).await {
        // some servers answer with 410, some send it in the stream
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(WatchEnd::Expired),
        lines => lines?,
    };
    pin_mut!(lines);
    let mut line = String::new();
    loop {
        line.clear();
        lines.read_line(&mut line).await.map_err(kube::Error::ReadEvents)?;
        // a line that is cut off comes again when the watch is resumed
        if !line.ends_with('\n') {
            return Ok(WatchEnd::Closed);
        }
        match sink.watch_event(&line).map_err(kube::Error::SerdeError)? {
            WatchProgress::Reached(reached) => *version = reached,
            WatchProgress::Failed(status) if status.code == 410 => return Ok(WatchEnd::Expired),
            WatchProgress::Failed(status) => return Err(kube::Error::Api(status)),
        }
        // few events are large, and many watches wait
        line.shrink_to(LINE);
    }
}

#[cfg(test)]
mod tests;
