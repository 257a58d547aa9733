//! Watches as streams of events, each encoded once however many clients get it.

use super::answer::{self, ResponseFormat};
use super::lists;
use super::place::Place;
use super::request_context::RequestContext;
use super::service::Service;
use crate::discovery::metrics::{self, Labels, Lasting};
use crate::negotiate::status;
use crate::negotiate::table::{self, Include, Layout};
use crate::negotiate::{Form, Transform};
use crate::serve::Body;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderValue, Response, header};
use rest::options::ListOptions;
use rest::{ApiError, Change, Object, Resource, Seen, Watch};
use schema::proto;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How often a client that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn start(
    service: &Arc<Service>,
    call: &RequestContext<'_>,
    place: &Place<'_>,
) -> Result<Response<Body>, ApiError> {
    let ResponseFormat { output, .. } = ResponseFormat::of(call, &service.api.names, place.resource, true)?;
    // events come as JSON documents or protobuf frames
    let form = output.form;
    let streams = |form: Form| match form {
        Form::Yaml => {
            let protobuf = format!("{};stream=watch", service.api.names.protobuf_media_type());
            Err(ApiError::not_acceptable(&["application/json;stream=watch", &protobuf]))
        }
        _ => Ok(()),
    };
    let options = ListOptions::parse(&call.asked.query, &service.api.names)?;
    let include = match output.transform {
        Transform::Table { .. } => Include::parse(&call.asked.query)?,
        _ => Include::Nothing,
    };
    let watch = match service.api.watch(place.resource, place.namespace, &options, call.connection).await {
        Ok(watch) => watch,
        // what is too old to begin from is told as an event, so that clients handle it as such
        Err(error) if error.code == 410 => {
            streams(form)?;
            let json = status::failure(&error);
            let event = match (form, answer::meta_type("Status")) {
                (Form::Protobuf, Some(ty)) => proto::watch_frame("ERROR", &answer::sealed(&json, ty)).into(),
                _ => event_text("ERROR", &json),
            };
            return Ok(streamed(form, Body::full(event), service));
        }
        Err(error) => return Err(error),
    };
    streams(form)?;
    if place.resource.hooks.storage.fit.is_some() {
        place.resource.ready(&watch.initial_objects()).await?;
    }
    let shortest = service.limits.min_request_timeout;
    let limit = match options.timeout_seconds {
        // less than no time is over at once
        Some(seconds) if seconds != 0 => Duration::from_secs(seconds.try_into().unwrap_or(0)),
        _ => shortest.mul_f64(1.0 + (env::random_u64(&service.api.world) % 1000) as f64 / 1000.0),
    };
    let (requests, labels) = (&service.metrics.requests, Labels::of(call.asked, call.headers, &service.api));
    let lasting = requests.lasts(&labels, service.api.world.elapsed());
    let counted = requests.events(place.resource);
    counted.initial.inc_by(watch.initial() as u64);
    let end = Instant::now() + limit;
    let bookmarks = options.allow_bookmarks;
    let events = Events {
        watch,
        service: service.clone(),
        resource: place.resource.clone(),
        form,
        transform: output.transform,
        include,
        first: true,
        lasting,
        counted,
        bookmarks,
        end,
        timer: Box::pin(tokio::time::sleep_until(due(end, bookmarks))),
        waker: None,
        converting: None,
    };
    Ok(streamed(form, Body::stream(events), service))
}

fn streamed(form: Form, body: Body, service: &Service) -> Response<Body> {
    let mut response = answer::response(200, form, body, &service.api.names);
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
    /// Whether nothing has been sent yet: the first table tells its columns.
    first: bool,
    lasting: Lasting,
    counted: metrics::Events,
    bookmarks: bool,
    end: Instant,
    /// Rings for the next bookmark or at the end, whichever is first. A server that stops ends the watch
    /// itself, through the cache.
    timer: Pin<Box<Sleep>>,
    /// Whom the timer wakes, once it is set.
    waker: Option<Waker>,
    /// An event that another server is asked about before it can be told.
    converting: Option<Converting>,
}

struct Converting {
    seen: Seen,
    work: Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send>>,
}

fn due(end: Instant, bookmarks: bool) -> Instant {
    if bookmarks { end.min(Instant::now() + BOOKMARK_EVERY) } else { end }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.lasting.end(self.service.api.world.elapsed());
    }
}

impl Stream for Events {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if this.converting.is_some() {
            return this.converted(cx);
        }
        match this.watch.poll_next(cx) {
            Poll::Ready(Some(Ok(seen))) if !this.resource.is_ready(seen.object()) => {
                let (resource, object) = (this.resource.clone(), seen.object().clone());
                let work = Box::pin(async move { resource.ready(&[object]).await });
                this.converting = Some(Converting { seen, work });
                return this.converted(cx);
            }
            Poll::Ready(Some(Ok(seen))) => return Poll::Ready(Some(this.told(&seen))),
            Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        // between two events the timer is neither due nor to be set again
        if this.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) && !this.timer.is_elapsed() {
            return Poll::Pending;
        }
        while this.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= this.end {
                return Poll::Ready(None);
            }
            this.timer.as_mut().reset(due(this.end, this.bookmarks));
            this.waker = None;
            if let Some(revision) = this.watch.progress() {
                return Poll::Ready(Some(this.bookmark(revision)));
            }
        }
        this.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The objects that were there when the watch began are there to be sent.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.watch.initial(), None)
    }
}

impl Events {
    /// The event that is being asked about. One that cannot be told ends the watch, and says why.
    fn converted(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(converting) = &mut self.converting else { return Poll::Ready(None) };
        let done = std::task::ready!(converting.work.as_mut().poll(cx));
        let seen = self.converting.take();
        Poll::Ready(match (done, seen) {
            (Ok(()), Some(Converting { seen, .. })) => Some(self.told(&seen)),
            (Err(error), _) => {
                // nothing follows
                self.end = Instant::now();
                self.watch.close();
                Some(event_text("ERROR", &status::failure(&error)))
            }
            (Ok(()), None) => None,
        })
    }

    fn told(&mut self, seen: &Seen) -> Bytes {
        let event = self.encode(seen);
        self.counted.sizes.observe(event.len() as u64);
        event
    }

    fn encode(&mut self, seen: &Seen) -> Bytes {
        let (change, object) = match seen {
            Seen::Initial(object) => (Change::Added, object),
            Seen::Left(object) => (Change::Deleted, object),
            Seen::Event(change, event) => {
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

    /// Where the encoded event is kept for other watchers; tables differ from client to client, and the older
    /// form of metadata is hardly asked for.
    fn slot(&self, change: Change, object: &Object) -> Option<usize> {
        let form = match self.transform {
            Transform::Whole => 0,
            Transform::Partial { beta: false } | Transform::PartialList { beta: false } => 1,
            _ => return None,
        };
        // what is fitted differs from version to version
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
        let sealed = match self.transform {
            Transform::Whole => {
                proto::envelope(api_version, name, &lists::message(&self.resource, object)).into()
            }
            _ => match answer::meta_type("PartialObjectMetadata") {
                Some(ty) => answer::sealed(&self.json(object), ty),
                None => Bytes::new(),
            },
        };
        proto::watch_frame(kind, &sealed).into()
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

    /// An object of the kind with nothing but a version.
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

fn event_text(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}
