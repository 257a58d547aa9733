//! The audit events of one request.

use super::Audit;
use super::event::{Answered, Record, Reference, sources, takes_its_time};
use super::policy::{Level, Stage};
use crate::request::RequestInfo;
use crate::serve::{Body, Peer};
use auth::{Attributes, Decision, User};
use bytes::Bytes;
use env::MaybeReady;
use futures_core::Stream;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, header};
use rest::{RequestRecord, Shown};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

/// By this clients and servers speak of the same request.
pub(crate) const ID: HeaderName = HeaderName::from_static("audit-id");

/// A request on its way.
pub(crate) struct AuditContext<'a> {
    audit: &'a Arc<Audit>,
    asked: &'a RequestInfo,
    parts: &'a Parts,
    peer: &'a Peer,
    notes: &'a Arc<RequestRecord>,
    id: HeaderValue,
    received: SystemTime,
    open: Option<Box<Open>>,
}

impl<'a> AuditContext<'a> {
    pub fn begin(
        audit: &'a Arc<Audit>,
        asked: &'a RequestInfo,
        parts: &'a Parts,
        peer: &'a Peer,
        notes: &'a Arc<RequestRecord>,
    ) -> Self {
        let id = parts.headers.get(&ID).filter(|id| !id.is_empty()).cloned().unwrap_or_else(|| {
            let made = rest::metadata::new_uid(&audit.world);
            HeaderValue::try_from(made).unwrap_or(HeaderValue::from_static(""))
        });
        AuditContext { audit, asked, parts, peer, notes, id, received: audit.world.now(), open: None }
    }

    /// What the record calls the request.
    pub fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// The request goes no further, and nobody knows who asked. Such requests are recorded once.
    pub fn refused(&mut self, asked: &Attributes<'_>) {
        self.open(None, asked);
    }

    /// The caller is known; says whether the request may go on.
    pub fn received(&mut self, user: &Arc<User>, asked: &Attributes<'_>) -> MaybeReady<'static, bool> {
        let Some(open) = self.open(Some(user), asked) else { return true.into() };
        open.received = true;
        open.audit.emit(&open.record, Stage::RequestReceived)
    }

    /// The request goes no further since it could not be recorded.
    pub fn abandon(&mut self) {
        self.audit.counters.rejected.inc();
        if let Some(open) = &mut self.open {
            open.done = true;
        }
    }

    /// The request is carried out for somebody else.
    pub fn acts_as(&mut self, user: &Arc<User>) {
        if let Some(open) = &mut self.open {
            open.record.acts_as = Some(user.clone());
        }
    }

    /// Whether it is permitted.
    pub fn decided(&mut self, decision: &Decision) {
        if let Some(open) = &mut self.open {
            open.record.decision = Some(match decision {
                Decision::Allow(why) => (Some(true), why.clone()),
                Decision::Deny(why) | Decision::NoOpinion(why) => (Some(false), why.clone()),
                Decision::Failed(_) => (None, "internal error".into()),
            });
        }
    }

    fn open(&mut self, user: Option<&Arc<User>>, asked: &Attributes<'_>) -> Option<&mut Open> {
        let verdict = self.audit.policy.judge(user.map(|user| &**user), asked);
        self.audit.levels[verdict.level as usize].inc();
        self.notes.show(match verdict.level {
            Level::None => return None,
            Level::Metadata => Shown::Reference,
            Level::Request => Shown::Request,
            Level::RequestResponse => Shown::Response,
        });
        let record = Record {
            verdict,
            id: self.id.clone(),
            uri: self.parts.uri.clone(),
            verb: self.asked.verb,
            user: user.cloned(),
            acts_as: None,
            sources: sources(&self.parts.headers, self.peer.remote.ip()),
            agent: self.parts.headers.get(header::USER_AGENT).cloned(),
            object: Reference::of(asked),
            received: self.received,
            decision: None,
            answered: None,
            traffic: Default::default(),
            annotations: Vec::new(),
        };
        let (audit, notes) = (self.audit.clone(), self.notes.clone());
        Some(self.open.insert(Box::new(Open { audit, record, notes, received: false, done: false })))
    }

    /// The server made a mistake.
    pub async fn panicked(mut self, why: &str) {
        if let Some(mut open) = self.open.take() {
            open.end(Answered::Panic(why.to_owned()), Stage::Panic).get().await;
        }
    }

    /// The answer is there; it carries the name of the record to the client. Long ones are recorded when they
    /// begin and when they end.
    pub async fn answered(mut self, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().insert(ID, self.id.clone());
        let Some(mut open) = self.open.take().filter(|open| !open.done) else { return response };
        let answered = Answered::Code(response.status().as_u16());
        if !open.received {
            open.end(answered, Stage::ResponseStarted).get().await;
            return response;
        }
        if !takes_its_time(self.asked) {
            open.end(answered, Stage::ResponseComplete).get().await;
            return response;
        }
        open.learn(answered);
        open.audit.emit(&open.record, Stage::ResponseStarted).get().await;
        if let Body::Stream(pieces) = response.body_mut() {
            let pieces = std::mem::replace(pieces, Box::pin(futures_util::stream::empty()));
            *response.body_mut() = Body::stream(Recorded { pieces, open });
        } else if response.body().lasts() {
            response = response.map(|body| body.holding(open));
        } else {
            open.done = true;
            open.audit.emit(&open.record, Stage::ResponseComplete).get().await;
        }
        response
    }
}

/// A record that lacks its end, which it gets at the latest when it is dropped.
struct Open {
    audit: Arc<Audit>,
    record: Record,
    notes: Arc<RequestRecord>,
    /// Whether the first stage is behind it.
    received: bool,
    done: bool,
}

impl Open {
    fn learn(&mut self, answered: Answered) {
        let record = &mut self.record;
        record.answered = Some(answered);
        record.traffic = self.notes.take_traffic();
        record.annotations = self.notes.annotations();
        if let Some(object) = &mut record.object {
            object.complete(&record.traffic.named);
        }
    }

    fn end(&mut self, answered: Answered, stage: Stage) -> MaybeReady<'static, bool> {
        self.done = true;
        self.learn(answered);
        self.audit.emit(&self.record, stage)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let taken = match self.record.answered {
            // the end of a long answer
            Some(_) => self.audit.emit(&self.record, Stage::ResponseComplete),
            None => self.end(Answered::Nobody, Stage::ResponseComplete),
        };
        if let (MaybeReady::Later(taken), Ok(runtime)) = (taken, tokio::runtime::Handle::try_current()) {
            runtime.spawn(taken);
        }
    }
}

/// A stream whose end is recorded.
struct Recorded {
    pieces: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    #[expect(dead_code, reason = "its end is the record's")]
    open: Box<Open>,
}

impl Stream for Recorded {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.pieces.as_mut().poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pieces.size_hint()
    }
}
