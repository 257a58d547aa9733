//! Following the objects of a resource: they are listed once, and watched from there, for ever.
//!
//! What always holds: changes are told in the order in which they happened. A watch that breaks is resumed; where the
//! server has forgotten what happened meanwhile everything is listed again, and whoever listens finds out the
//! difference. A server that fails is asked again about once a second.
//!
//! What is in a page or an event is known to who listens; the way there is the same for all, and is there once.

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

/// How many objects are asked for at a time.
const PAGE: u32 = 500;
/// How much room for a line is kept between events.
const LINE: usize = 1024;

/// Who is told of objects.
pub trait Sink: Send + Sync + 'static {
    /// Objects that there are, as [`page`] reads them. What they are known by is kept, to know at the end what is gone.
    fn listed(&self, text: &str, all: &mut HashSet<Key>) -> Result<Page, serde_json::Error>;

    /// Everything has been listed: there is nothing else, as of this revision.
    fn whole(&self, all: HashSet<Key>, version: &str);

    /// Something has happened: a [`kube::api::WatchEvent`].
    fn told(&self, line: &str) -> Result<Told, serde_json::Error>;
}

/// What a page is besides its objects.
pub struct Page {
    pub version: String,
    /// Where the next one begins.
    pub next: Option<String>,
}

/// Reads a page of a list.
pub fn page<T: DeserializeOwned>(text: &str) -> Result<(Vec<T>, Page), serde_json::Error> {
    #[derive(Deserialize)]
    struct List<T> {
        #[serde(default)]
        metadata: Metadata,
        /// Some servers say that there are none by saying nothing.
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

/// What a line of a watch comes to.
pub enum Told {
    /// Everything up to this revision is known.
    UpTo(String),
    Failed(ErrorResponse),
}

/// Where objects come from.
pub struct Source {
    pub client: Client,
    pub path: String,
    /// A field selector; empty for all.
    pub fields: String,
    /// Whether nothing but the metadata is asked for.
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

enum Ended {
    /// The server ended it in good order: it can be resumed.
    Quietly,
    /// What happened since is no longer known.
    Forgotten,
}

/// The pauses before a server is asked again. They stay short: the changes of a moment at which the server fails are
/// known soon after it answers again. A server that is too busy says itself how long to wait
/// ([`retry_after`](crate::retry_after)).
fn retry() -> Backoff {
    Backoff::up_to(Duration::from_secs(1))
}

/// Follows for ever.
pub async fn list_and_watch(source: Source, sink: Box<dyn Sink>) {
    let (what, mut backoff) = (&source.path, retry());
    loop {
        let mut version = match list(&source, &*sink).await {
            Ok(version) => version,
            Err(why) => {
                tracing::warn!(what, %why, "cannot list");
                tokio::time::sleep(backoff.pause()).await;
                continue;
            }
        };
        loop {
            let began = version.clone();
            let ended = watch(&source, &*sink, &mut version).await;
            // a server that told something was there: what comes now is a new trouble
            if began != version {
                backoff = retry();
            }
            match ended {
                // the usual end of a watch, after minutes and with a bookmark at the latest
                Ok(Ended::Quietly) if began != version => {}
                Ok(Ended::Quietly) => tokio::time::sleep(backoff.pause()).await,
                Ok(Ended::Forgotten) => {
                    tokio::time::sleep(backoff.pause()).await;
                    break;
                }
                Err(why) => {
                    tracing::debug!(what, %why, "a watch broke");
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
        let page = sink.listed(&text, &mut all).map_err(kube::Error::SerdeError)?;
        if page.next.is_none() {
            sink.whole(all, &page.version);
            return Ok(page.version);
        }
        next = page.next;
    }
}

async fn watch(source: &Source, sink: &dyn Sink, version: &mut String) -> Result<Ended, kube::Error> {
    let request = source.watch(version).map_err(kube::Error::BuildRequest)?;
    let lines = match source.client.request_stream(request).await {
        // some say so at once, some in the stream
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Forgotten),
        lines => lines?,
    };
    pin_mut!(lines);
    let mut line = String::new();
    loop {
        line.clear();
        lines.read_line(&mut line).await.map_err(kube::Error::ReadEvents)?;
        // what was cut off is told again when the watch is resumed
        if !line.ends_with('\n') {
            return Ok(Ended::Quietly);
        }
        match sink.told(&line).map_err(kube::Error::SerdeError)? {
            Told::UpTo(reached) => *version = reached,
            Told::Failed(status) if status.code == 410 => return Ok(Ended::Forgotten),
            Told::Failed(status) => return Err(kube::Error::Api(status)),
        }
        // few events are large, and many watches wait
        line.shrink_to(LINE);
    }
}

#[cfg(test)]
mod tests;
