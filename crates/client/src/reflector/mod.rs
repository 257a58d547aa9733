//! The reflector: lists the objects of a resource, then watches them, for ever, and passes everything to a [`Sink`].
//!
//! Invariants: events arrive in the order in which they happened. A watch that breaks is resumed; when the server
//! answers that the resource version is too old (410), the reflector lists again, and the sink finds the difference.
//! Requests to a server that fails are about a second apart, by the clock of the client.
//!
//! The sink parses pages and events; the reflector has no type parameter, so that its code is compiled once for all kinds.

mod unreadable;

pub use unreadable::{UnreadableEvent, unreadable_object};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::key::Key;
use crate::params::ListParams;
use crate::resource_api::ResourcePath;
use api::meta::v1::{ObjectMeta, Status};
use api::{Json, List, from_json_unmanaged};
use bytes::Bytes;
use std::collections::HashSet;
use std::time::Duration;

/// The limit of a page.
const PAGE: u32 = 500;

/// The receiver of lists and watch events.
pub trait Sink: Send + Sync + 'static {
    /// A page of a list, which [`page`] parses. The sink adds the keys of its objects to `all`.
    fn list_page(&self, text: &[u8], all: &mut HashSet<Key>) -> Result<Page, Error>;

    /// The list is complete as of this resource version: objects whose key is not in `all` are gone.
    fn list_complete(&self, all: HashSet<Key>, version: &str);

    /// A line of the watch: a [`WatchEvent`](api::WatchEvent).
    fn watch_event(&self, line: &Bytes) -> Result<WatchProgress, Error>;
}

/// The metadata of a page.
pub struct Page {
    pub version: String,
    /// The continue token; empty for the last page.
    pub next: String,
    /// The metadata of the items that do not decode.
    pub unreadable: Vec<ObjectMeta>,
}

/// Reads a page of a list. Items have no managed fields; one that does not decode is skipped with a warning.
pub fn page<T: Json>(text: &[u8]) -> Result<(Vec<T>, Page), Error> {
    let (List { metadata, items, .. }, unreadable) = match from_json_unmanaged(text) {
        Ok(list) => (list, Vec::new()),
        Err(why) => unreadable::readable_items(text).ok_or(why)?,
    };
    Ok((items, Page { version: metadata.resource_version, next: metadata.continue_, unreadable }))
}

/// The effect of a watch event.
pub enum WatchProgress {
    /// The sink has everything up to this resource version.
    Reached(String),
    Failed(Box<Status>),
}

/// The resource to list and watch.
pub struct Source {
    pub client: Client,
    pub path: String,
    /// A field selector; empty for all.
    pub fields: String,
    /// Whether to request metadata only.
    pub metadata_only: bool,
}

/// Why a watch ended without an error.
enum WatchEnd {
    /// The server closed it: it can be resumed.
    Closed,
    /// The resource version is too old: a new list is needed.
    Expired,
}

/// The backoff of failed requests. It stays short, so that changes arrive soon after the server answers again. A server
/// that is too busy sends how long to wait ([`retry_after`](crate::retry_after)).
fn retry() -> Backoff {
    Backoff::new(Duration::from_millis(100), Duration::from_secs(1))
}

/// Lists and watches for ever.
pub async fn list_and_watch(source: Source, sink: Box<dyn Sink>) {
    let Source { client, path, fields, metadata_only } = source;
    let params = ListParams::default().fields(fields);
    let source = ResourcePath { client, path, metadata_only };
    let (path, mut backoff) = (&source.path, retry());
    loop {
        let mut version = match list(&source, &params, &*sink).await {
            Ok(version) => version,
            Err(why) => {
                tracing::warn!(path, %why, "cannot list");
                source.client.pause(backoff.pause()).await;
                continue;
            }
        };
        loop {
            let began = version.clone();
            let ended = watch(&source, &params, &*sink, &mut version).await;
            // events arrived: a failure from here on is a new one
            if began != version {
                backoff = retry();
            }
            match ended {
                // the usual end of a watch, after minutes and with a bookmark at the latest
                Ok(WatchEnd::Closed) if began != version => {}
                Ok(WatchEnd::Closed) => source.client.pause(backoff.pause()).await,
                Ok(WatchEnd::Expired) => {
                    source.client.pause(backoff.pause()).await;
                    break;
                }
                Err(why) => {
                    tracing::debug!(path, %why, "a watch broke");
                    source.client.pause(backoff.pause()).await;
                }
            }
        }
    }
}

async fn list(source: &ResourcePath, params: &ListParams, sink: &dyn Sink) -> Result<String, Error> {
    let mut all = HashSet::new();
    let mut params = params.clone().limit(PAGE);
    loop {
        let page = sink.list_page(&source.list(&params).await?, &mut all)?;
        if page.next.is_empty() {
            sink.list_complete(all, &page.version);
            return Ok(page.version);
        }
        params.continue_token = page.next;
    }
}

async fn watch(
    source: &ResourcePath,
    params: &ListParams,
    sink: &dyn Sink,
    version: &mut String,
) -> Result<WatchEnd, Error> {
    let mut lines = match source.watch(params, version).await {
        // some servers answer with 410, some send it in the stream
        Err(error) if error.is(410) => return Ok(WatchEnd::Expired),
        lines => lines?,
    };
    while let Some(line) = lines.next_line().await? {
        match sink.watch_event(&line)? {
            WatchProgress::Reached(reached) => *version = reached,
            WatchProgress::Failed(status) if status.code == 410 => return Ok(WatchEnd::Expired),
            WatchProgress::Failed(status) => return Err(Error::Api(status)),
        }
    }
    Ok(WatchEnd::Closed)
}

#[cfg(test)]
mod tests;
