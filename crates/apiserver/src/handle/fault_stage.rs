//! The stage of requests that meet a fault: after authorization, around the handling.

use super::watch::error_event;
use crate::faults::{CutPoint, Effect, Fault, Faults, Subject, WatchEnd, WatchEnding};
use crate::negotiate::Form;
use crate::request::RequestInfo;
use crate::serve::{Body, CutConnection, Peer};
use auth::User;
use bytes::Bytes;
use env::{Sleep, World};
use futures_core::Stream;
use http::{HeaderMap, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use rest::ApiError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

type Outcome = Result<Response<Body>, ApiError>;

/// The fault that a request meets.
pub(super) fn choose(
    faults: &Faults,
    (info, headers): (&RequestInfo, &HeaderMap),
    user: &User,
    peer: &Peer,
) -> Option<Arc<Fault>> {
    let user_agent = headers.get(header::USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let common = Subject {
        verb: info.verb,
        path: &info.path,
        user: &user.name,
        user_agent,
        is_component: peer.is_in_process(),
        ..Subject::default()
    };
    faults.choose(&match &info.target {
        None => common,
        Some(target) => Subject {
            group: &target.group,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: &target.name,
            ..common
        },
    })
}

/// Delays a request; returns the response if it is not to be handled.
pub(super) async fn before(fault: &Fault, info: &RequestInfo, world: &World) -> Option<Outcome> {
    if let Some(delay) = fault.delay {
        env::sleep(world, delay).await;
    }
    match fault.effect {
        // a watch reports it as an event
        Effect::Status { code: 410, .. } if info.verb == "watch" => None,
        Effect::Status { code, retry_after_seconds } => {
            Some(Err(error(fault, info, code, retry_after_seconds)))
        }
        Effect::Cut(CutPoint::Request) => Some(Ok(cut())),
        Effect::Cut(CutPoint::Response) | Effect::EndWatch(_) | Effect::Nothing => None,
    }
}

/// The response of a request that was handled.
pub(super) fn after(fault: &Fault, info: &RequestInfo, outcome: Outcome, world: &World) -> Outcome {
    let end = match fault.effect {
        Effect::Cut(CutPoint::Response) => return Ok(cut()),
        Effect::EndWatch(end) => end,
        Effect::Status { code: 410, .. } if info.verb == "watch" => {
            WatchEnd { after_events: None, after: None, ending: WatchEnding::Expired }
        }
        _ => return outcome,
    };
    outcome
        .map(|response| if info.verb == "watch" { end_watch(fault, response, end, world) } else { response })
}

fn cut() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    response.extensions_mut().insert(CutConnection);
    response
}

fn error(fault: &Fault, info: &RequestInfo, code: u16, retry_after_seconds: u32) -> ApiError {
    let reason = fault.reason();
    let subject = match &info.target {
        Some(target) => rest::Subject { group: &target.group, kind: &target.resource, name: &target.name },
        None => rest::Subject { group: "", kind: &info.path, name: "" },
    };
    let mut error = match code {
        409 => ApiError::modified(subject),
        410 => ApiError::gone(reason),
        429 => ApiError::too_many_requests(reason, retry_after_seconds),
        503 => ApiError::unavailable(reason),
        504 => ApiError::timeout(format!("Timeout: {reason}")),
        _ => ApiError::internal_error(reason),
    };
    if retry_after_seconds > 0 {
        error.details.get_or_insert_default().retry_after_seconds = retry_after_seconds;
    }
    error
}

fn end_watch(fault: &Fault, response: Response<Body>, end: WatchEnd, world: &World) -> Response<Body> {
    let media = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let form = if media.is_some_and(|it| it.contains("protobuf")) { Form::Protobuf } else { Form::Json };
    let expired = || error_event(&ApiError::gone(fault.reason()), form);
    response.map(|body| match body {
        Body::Stream(events) => {
            let watch = EndingWatch {
                events: Some(events),
                // without either it ends at once
                left: end.after_events.or(end.after.is_none().then_some(0)),
                timer: end.after.map(|after| Box::pin(env::sleep(world, after))),
                last: (end.ending == WatchEnding::Expired).then(expired).map(Ok),
            };
            match end.ending {
                WatchEnding::Close | WatchEnding::Expired => Body::stream(Pieces(watch)),
                WatchEnding::Cut => {
                    let last = Some(Err(io::ErrorKind::ConnectionReset.into()));
                    let body = Box::pin(StreamBody::new(Frames(EndingWatch { last, ..watch })));
                    Body::Proxied { body, is_stream: true }
                }
            }
        }
        other => other,
    })
}

/// The events of a watch up to its end.
struct EndingWatch {
    /// Absent once the watch has ended.
    events: Option<Pin<Box<dyn Stream<Item = Bytes> + Send>>>,
    /// How many events it may still send.
    left: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Follows the events.
    last: Option<io::Result<Bytes>>,
}

impl EndingWatch {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let is_over = self.left == Some(0)
            || self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready());
        if is_over {
            self.events = None;
        }
        let Some(events) = &mut self.events else { return Poll::Ready(self.last.take()) };
        let Some(event) = ready!(events.as_mut().poll_next(cx)) else {
            // its own end came first
            (self.events, self.last) = (None, None);
            return Poll::Ready(None);
        };
        self.left = self.left.map(|left| left.saturating_sub(1));
        Poll::Ready(Some(Ok(event)))
    }
}

/// A watch whose end is none of its connection.
struct Pieces(EndingWatch);

impl Stream for Pieces {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll(cx).map(|piece| piece.and_then(Result::ok))
    }
}

/// A watch that breaks off.
struct Frames(EndingWatch);

impl Stream for Frames {
    type Item = io::Result<Frame<Bytes>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
