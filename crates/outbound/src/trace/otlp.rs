//! OTLP encoding of spans.

use super::span::{Attribute, Span, SpanKind};
use grpc::otlp::any_value::Value;
use grpc::otlp::span::SpanKind as OtlpKind;
use grpc::otlp::status::StatusCode;
use grpc::otlp::{
    self, AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans,
    ScopeSpans, Status,
};

pub fn request(spans: &[Span], resource: &[(&'static str, String)]) -> ExportTraceServiceRequest {
    let attributes = resource.iter().map(|(key, text)| attribute(key, Value::StringValue(text.clone())));
    let resource = Resource { attributes: attributes.collect() };
    let scope = InstrumentationScope { name: "pintle".to_owned() };
    let spans = ScopeSpans { scope: Some(scope), spans: spans.iter().map(span).collect() };
    let all = ResourceSpans { resource: Some(resource), scope_spans: vec![spans] };
    ExportTraceServiceRequest { resource_spans: vec![all] }
}

fn span(span: &Span) -> otlp::Span {
    let attributes = span.attributes.iter().map(|(key, value)| {
        let value = match value {
            Attribute::Text(text) => Value::StringValue(text.clone()),
            Attribute::Number(number) => Value::IntValue(*number),
        };
        attribute(key, value)
    });
    let kind = match span.kind {
        SpanKind::Server => OtlpKind::Server,
        SpanKind::Client => OtlpKind::Client,
        SpanKind::Internal => OtlpKind::Internal,
    };
    otlp::Span {
        trace_id: span.context.trace.to_vec().into(),
        span_id: span.context.span.to_vec().into(),
        parent_span_id: span.parent.map(|it| it.to_vec().into()).unwrap_or_default(),
        name: span.name.to_string(),
        kind: kind.into(),
        start_time_unix_nano: span.began.as_nanos() as u64,
        end_time_unix_nano: span.ended.as_nanos() as u64,
        attributes: attributes.collect(),
        status: span.failed.then(|| Status { code: StatusCode::Error.into() }),
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
