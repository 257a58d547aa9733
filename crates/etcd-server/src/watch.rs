//! The watches of one stream.
//!
//! A stream reads the published changes itself, at the pace at which its client takes responses: recent ones from
//! memory, older ones from the file. So a slow client holds no memory, and loses no change unless it is compacted away.
//!
//! All watches of the stream that are up to date share one `position`. A watch that begins in the past lags behind it,
//! and reads alone until it has caught up:
//!
//! ```text
//! position 40                 watch 0 next 41    watch 1 next 41    watch 2 next 12 (lags)
//! watch 2 reads 12..=40                                             watch 2 next 41
//! revision 41 is published    every watch gets it, position 41
//! ```
//!
//! The changes of one revision are in one response, or in fragments of one. The revision in a response's header is one
//! up to which its watch has everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use grpc::Message;
use grpc::etcd::event::EventType;
use grpc::etcd::watch_create_request::FilterType;
use grpc::etcd::watch_request::RequestUnion;
use grpc::etcd::{Event, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse};
use grpc::tonic::Status;
use tokio::sync::{mpsc, watch};

use crate::error::Error;
use crate::history::RevisionChanges;
use crate::key_range::KeyRange;
use crate::shared::{Shared, WatcherCount};

/// Responses that may be queued for sending.
const MAX_QUEUED: usize = 16;
/// The id in responses that are about no watch, or about all.
const NO_WATCH: i64 = -1;

type Response = Result<WatchResponse, Status>;

/// Runs the watches of a stream until the client ends it.
pub fn run(
    shared: Arc<Shared>,
    requests: impl Stream<Item = Result<WatchRequest, Status>> + Send + Unpin + 'static,
    progress_interval: Duration,
) -> impl Stream<Item = Response> + Send + 'static {
    let (responses, mut queued) = mpsc::channel(MAX_QUEUED);
    let published = shared.follow();
    let position = *published.borrow();
    let watches = Watches {
        shared,
        published,
        responses,
        watchers: BTreeMap::new(),
        position,
        next_id: 0,
        wants_progress: false,
        progress_interval,
    };
    tokio::spawn(watches.run(requests));
    futures_util::stream::poll_fn(move |context| queued.poll_recv(context))
}

/// One watch.
struct Watcher {
    range: KeyRange,
    /// The first revision that has not been sent.
    next: i64,
    without_puts: bool,
    without_deletes: bool,
    with_previous: bool,
    notifies_progress: bool,
    /// Whether anything was sent since the last progress notification was due.
    is_active: bool,
    in_fragments: bool,
    _count: WatcherCount,
}

/// The client has gone.
struct ClientGone;

struct Watches {
    shared: Arc<Shared>,
    published: watch::Receiver<i64>,
    responses: mpsc::Sender<Response>,
    watchers: BTreeMap<i64, Watcher>,
    /// Watches that do not lag have all changes up to here.
    position: i64,
    next_id: i64,
    /// The client waits for the revision that all watches have reached.
    wants_progress: bool,
    progress_interval: Duration,
}

impl Watches {
    async fn run(mut self, mut requests: impl Stream<Item = Result<WatchRequest, Status>> + Unpin) {
        self.shared.metrics.watch_streams.inc();
        let gauge = self.shared.metrics.watch_streams.clone();
        // an error is that of a client that has gone
        let _ = self.serve(&mut requests).await;
        gauge.dec();
    }

    async fn serve(
        &mut self,
        requests: &mut (impl Stream<Item = Result<WatchRequest, Status>> + Unpin),
    ) -> Result<(), ClientGone> {
        let world = self.shared.world.clone();
        let mut tick = std::pin::pin!(env::sleep(&world, self.progress_interval));
        let mut fault = self.shared.follow_fault();
        let responses = self.responses.clone();
        loop {
            let has_more = self.advance().await?;
            if !has_more && std::mem::take(&mut self.wants_progress) {
                self.send_progress(NO_WATCH).await?;
            }
            tokio::select! {
                biased;
                request = requests.next() => match request {
                    Some(Ok(request)) => self.handle(request).await?,
                    // the client has closed its side, or the connection is lost
                    Some(Err(_)) | None => return Ok(()),
                },
                () = responses.closed() => return Err(ClientGone),
                _ = fault.changed() => return self.send(Err(self.shared.stop_reason().into())).await,
                () = std::future::ready(()), if has_more => {}
                changed = self.published.changed(), if !has_more => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                () = tick.as_mut(), if !has_more => {
                    self.notify_progress().await?;
                    tick.set(env::sleep(&world, self.progress_interval));
                }
            }
        }
    }

    async fn send(&self, response: Response) -> Result<(), ClientGone> {
        self.responses.send(response).await.map_err(|_| ClientGone)
    }

    async fn send_progress(&self, watch_id: i64) -> Result<(), ClientGone> {
        let header = Some(self.shared.header(self.position));
        self.send(Ok(WatchResponse { header, watch_id, ..Default::default() })).await
    }

    async fn handle(&mut self, request: WatchRequest) -> Result<(), ClientGone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(&request).await,
            Some(RequestUnion::CancelRequest(request)) => {
                if self.watchers.remove(&request.watch_id).is_none() {
                    return Ok(());
                }
                let header = Some(self.shared.current_header());
                let watch_id = request.watch_id;
                self.send(Ok(WatchResponse { header, watch_id, canceled: true, ..Default::default() })).await
            }
            Some(RequestUnion::ProgressRequest(_)) => {
                self.wants_progress = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: &WatchCreateRequest) -> Result<(), ClientGone> {
        // no key at all is every key
        let key = if request.key.is_empty() { Bytes::from_static(&[0]) } else { request.key.clone() };
        let range = KeyRange::new(&key, &request.range_end);
        let header = self.shared.current_header();
        let id = match request.watch_id {
            0 => self.free_id(),
            id => id,
        };
        let refusal = if range.is_empty() {
            Some("etcdserver: mvcc: watcher range is empty")
        } else if self.watchers.contains_key(&id) {
            Some("etcdserver: mvcc: duplicate watch ID provided on the WatchStream")
        } else {
            None
        };
        if let Some(reason) = refusal {
            return self
                .send(Ok(WatchResponse {
                    header: Some(header),
                    watch_id: NO_WATCH,
                    created: true,
                    canceled: true,
                    cancel_reason: reason.to_owned(),
                    ..Default::default()
                }))
                .await;
        }
        if self.watchers.is_empty() {
            self.position = header.revision;
        }
        let filters: Vec<_> = request.filters().collect();
        let watcher = Watcher {
            range,
            next: if request.start_revision > 0 { request.start_revision } else { header.revision + 1 },
            without_puts: filters.contains(&FilterType::Noput),
            without_deletes: filters.contains(&FilterType::Nodelete),
            with_previous: request.prev_kv,
            notifies_progress: request.progress_notify,
            is_active: false,
            in_fragments: request.fragment,
            _count: self.shared.count_watcher(),
        };
        self.watchers.insert(id, watcher);
        self.send(Ok(WatchResponse {
            header: Some(header),
            watch_id: id,
            created: true,
            ..Default::default()
        }))
        .await
    }

    fn free_id(&mut self) -> i64 {
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Sends some of the changes that are due. Returns whether there may be more.
    async fn advance(&mut self) -> Result<bool, ClientGone> {
        let published = *self.published.borrow_and_update();
        let lagging = self.watchers.iter().find(|(_, it)| it.next <= self.position);
        if let Some((id, watcher)) = lagging {
            let (id, next) = (*id, watcher.next);
            self.catch_up(id, next).await?;
            return Ok(true);
        }
        if self.watchers.is_empty() {
            self.position = published;
        }
        if self.position >= published {
            return Ok(false);
        }
        match self.shared.changes(self.position + 1, published) {
            Ok(changes) => {
                let last = changes.last().map_or(published, |it| it.revision);
                for id in self.watchers.keys().copied().collect::<Vec<_>>() {
                    self.deliver(id, &changes, last).await?;
                }
                self.position = last;
            }
            Err(error) => self.skip_compacted(error).await?,
        }
        Ok(true)
    }

    /// Sends changes of the past to a watch that lags.
    async fn catch_up(&mut self, id: i64, next: i64) -> Result<(), ClientGone> {
        let (shared, position) = (self.shared.clone(), self.position);
        let read = tokio::task::spawn_blocking(move || shared.changes(next, position)).await;
        match read.unwrap_or(Err(Error::Stopped)) {
            Ok(changes) => {
                let last = changes.last().map_or(position, |it| it.revision);
                self.deliver(id, &changes, last).await?;
                if let Some(watcher) = self.watchers.get_mut(&id) {
                    watcher.next = last + 1;
                }
                Ok(())
            }
            Err(Error::Compacted) => self.cancel_compacted(id).await,
            Err(error) => self.send(Err(error.into())).await.and(Err(ClientGone)),
        }
    }

    /// Cancels a watch whose next revision has been compacted.
    async fn cancel_compacted(&mut self, id: i64) -> Result<(), ClientGone> {
        self.watchers.remove(&id);
        let (header, compact_revision) = {
            let state = self.shared.state.read();
            (Some(self.shared.header(state.revision)), state.compacted)
        };
        self.send(Ok(WatchResponse {
            header,
            watch_id: id,
            canceled: true,
            compact_revision,
            cancel_reason: Error::Compacted.to_string(),
            ..Default::default()
        }))
        .await
    }

    /// The changes after the position cannot be read.
    async fn skip_compacted(&mut self, error: Error) -> Result<(), ClientGone> {
        if error != Error::Compacted {
            return self.send(Err(error.into())).await.and(Err(ClientGone));
        }
        let compacted = self.shared.state.read().compacted;
        let lost: Vec<_> =
            self.watchers.iter().filter(|(_, it)| it.next < compacted).map(|(id, _)| *id).collect();
        for id in lost {
            self.cancel_compacted(id).await?;
        }
        self.position = compacted - 1;
        Ok(())
    }

    /// Sends the changes that a watch is about; it then has everything up to `last`.
    async fn deliver(
        &mut self,
        id: i64,
        changes: &[Arc<RevisionChanges>],
        last: i64,
    ) -> Result<(), ClientGone> {
        let Some(watcher) = self.watchers.get_mut(&id) else { return Ok(()) };
        let mut events = Vec::new();
        for revision in changes.iter().filter(|it| it.revision >= watcher.next) {
            for kv in revision.changes.iter().filter(|kv| watcher.takes(kv)) {
                match event(&self.shared, kv, watcher.with_previous) {
                    Ok(event) => events.push(event),
                    Err(error) => return self.send(Err(error.into())).await.and(Err(ClientGone)),
                }
            }
        }
        watcher.next = watcher.next.max(last + 1);
        if events.is_empty() {
            return Ok(());
        }
        watcher.is_active = true;
        let limit = if watcher.in_fragments { self.shared.limits.max_request_bytes } else { usize::MAX };
        let header = Some(self.shared.header(last));
        let mut fragments = split(events, limit).into_iter().peekable();
        while let Some(events) = fragments.next() {
            let fragment = fragments.peek().is_some();
            self.send(Ok(WatchResponse { header, watch_id: id, fragment, events, ..Default::default() }))
                .await?;
        }
        Ok(())
    }

    /// Tells watches without recent changes how far they have come.
    async fn notify_progress(&mut self) -> Result<(), ClientGone> {
        let mut idle = Vec::new();
        for (id, watcher) in self.watchers.iter_mut().filter(|(_, it)| it.notifies_progress) {
            if !std::mem::take(&mut watcher.is_active) && watcher.next == self.position + 1 {
                idle.push(*id);
            }
        }
        for id in idle {
            self.send_progress(id).await?;
        }
        Ok(())
    }
}

impl Watcher {
    fn takes(&self, kv: &KeyValue) -> bool {
        let is_unwanted = if kv.version == 0 { self.without_deletes } else { self.without_puts };
        !is_unwanted && self.range.contains(&kv.key)
    }
}

fn event(shared: &Shared, kv: &KeyValue, with_previous: bool) -> Result<Event, Error> {
    let r#type = if kv.version == 0 { EventType::Delete } else { EventType::Put };
    let prev_kv = if with_previous { shared.previous(&kv.key, kv.mod_revision)? } else { None };
    Ok(Event { r#type: r#type.into(), kv: Some(kv.clone()), prev_kv })
}

/// Splits events into groups of at most so many bytes; an event is never split.
fn split(events: Vec<Event>, limit: usize) -> Vec<Vec<Event>> {
    let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0);
    for event in events {
        let size = event.encoded_len();
        if !group.is_empty() && bytes + size > limit {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
        bytes += size;
        group.push(event);
    }
    groups.push(group);
    groups
}
