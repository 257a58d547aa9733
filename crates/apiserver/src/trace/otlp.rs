//! OTLP encoding of spans.

use super::span::{Attribute, Span};
use grpc::otlp::any_value::Value;
use grpc::otlp::span::SpanKind;
use grpc::otlp::status::StatusCode;
use grpc::otlp::{
    self, AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans,
    ScopeSpans, Status,
};

pub fn request(spans: &[Span], instance: &str) -> ExportTraceServiceRequest {
    let resource = Resource {
        attributes: vec![
            attribute("service.name", Value::StringValue("apiserver".to_owned())),
            attribute("service.instance.id", Value::StringValue(instance.to_owned())),
        ],
    };
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
    otlp::Span {
        trace_id: span.context.trace.to_vec().into(),
        span_id: span.context.span.to_vec().into(),
        parent_span_id: span.parent.map(|it| it.to_vec().into()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: if span.served { SpanKind::Server } else { SpanKind::Internal }.into(),
        start_time_unix_nano: span.began.as_nanos() as u64,
        end_time_unix_nano: span.ended.as_nanos() as u64,
        attributes: attributes.collect(),
        status: span.failed.then(|| Status { code: StatusCode::Error.into() }),
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
