//! Following the objects of a resource: they are listed once, and watched from there, for ever.
//!
//! What always holds: changes are told in the order in which they happened. A watch that breaks is resumed; where the
//! server has forgotten what happened meanwhile everything is listed again, and whoever listens finds out the
//! difference.

use crate::queue::Backoff;
use futures_util::{StreamExt, pin_mut};
use kube::api::WatchEvent;

/// Who is told of objects.
pub(crate) trait Sink<T>: Send + Sync + 'static {
    /// What was listed, to know at the end what is gone.
    type Listed: Default + Send;

    fn listed(&self, object: T, all: &mut Self::Listed);

    /// Everything has been listed: there is nothing else, as of this revision.
    fn whole(&self, all: Self::Listed, version: &str);

    /// An object is new or has changed; its revision.
    fn changed(&self, object: T) -> String;

    /// An object is gone; the revision since which it is.
    fn gone(&self, object: T) -> String;

    /// Nothing more happened up to this revision.
    fn reached(&self, _: &str) {}
}

/// Where objects come from.
pub(crate) trait Source<K>: Send + Sync + 'static {
    /// A page, its revision, and where the next one begins.
    fn list(
        &self,
        after: Option<&str>,
    ) -> impl Future<Output = Result<(Vec<K>, String, Option<String>), kube::Error>> + Send;

    fn watch(
        &self,
        version: String,
    ) -> impl Future<
        Output = Result<
            impl futures_util::Stream<Item = Result<WatchEvent<K>, kube::Error>> + Send,
            kube::Error,
        >,
    > + Send;
}

enum Ended {
    /// The server ended it in good order: it can be resumed.
    Quietly,
    /// What happened since is no longer known.
    Forgotten,
}

/// Follows for ever. `what` is for the log.
pub(crate) async fn follow<T>(what: &str, source: impl Source<T>, sink: impl Sink<T>)
where
    T: Send + 'static,
{
    let mut backoff = Backoff::default();
    loop {
        let mut version = match list(&source, &sink).await {
            Ok(version) => version,
            Err(why) => {
                tracing::warn!(what, %why, "cannot list");
                tokio::time::sleep(backoff.pause()).await;
                continue;
            }
        };
        loop {
            let began = version.clone();
            let ended = watch(&source, &sink, &mut version).await;
            // a server that told something was there: what comes now is a new trouble
            if began != version {
                backoff = Backoff::default();
            }
            match ended {
                Ok(Ended::Quietly) => backoff = Backoff::default(),
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

async fn list<T: Send, S: Sink<T>>(source: &impl Source<T>, sink: &S) -> Result<String, kube::Error> {
    let mut all = S::Listed::default();
    let mut next: Option<String> = None;
    loop {
        let (objects, version, more) = source.list(next.as_deref()).await?;
        objects.into_iter().for_each(|object| sink.listed(object, &mut all));
        match more {
            Some(more) => next = Some(more),
            None => {
                sink.whole(all, &version);
                return Ok(version);
            }
        }
    }
}

async fn watch<T>(
    source: &impl Source<T>,
    sink: &impl Sink<T>,
    version: &mut String,
) -> Result<Ended, kube::Error> {
    let events = match source.watch(version.clone()).await {
        // some say so at once, some in the stream
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Forgotten),
        events => events?,
    };
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => *version = sink.changed(object),
            WatchEvent::Deleted(object) => *version = sink.gone(object),
            WatchEvent::Bookmark(mark) => {
                version.clone_from(&mark.metadata.resource_version);
                sink.reached(version);
            }
            WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Forgotten),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(Ended::Quietly)
}
