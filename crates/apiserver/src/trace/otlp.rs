//! Spans as collectors read them: the request of OTLP's trace service, version 1, in protobuf.

use super::span::{Attribute, Span};
use schema::proto::Backward;

/// The procedure that takes them.
pub const PROCEDURE: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The kinds of spans that there are here.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
/// The status of what failed.
const FAILED: u64 = 2;

/// Everything is written from its end: a length is known when its content is there.
pub fn request(spans: &[Span], instance: &str) -> Vec<u8> {
    let mut out = Backward::new(256 * (spans.len() + 1));
    for one in spans.iter().rev() {
        let end = out.len();
        span(&mut out, one);
        out.enclose(2, end);
    }
    let end = out.len();
    out.bytes_field(1, b"pintle");
    out.enclose(1, end);
    out.enclose(2, 0);
    let end = out.len();
    attribute(&mut out, 1, "service.instance.id", &Attribute::Text(instance.to_owned()));
    attribute(&mut out, 1, "service.name", &Attribute::Text("apiserver".to_owned()));
    out.enclose(1, end);
    out.enclose(1, 0);
    out.finish()
}

fn span(out: &mut Backward, span: &Span) {
    if span.failed {
        let end = out.len();
        out.varint_field(3, FAILED);
        out.enclose(15, end);
    }
    for (key, value) in span.attributes.iter().rev() {
        attribute(out, 9, key, value);
    }
    let nanoseconds = |time: std::time::Duration| (time.as_nanos() as u64).to_le_bytes();
    out.fixed64_field(8, nanoseconds(span.ended));
    out.fixed64_field(7, nanoseconds(span.began));
    out.varint_field(6, if span.served { SERVER } else { INTERNAL });
    out.bytes_field(5, span.name.as_bytes());
    if let Some(parent) = &span.parent {
        out.bytes_field(4, parent);
    }
    out.bytes_field(2, &span.context.span);
    out.bytes_field(1, &span.context.trace);
}

fn attribute(out: &mut Backward, number: u16, key: &str, value: &Attribute) {
    let end = out.len();
    match value {
        Attribute::Text(text) => out.bytes_field(1, text.as_bytes()),
        Attribute::Number(number) => out.varint_field(3, *number as u64),
    }
    out.enclose(2, end);
    out.bytes_field(1, key.as_bytes());
    out.enclose(number, end);
}
