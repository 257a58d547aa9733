//! Spans and trace contexts.

use http::HeaderValue;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// The id that all spans of a trace share.
pub type TraceId = [u8; 16];
pub type SpanId = [u8; 8];

/// A span as others refer to it, and as the `traceparent` header carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
}

impl SpanContext {
    /// Parses a header; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = u8::from_str_radix(version, 16).ok().filter(|_| version.len() == 2)?;
        // later versions may append fields
        if version == 0xff || (version == 0 && parts.next().is_some()) || flags.len() != 2 {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let (trace, span) = (bytes::<16>(trace)?, bytes::<8>(span)?);
        (trace != [0; 16] && span != [0; 8]).then_some(SpanContext { trace, span, sampled: flags & 1 == 1 })
    }

    pub fn of_header(value: &HeaderValue) -> Option<Self> {
        Self::parse(value.to_str().ok()?)
    }

    pub fn header(&self) -> Option<HeaderValue> {
        let mut text = "00-".to_owned();
        for byte in &self.trace {
            // writing to a string cannot fail
            let _ = write!(text, "{byte:02x}");
        }
        text.push('-');
        for byte in &self.span {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(if self.sampled { "-01" } else { "-00" });
        HeaderValue::try_from(text).ok()
    }
}

/// Exactly `N` bytes, in lower-case hexadecimal.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// A span that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct OpenSpan {
    pub context: SpanContext,
    pub parent: Option<SpanId>,
    /// Since the epoch.
    pub began: Duration,
}

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request that this process serves.
    Server,
    /// A request that this process makes.
    Client,
    /// A step of this process.
    Internal,
}

/// A finished span.
pub struct Span {
    pub context: SpanContext,
    pub parent: Option<SpanId>,
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    /// Since the epoch.
    pub began: Duration,
    pub ended: Duration,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub failed: bool,
}

pub enum Attribute {
    Text(String),
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Attribute::Text(text.to_owned())
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Attribute::Number(number)
    }
}
