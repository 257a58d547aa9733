//! Watch responses: streams of events, each encoded once for all clients.

use super::lists;
use super::request_context::RequestContext;
use super::resource_path::ResourcePath;
use super::responses::{self, ResponseFormat};
use super::service::Service;
use crate::discovery::metrics::{self, Labels, LongRunning};
use crate::negotiate::status;
use crate::negotiate::table::{self, Include, Layout};
use crate::negotiate::{Form, Transform};
use crate::serve::Body;
use bytes::Bytes;
use env::{Sleep, World};
use futures_core::Stream;
use http::{HeaderValue, Response, header};
use rest::options::ListOptions;
use rest::{ApiError, Change, Object, Resource, Watch, WatchEvent};
use schema::proto;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Interval of bookmarks. On a clock that users hold, watches get the last one only: a cluster whose clock is moved by days
/// would spend most of the time on bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark comes so long before the end of a watch: the client goes on from there.
const LAST_BOOKMARK_BEFORE: Duration = Duration::from_secs(2);
/// A shorter watch has none: there is little to catch up with.
const SHORTEST_WITH_BOOKMARK: Duration = Duration::from_secs(10);

pub(crate) async fn start(
    service: &Arc<Service>,
    context: &RequestContext<'_>,
    path: &ResourcePath<'_>,
) -> Result<Response<Body>, ApiError> {
    let ResponseFormat { output, .. } = ResponseFormat::of(context, &service.api.names, path.resource, true)?;
    // events are JSON documents or protobuf frames
    let form = output.form;
    let streams = |form: Form| match form {
        Form::Yaml => {
            let protobuf = format!("{};stream=watch", service.api.names.protobuf_media_type());
            Err(ApiError::not_acceptable(&["application/json;stream=watch", &protobuf]))
        }
        _ => Ok(()),
    };
    let options = ListOptions::parse(&context.info.query, &service.api.names)?;
    let target = context.info.target.as_ref().filter(|target| target.watching && !target.name.is_empty());
    if let Some(target) = target {
        let selector = path.resource.selector(&options.label_selector, &options.field_selector)?;
        if selector.name() != Some(&*target.name) {
            return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
    }
    let include = match output.transform {
        Transform::Table { .. } => Include::parse(&context.info.query)?,
        _ => Include::Nothing,
    };
    let watch = match service.api.watch(path.resource, path.namespace, &options, context.connection).await {
        Ok(watch) => watch,
        // an expired resourceVersion becomes an ERROR event, as clients expect
        Err(error) if error.code == 410 => {
            streams(form)?;
            return Ok(stream_response(form, Body::full(error_event(&error, form)), service));
        }
        Err(error) => return Err(error),
    };
    streams(form)?;
    if path.resource.hooks.storage.custom_versions.is_some() {
        path.resource.ready(&watch.initial_objects()).await?;
    }
    let shortest = service.limits.min_request_timeout;
    let limit = match context.is_in_process() {
        // there is no connection that could be moved to another server
        true => Duration::MAX,
        false => timeout(options.timeout_seconds, shortest, || env::random_u64(&service.api.world)),
    };
    let (requests, labels) =
        (&service.metrics.requests, Labels::of(context.info, context.headers, &service.api));
    let long_running = requests.start_long_running(&labels, service.api.world.elapsed());
    let metrics_events = requests.events(path.resource);
    metrics_events.initial.inc_by(watch.initial() as u64);
    let end = service.api.world.elapsed().saturating_add(limit);
    let last_bookmark = match options.allow_bookmarks {
        _ if end == Duration::MAX => None,
        true if limit >= SHORTEST_WITH_BOOKMARK => Some(end.saturating_sub(LAST_BOOKMARK_BEFORE)),
        true => Some(end),
        false => None,
    };
    let bookmark_every = if service.clock.is_some() { Duration::MAX } else { BOOKMARK_EVERY };
    let first_due = due(&service.api.world, end, last_bookmark, bookmark_every);
    let events = Events {
        watch,
        service: service.clone(),
        resource: path.resource.clone(),
        form,
        transform: output.transform,
        include,
        first: true,
        long_running,
        metrics_events,
        last_bookmark,
        bookmark_every,
        end,
        timer: Box::pin(service.api.world.sleep_until(first_due)),
        waker: None,
        converting: None,
    };
    Ok(stream_response(form, Body::stream(events), service))
}

fn stream_response(form: Form, body: Body, service: &Service) -> Response<Body> {
    let mut response = responses::response(200, form, body, &service.api.names);
    if form == Form::Protobuf
        && let Ok(value) =
            HeaderValue::from_str(&format!("{};stream=watch", service.api.names.protobuf_media_type()))
    {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

struct Events {
    watch: Watch,
    service: Arc<Service>,
    resource: Arc<Resource>,
    form: Form,
    transform: Transform,
    include: Include,
    /// Whether no event was sent yet: the first table has the column definitions.
    first: bool,
    long_running: LongRunning,
    metrics_events: metrics::Events,
    /// When the last bookmark is due; `None` if there are no bookmarks.
    last_bookmark: Option<Duration>,
    bookmark_every: Duration,
    /// When the watch ends, by the clock of the world. The watches of components in this process do not.
    end: Duration,
    /// Fires for the next bookmark or at the end, whichever is first. The cache ends the watch when the
    /// server stops.
    timer: Pin<Box<Sleep>>,
    /// The waker registered with the timer.
    waker: Option<Waker>,
    /// An event whose object is being converted by a webhook.
    converting: Option<PendingConversion>,
}

struct PendingConversion {
    event: WatchEvent,
    work: Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send>>,
}

fn due(world: &World, end: Duration, last_bookmark: Option<Duration>, every: Duration) -> Duration {
    let now = world.elapsed();
    let bookmark = last_bookmark.filter(|last| now < *last).map(|last| last.min(now.saturating_add(every)));
    bookmark.map_or(end, |bookmark| bookmark.min(end))
}

impl Drop for Events {
    fn drop(&mut self) {
        self.long_running.end(self.service.api.world.elapsed());
    }
}

impl Stream for Events {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if this.converting.is_some() {
            return this.poll_conversion(cx);
        }
        match this.watch.poll_next(cx) {
            Poll::Ready(Some(Ok(event))) if !this.resource.is_ready(event.object()) => {
                let (resource, object) = (this.resource.clone(), event.object().clone());
                let work = Box::pin(async move { resource.ready(&[object]).await });
                this.converting = Some(PendingConversion { event, work });
                return this.poll_conversion(cx);
            }
            Poll::Ready(Some(Ok(event))) => return Poll::Ready(Some(this.send(&event))),
            Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        if this.end == Duration::MAX {
            return Poll::Pending;
        }
        // between two events the timer is neither due nor to be reset
        if this.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
            && !env::is_elapsed(&this.timer)
        {
            return Poll::Pending;
        }
        while this.timer.as_mut().poll(cx).is_ready() {
            if this.service.api.world.elapsed() >= this.end {
                return Poll::Ready(None);
            }
            let world = &this.service.api.world;
            let next = due(world, this.end, this.last_bookmark, this.bookmark_every);
            this.timer.set(world.sleep_until(next));
            this.waker = None;
            if let Some(revision) = this.watch.progress() {
                return Poll::Ready(Some(this.bookmark(revision)));
            }
        }
        this.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The initial objects are available at once.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.watch.initial(), None)
    }
}

impl Events {
    /// The event that is being converted. A failed conversion ends the watch with an error.
    fn poll_conversion(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(converting) = &mut self.converting else { return Poll::Ready(None) };
        let done = std::task::ready!(converting.work.as_mut().poll(cx));
        let event = self.converting.take();
        Poll::Ready(match (done, event) {
            (Ok(()), Some(PendingConversion { event, .. })) => Some(self.send(&event)),
            (Err(error), _) => {
                // no event follows
                self.end = self.service.api.world.elapsed();
                self.watch.close();
                Some(event_text("ERROR", &status::failure(&error)))
            }
            (Ok(()), None) => None,
        })
    }

    fn send(&mut self, event: &WatchEvent) -> Bytes {
        let event = self.encode(event);
        self.metrics_events.sizes.observe(event.len() as u64);
        event
    }

    fn encode(&mut self, event: &WatchEvent) -> Bytes {
        let (change, object) = match event {
            WatchEvent::Initial(object) => (Change::Added, object),
            WatchEvent::Left(object) => (Change::Deleted, object),
            WatchEvent::Event(change, event) => {
                if let Some(slot) = self.slot(*change, &event.entry) {
                    let make = || self.event(change.name(), &event.entry);
                    return event.encoded(slot, make);
                }
                (*change, &event.entry)
            }
        };
        let text = self.event(change.name(), object);
        self.first = false;
        text
    }

    /// The index at which the encoded event is cached for other watches; tables differ by client, and the
    /// beta form of metadata is rare.
    fn slot(&self, change: Change, object: &Object) -> Option<usize> {
        let form = match self.transform {
            Transform::Whole => 0,
            Transform::Partial { beta: false } | Transform::PartialList { beta: false } => 1,
            _ => return None,
        };
        // converted objects differ from version to version
        if !self.resource.shows_stored(object) {
            return None;
        }
        let view = usize::from(self.resource.hooks.storage.convert.is_some());
        let wire = usize::from(self.form == Form::Protobuf);
        Some(((wire * 2 + form) * 2 + view) * 3 + change as usize)
    }

    fn event(&self, kind: &str, object: &Object) -> Bytes {
        if self.form != Form::Protobuf {
            return event_text(kind, &self.json(object));
        }
        let (api_version, name) = (&self.resource.api_version, &self.resource.kind.name);
        let envelope = match self.transform {
            Transform::Whole => {
                proto::envelope(api_version, name, &lists::message(&self.resource, object)).into()
            }
            _ => match responses::meta_type("PartialObjectMetadata") {
                Some(ty) => responses::protobuf_envelope(&self.json(object), ty),
                None => Bytes::new(),
            },
        };
        proto::watch_frame(kind, &envelope).into()
    }

    fn json(&self, object: &Object) -> Bytes {
        let json = self.resource.json(object);
        let names = &self.service.api.names;
        match self.transform {
            Transform::Whole => json,
            Transform::Partial { beta } | Transform::PartialList { beta } => {
                table::partial(&self.resource.outline(&json), names, beta)
            }
            Transform::Table { beta } => {
                let now = Duration::from_secs(env::unix_seconds(&self.service.api.world).max(0) as u64);
                let layout = Layout {
                    resource: &self.resource,
                    names,
                    beta,
                    include: self.include,
                    now,
                    headers: self.first,
                };
                let mut out = layout.head(&format!("{{\"resourceVersion\":\"{}\"}}", object.revision));
                out.extend_from_slice(&layout.row(&json));
                out.extend_from_slice(b"]}");
                out.into()
            }
        }
    }

    /// An object of the kind with nothing but a resourceVersion.
    fn bookmark(&self, revision: u64) -> Bytes {
        let resource = &self.resource;
        let mut object = schema::decode::zero_struct(&resource.kind.root);
        object.set(&["kind"], &*resource.kind.name);
        object.set(&["apiVersion"], &*resource.api_version);
        object.set(&["metadata", "resourceVersion"], revision.to_string());
        match self.form {
            Form::Protobuf => {
                proto::watch_frame("BOOKMARK", &proto::seal(&object, &resource.kind.root)).into()
            }
            _ => event_text("BOOKMARK", &schema::encode::json(&object, &resource.kind.root)),
        }
    }
}

/// The event that ends a watch with an error.
pub(super) fn error_event(error: &ApiError, form: Form) -> Bytes {
    let json = status::failure(error);
    match (form, responses::meta_type("Status")) {
        (Form::Protobuf, Some(ty)) => {
            proto::watch_frame("ERROR", &responses::protobuf_envelope(&json, ty)).into()
        }
        _ => event_text("ERROR", &json),
    }
}

fn event_text(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}

/// How long a watch lasts.
fn timeout(seconds: Option<i64>, shortest: Duration, random: impl Fn() -> u64) -> Duration {
    match seconds {
        // a negative timeout ends at once
        Some(seconds) if seconds != 0 => Duration::from_secs(seconds.try_into().unwrap_or(0)),
        _ => default_timeout(shortest, random()),
    }
}

/// The timeout of a watch whose client names none: one to two times the shortest, so that watches that begin together
/// end one by one.
fn default_timeout(shortest: Duration, random: u64) -> Duration {
    shortest.mul_f64(1.0 + (random % 1000) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_timeouts_are_spread() {
        let timeouts: std::collections::BTreeSet<_> =
            (0..1000).map(|random| default_timeout(Duration::from_secs(1800), random)).collect();
        assert_eq!(timeouts.len(), 1000);
        assert_eq!(timeouts.first(), Some(&Duration::from_secs(1800)));
        assert!(timeouts.last() < Some(&Duration::from_secs(3600)));
    }
}
