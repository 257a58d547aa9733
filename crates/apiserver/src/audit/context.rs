//! The audit events of one request.

use super::Audit;
use super::event::{Outcome, Record, Reference, is_long_running, sources};
use super::policy::{Level, Stage};
use crate::request::RequestInfo;
use crate::serve::{Body, Peer};
use auth::{Attributes, Decision, User};
use bytes::Bytes;
use env::MaybeReady;
use futures_core::Stream;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, header};
use rest::{AuditDetail, RequestRecord};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

/// The id that clients and servers share.
pub(crate) const ID: HeaderName = HeaderName::from_static("audit-id");

/// The recorded bytes of a `User-Agent`.
const USER_AGENT_BYTES: usize = 1024;

/// A request in progress.
pub(crate) struct AuditContext<'a> {
    audit: &'a Arc<Audit>,
    info: &'a RequestInfo,
    parts: &'a Parts,
    peer: &'a Peer,
    request_record: &'a Arc<RequestRecord>,
    id: HeaderValue,
    received: SystemTime,
    open: Option<Box<OpenEvent>>,
}

impl<'a> AuditContext<'a> {
    pub fn begin(
        audit: &'a Arc<Audit>,
        info: &'a RequestInfo,
        parts: &'a Parts,
        peer: &'a Peer,
        request_record: &'a Arc<RequestRecord>,
    ) -> Self {
        let id = parts.headers.get(&ID).filter(|id| !id.is_empty()).cloned().unwrap_or_else(|| {
            let id = rest::metadata::new_uid(&audit.world);
            HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static(""))
        });
        AuditContext { audit, info, parts, peer, request_record, id, received: audit.world.now(), open: None }
    }

    /// The audit id.
    pub fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Records a request that is refused before authentication.
    pub fn record_refusal(&mut self, attributes: &Attributes<'_>) {
        self.open(None, attributes);
    }

    /// Records the receipt of a request; returns whether it may go on.
    pub fn record_received(
        &mut self,
        user: &Arc<User>,
        attributes: &Attributes<'_>,
    ) -> MaybeReady<'static, bool> {
        let Some(open) = self.open(Some(user), attributes) else { return true.into() };
        open.received = true;
        open.audit.emit(&open.record, Stage::RequestReceived)
    }

    /// Drops a request whose event could not be recorded.
    pub fn abandon(&mut self) {
        self.audit.counters.rejected.inc();
        if let Some(open) = &mut self.open {
            open.done = true;
        }
    }

    /// Adds the impersonated user.
    pub fn impersonate(&mut self, user: &Arc<User>) {
        if let Some(open) = &mut self.open {
            open.record.impersonated = Some(user.clone());
        }
    }

    /// Adds the authorization decision.
    pub fn record_decision(&mut self, decision: &Decision) {
        if let Some(open) = &mut self.open {
            open.record.decision = Some(match decision {
                Decision::Allow(why) => (Some(true), why.clone()),
                Decision::Deny(why) | Decision::NoOpinion(why) => (Some(false), why.clone()),
                Decision::Failed(_) => (None, "internal error".into()),
            });
        }
    }

    fn open(&mut self, user: Option<&Arc<User>>, attributes: &Attributes<'_>) -> Option<&mut OpenEvent> {
        let selection = self.audit.policy.evaluate(user.map(|user| &**user), attributes);
        self.audit.levels[selection.level as usize].inc();
        self.request_record.set_audit_detail(match selection.level {
            Level::None => return None,
            Level::Metadata => AuditDetail::Reference,
            Level::Request => AuditDetail::Request,
            Level::RequestResponse => AuditDetail::Response,
        });
        let record = Record {
            selection,
            id: self.id.clone(),
            uri: self.parts.uri.clone(),
            verb: self.info.verb,
            user: user.cloned(),
            impersonated: None,
            sources: sources(&self.parts.headers, self.peer.remote.ip()),
            agent: self.parts.headers.get(header::USER_AGENT).map(user_agent),
            object: Reference::of(attributes),
            received: self.received,
            decision: None,
            outcome: None,
            recorded_objects: Default::default(),
            annotations: Vec::new(),
        };
        let (audit, request_record) = (self.audit.clone(), self.request_record.clone());
        Some(self.open.insert(Box::new(OpenEvent {
            audit,
            record,
            request_record,
            received: false,
            done: false,
        })))
    }

    /// Records a panic.
    pub async fn record_panic(mut self, why: &str) {
        if let Some(mut open) = self.open.take() {
            open.end(Outcome::Panic(why.to_owned()), Stage::Panic).get().await;
        }
    }

    /// Records the response, and adds the audit id to it. Long-running ones are recorded when they begin and
    /// when they end.
    pub async fn complete(mut self, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().insert(ID, self.id.clone());
        let Some(mut open) = self.open.take().filter(|open| !open.done) else { return response };
        let outcome = Outcome::Code(response.status().as_u16());
        if !open.received {
            open.end(outcome, Stage::ResponseStarted).get().await;
            return response;
        }
        if !is_long_running(self.info) {
            open.end(outcome, Stage::ResponseComplete).get().await;
            return response;
        }
        open.add_outcome(outcome);
        open.audit.emit(&open.record, Stage::ResponseStarted).get().await;
        if let Body::Stream(pieces) = response.body_mut() {
            let pieces = std::mem::replace(pieces, Box::pin(futures_util::stream::empty()));
            *response.body_mut() = Body::stream(RecordedStream { pieces, open });
        } else if response.body().is_stream() {
            response = response.map(|body| body.with_guard(open));
        } else {
            open.done = true;
            open.audit.emit(&open.record, Stage::ResponseComplete).get().await;
        }
        response
    }
}

/// An event without its end, which it gets at the latest on drop.
struct OpenEvent {
    audit: Arc<Audit>,
    record: Record,
    request_record: Arc<RequestRecord>,
    /// Whether `RequestReceived` was recorded.
    received: bool,
    done: bool,
}

impl OpenEvent {
    fn add_outcome(&mut self, outcome: Outcome) {
        let record = &mut self.record;
        record.outcome = Some(outcome);
        record.recorded_objects = self.request_record.take_objects();
        record.annotations = self.request_record.annotations();
        if let Some(object) = &mut record.object {
            object.complete(&record.recorded_objects.reference);
        }
    }

    fn end(&mut self, outcome: Outcome, stage: Stage) -> MaybeReady<'static, bool> {
        self.done = true;
        self.add_outcome(outcome);
        self.audit.emit(&self.record, stage)
    }
}

impl Drop for OpenEvent {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let recorded = match self.record.outcome {
            // the end of a long-running response
            Some(_) => self.audit.emit(&self.record, Stage::ResponseComplete),
            None => self.end(Outcome::Disconnected, Stage::ResponseComplete),
        };
        if let (MaybeReady::Later(recorded), Ok(runtime)) = (recorded, tokio::runtime::Handle::try_current())
        {
            runtime.spawn(recorded);
        }
    }
}

/// A stream whose end is recorded.
struct RecordedStream {
    pieces: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    #[expect(dead_code, reason = "its end is the record's")]
    open: Box<OpenEvent>,
}

impl Stream for RecordedStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.pieces.as_mut().poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pieces.size_hint()
    }
}

/// The recorded form of a `User-Agent`, cut as upstream cuts it: clients choose its length.
fn user_agent(value: &HeaderValue) -> HeaderValue {
    let start = value.as_bytes().get(..USER_AGENT_BYTES).filter(|start| start.len() < value.len());
    let cut = start.map(|start| [start, b"...TRUNCATED"].concat());
    cut.and_then(|cut| HeaderValue::from_bytes(&cut).ok()).unwrap_or_else(|| value.clone())
}
