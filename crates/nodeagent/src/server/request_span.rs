//! The span of a request.

use http::header::USER_AGENT;
use http::{Request, StatusCode};
use outbound::TRACEPARENT;
use outbound::trace::{Attribute, OpenSpan, SpanContext, SpanKind, Tracer};
use std::sync::Arc;

/// A request that is traced.
pub struct RequestSpan {
    tracer: Arc<Tracer>,
    pub open: OpenSpan,
    name: String,
    attributes: Vec<(&'static str, Attribute)>,
}

impl RequestSpan {
    /// Starts a span with the name of a route, if the request is sampled.
    pub fn begin<B>(tracer: &Arc<Tracer>, request: &Request<B>, name: String) -> Option<Self> {
        let open = tracer.begin(request.headers().get(TRACEPARENT).and_then(SpanContext::of_header))?;
        let target = request.uri().path_and_query().map_or("", |it| it.as_str());
        let mut attributes: Vec<(&'static str, Attribute)> = vec![
            ("http.method", request.method().as_str().into()),
            ("http.target", target.into()),
            ("http.route", name.as_str().into()),
            ("http.scheme", "https".into()),
            ("http.server_name", "kubelet".into()),
        ];
        if let Some(agent) = request.headers().get(USER_AGENT).and_then(|it| it.to_str().ok()) {
            attributes.push(("http.user_agent", agent.into()));
        }
        Some(RequestSpan { tracer: tracer.clone(), open, name, attributes })
    }

    pub fn end(self, status: StatusCode) {
        let RequestSpan { tracer, open, name, mut attributes } = self;
        attributes.push(("http.status_code", i64::from(status.as_u16()).into()));
        tracer.end(open, name, SpanKind::Server, attributes, status.is_server_error());
    }
}
