//! A gRPC channel whose calls are spans.

use super::Tracer;
use super::span::{Attribute, OpenSpan, SpanKind};
use crate::{Channel, ResponseBody, RpcError, TRACEPARENT, TransportError};
use bytes::Bytes;
use grpc::tonic;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_service::Service;

/// The status of a call whose server sent none, and of one that its caller gave up.
const UNKNOWN: i64 = 2;
const CANCELLED: i64 = 1;
const UNAVAILABLE: i64 = 14;

/// A channel, each call of which is a span if there is a tracer. Cheap to clone.
#[derive(Clone)]
pub struct TracedChannel {
    channel: Channel,
    tracer: Option<Arc<Tracer>>,
}

impl TracedChannel {
    pub fn new(channel: Channel, tracer: Option<Arc<Tracer>>) -> Self {
        TracedChannel { channel, tracer }
    }

    /// Awaits a call of a client over this channel, at most for `time`.
    pub async fn within<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, RpcError> {
        self.channel.within(time, call).await
    }

    fn begin(&self, path: &str) -> Option<CallSpan> {
        let tracer = self.tracer.as_ref()?;
        let open = tracer.begin_call()?;
        Some(CallSpan { tracer: tracer.clone(), open, method: path.trim_start_matches('/').to_owned() })
    }
}

impl Service<Request<tonic::body::Body>> for TracedChannel {
    type Response = Response<CallBody>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<CallBody>, TransportError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        let span = self.begin(request.uri().path());
        if let Some(header) = span.as_ref().and_then(|span| span.open.context.header()) {
            request.headers_mut().insert(TRACEPARENT, header);
        }
        let call = self.channel.call(request);
        Box::pin(async move {
            // a call that its caller drops ends its span, too
            let mut guard = SpanGuard(span);
            let response = call.await.inspect_err(|_| guard.end(UNAVAILABLE))?;
            if let Some(code) = status(response.headers()) {
                guard.end(code);
            }
            Ok(response.map(|body| CallBody { body, guard }))
        })
    }
}

/// The status of a call in its headers or trailers.
fn status(headers: &HeaderMap) -> Option<i64> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// The span of a call.
struct CallSpan {
    tracer: Arc<Tracer>,
    open: OpenSpan,
    /// Service and method.
    method: String,
}

impl CallSpan {
    fn end(self, code: i64) {
        let CallSpan { tracer, open, method } = self;
        let mut attributes: Vec<(&'static str, Attribute)> = vec![("rpc.system", "grpc".into())];
        if let Some((service, method)) = method.rsplit_once('/') {
            attributes.push(("rpc.service", service.into()));
            attributes.push(("rpc.method", method.into()));
        }
        attributes.push(("rpc.grpc.status_code", code.into()));
        tracer.end(open, method, SpanKind::Client, attributes, code != 0);
    }
}

/// Ends a span once.
struct SpanGuard(Option<CallSpan>);

impl SpanGuard {
    fn end(&mut self, code: i64) {
        if let Some(span) = self.0.take() {
            span.end(code);
        }
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        self.end(CANCELLED);
    }
}

/// The body of an answer, at the end of which the span ends.
pub struct CallBody {
    body: ResponseBody,
    guard: SpanGuard,
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.guard.end(status(trailers).unwrap_or(UNKNOWN));
                }
            }
            Some(Err(_)) => self.guard.end(UNAVAILABLE),
            None => self.guard.end(UNKNOWN),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
