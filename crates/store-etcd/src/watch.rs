//! The watch of all keys below the prefix, which survives lost connections and compacted history.
//!
//! # Up to which revision a watch is complete
//!
//! A consistent read must know that no event is missing up to etcd's newest revision, even if that revision changed
//! no key below the prefix. etcd answers progress requests, but before 3.4.31 and 3.5.13 the answer may overtake
//! events that are still in flight. So there are two modes, chosen per watched server, because that server's answer
//! must be right:
//!
//! - A server that reports progress in order is watched below the prefix, and receives progress requests while a
//!   caller waits.
//! - Any other server is watched over its whole key space. Every revision has events, all events arrive on the one
//!   watch in order, and the last event's revision is the progress; no request is needed. Events outside the prefix are
//!   dropped.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use env::io::{RealInstant, sleep, timeout};
use grpc::etcd::event::EventType;
use grpc::etcd::watch_request::RequestUnion;
use grpc::etcd::{
    Event, RangeRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use grpc::tonic::{Status, Streaming};
use outbound::RpcError;
use store::StoreError;
use tokio::sync::mpsc;

use crate::client::{Backoff, CALL_TIMEOUT, ClientError, PinnedServer};
use crate::header::{Header, revision};
use crate::load::load;
use crate::publisher::{Item, KeyChange};
use crate::shared::Shared;

/// How often progress is requested while a caller waits: a busy etcd may ignore a request.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Why a watch ended.
enum WatchEnd {
    /// The store has stopped.
    Stopped,
    /// The start revision has been compacted.
    Compacted,
    /// The connection or server failed; the watch can resume on another server, or later.
    Lost(String),
}

impl From<ClientError> for WatchEnd {
    fn from(failure: ClientError) -> Self {
        WatchEnd::Lost(failure.to_string())
    }
}

impl From<Status> for WatchEnd {
    fn from(status: Status) -> Self {
        WatchEnd::Lost(RpcError::from(status).to_string())
    }
}

impl From<StoreError> for WatchEnd {
    fn from(_: StoreError) -> Self {
        WatchEnd::Stopped
    }
}

/// The kind of a watch response.
#[derive(Debug, PartialEq, Eq)]
enum MessageKind {
    Changes,
    Progress,
}

pub(crate) struct Watcher {
    pub shared: Arc<Shared>,
    pub items: mpsc::Sender<Item>,
    /// Every change up to this revision has been queued.
    pub last: u64,
}

impl Watcher {
    /// Runs until the store stops.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            () = shared.ended() => (),
            () = self.run_loop() => (),
        }
    }

    async fn run_loop(&mut self) {
        let mut pause = Backoff::default();
        loop {
            let one_started = self.last;
            let end = match self.watch_server(&mut pause).await {
                Err(WatchEnd::Compacted) => {
                    tracing::warn!(
                        after = self.last,
                        "etcd has compacted the watch's start revision; listing all keys again"
                    );
                    self.reload().await.err()
                }
                end => end.err(),
            };
            match end {
                None | Some(WatchEnd::Compacted) => (),
                Some(WatchEnd::Stopped) => return,
                Some(WatchEnd::Lost(why)) => {
                    if self.shared.published() >= one_started && self.shared.is_watching() {
                        tracing::warn!(%why, "the etcd watch failed; retrying");
                    }
                    self.shared.set_unhealthy(why);
                    sleep(pause.next(&self.shared.world)).await;
                }
            }
        }
    }

    /// Watches one server until the watch fails.
    async fn watch_server(&mut self, pause: &mut Backoff) -> Result<(), WatchEnd> {
        let shared = self.shared.clone();
        let one = shared.client.one();
        let followed = self.watch_pinned(&one, pause).await;
        if let Err(WatchEnd::Lost(_)) = followed {
            one.give_up();
        }
        followed
    }

    async fn watch_pinned(&mut self, one: &PinnedServer<'_>, pause: &mut Backoff) -> Result<(), WatchEnd> {
        // a linearizable read gives the cluster's revision: a single member may lag behind
        let (key, end) = self.shared.prefix.bounds();
        let newest =
            self.shared.client.range(&RangeRequest { key: key.clone(), ..RangeRequest::default() }).await?;
        self.shared.check_header(newest.header.into(), self.last)?;
        // without permission for the status, use the mode that is right for every version
        let progress_in_order = match one.status().await {
            Ok(status) => reports_progress_in_order(&status.version),
            Err(failure) if failure.is_refused() => false,
            Err(failure) => return Err(failure.into()),
        };
        let from = self.last + 1;
        let all = Bytes::from_static(b"\0");
        let (key, range_end) = if progress_in_order { (key, end) } else { (all.clone(), all) };
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: from as i64,
            progress_notify: progress_in_order,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let (requests, mut responses) = one.watch(request(RequestUnion::CreateRequest(create))).await?;
        let created = timeout(CALL_TIMEOUT, responses.message()).await;
        let created = created.map_err(|_| WatchEnd::Lost("the watch was not created in time".to_owned()))?;
        self.take(created?, progress_in_order, &mut Vec::new()).await?;
        *pause = Backoff::default();
        self.shared.set_healthy();
        self.listen(&requests, &mut responses, progress_in_order).await
    }

    async fn listen(
        &mut self,
        requests: &mpsc::Sender<WatchRequest>,
        responses: &mut Streaming<WatchResponse>,
        progress_in_order: bool,
    ) -> Result<(), WatchEnd> {
        let mut awaited = self.shared.awaited.subscribe();
        let mut parts = Vec::new();
        // when to repeat the progress request in flight
        let mut again: Option<RealInstant> = None;
        loop {
            let behind = progress_in_order && *awaited.borrow_and_update() > self.last;
            if behind && again.is_none() {
                again = Some(RealInstant::after(PROGRESS_INTERVAL));
                // a full queue already holds progress requests
                let _ = requests.try_send(request(RequestUnion::ProgressRequest(WatchProgressRequest {})));
            }
            tokio::select! {
                response = responses.message() => {
                    if self.take(response?, progress_in_order, &mut parts).await? == MessageKind::Progress {
                        again = None;
                    }
                }
                changed = awaited.changed(), if progress_in_order && !behind => {
                    changed.map_err(|_| WatchEnd::Stopped)?;
                }
                () = again.unwrap_or_else(RealInstant::now).sleep(), if again.is_some() => again = None,
            }
        }
    }

    /// Queues the changes of a watch response. If more fragments follow, the events of the last revision stay in
    /// `parts`, because the next fragment may have more of that revision.
    async fn take(
        &mut self,
        response: Option<WatchResponse>,
        progress_in_order: bool,
        parts: &mut Vec<Event>,
    ) -> Result<MessageKind, WatchEnd> {
        let Some(response) = response else {
            return Err(WatchEnd::Lost("etcd closed the watch stream".to_owned()));
        };
        if response.canceled {
            let why = if response.cancel_reason.is_empty() {
                "the watch was canceled".to_owned()
            } else {
                response.cancel_reason
            };
            return Err(if response.compact_revision > 0 {
                WatchEnd::Compacted
            } else {
                WatchEnd::Lost(why)
            });
        }
        if response.created {
            self.shared.check_header(response.header.into(), 0)?;
            return Ok(MessageKind::Changes);
        }
        let what = if response.events.is_empty() { MessageKind::Progress } else { MessageKind::Changes };
        let events = whole_revisions(parts, response.events, response.fragment)?;
        let upto = match events.last() {
            Some(last) => mod_revision(last),
            None if what == MessageKind::Progress && progress_in_order && parts.is_empty() => {
                Header::from(response.header).revision
            }
            None => return Ok(what),
        };
        if upto > self.last {
            let known = std::mem::replace(&mut self.last, upto);
            let changes = events.into_iter().filter(|event| mod_revision(event) > known);
            let changes = changes.filter_map(|event| self.seen(event)).collect();
            self.items.send(Item::Changes { changes, upto }).await.map_err(|_| WatchEnd::Stopped)?;
        }
        Ok(what)
    }

    fn seen(&self, event: Event) -> Option<KeyChange> {
        let (is_delete, pair) = (event.r#type() == EventType::Delete, event.kv?);
        let key = self.shared.prefix.store_key(&pair.key)?;
        let value = (!is_delete).then_some(pair.value);
        Some(KeyChange { revision: revision(pair.mod_revision), key, value, is_estimated: false })
    }

    /// Lists all keys again, and queues the difference.
    async fn reload(&mut self) -> Result<(), WatchEnd> {
        let shared = self.shared.clone();
        let (mut changed, mut live) = (Vec::new(), HashSet::new());
        let header = load(&shared.client, &shared.prefix, |_, pairs| {
            if pairs.is_empty() {
                changed.clear();
                live.clear();
            }
            let index = shared.index.lock();
            for pair in pairs {
                let Some(key) = shared.prefix.store_key(&pair.key) else { continue };
                let revision = revision(pair.mod_revision);
                if index.get(&key) != Some(&revision) {
                    let value = Some(Bytes::copy_from_slice(&pair.value));
                    let key = key.clone();
                    changed.push(KeyChange { revision, key, value, is_estimated: false });
                }
                live.insert(key);
            }
        });
        let header = header.await?;
        shared.check_header(header, self.last)?;
        self.last = header.revision;
        let item = Item::Reload { changed, live, upto: header.revision };
        self.items.send(item).await.map_err(|_| WatchEnd::Stopped)
    }
}

fn request(request: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(request) }
}

/// Appends the events of a response to those left of the one before, and takes out the revisions that are whole: all, or
/// all but the last one if more fragments follow. A watch whose events are not in order is lost, because no revision can be
/// known to be whole, and changes are published in order.
fn whole_revisions(
    parts: &mut Vec<Event>,
    events: Vec<Event>,
    is_fragment: bool,
) -> Result<Vec<Event>, WatchEnd> {
    let before = parts.len().saturating_sub(1);
    parts.extend(events);
    if !parts[before..].is_sorted_by_key(mod_revision) {
        return Err(WatchEnd::Lost("etcd sent events out of order".to_owned()));
    }
    let open = match parts.last() {
        Some(last) if is_fragment => mod_revision(last),
        _ => u64::MAX,
    };
    let done = parts.partition_point(|event| mod_revision(event) < open);
    Ok(parts.drain(..done).collect())
}

fn mod_revision(event: &Event) -> u64 {
    event.kv.as_ref().map_or(0, |pair| revision(pair.mod_revision))
}

/// Whether a server of this version sends a progress response only after all earlier events.
fn reports_progress_in_order(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else { return false };
    match (major, minor) {
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        _ => (major, minor) >= (3, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_whole_and_in_order() {
        let event = |mod_revision| Event {
            kv: Some(grpc::etcd::KeyValue { mod_revision, ..grpc::etcd::KeyValue::default() }),
            ..Event::default()
        };
        let mut parts = Vec::new();
        let mut add = |revisions: &[i64], is_fragment| {
            let events = revisions.iter().map(|it| event(*it)).collect();
            let whole = whole_revisions(&mut parts, events, is_fragment).ok()?;
            Some(whole.iter().map(mod_revision).collect::<Vec<_>>())
        };
        assert_eq!(add(&[3, 4, 4], true), Some(vec![3]));
        assert_eq!(add(&[4, 5], true), Some(vec![4, 4, 4]));
        assert_eq!(add(&[], false), Some(vec![5]));
        assert_eq!(add(&[6, 9], true), Some(vec![6]));
        assert_eq!(add(&[8], false), None, "below the fragment before");
        assert_eq!(whole_revisions(&mut Vec::new(), vec![event(127), event(10)], false).ok(), None);
    }

    #[test]
    fn versions_that_answer_in_order_are_known() {
        for good in ["3.4.31", "3.5.13", "3.5.21", "3.6.0", "3.6.0-rc.1", "4.0.0", "3.10.1+x"] {
            assert!(reports_progress_in_order(good), "{good}");
        }
        for bad in ["3.4.30", "3.4.23", "3.5.12", "3.5.0", "3.3.27", "2.9.99", "", "3.6", "next"] {
            assert!(!reports_progress_in_order(bad), "{bad}");
        }
    }
}
